//! Starts worker processes from one thread that lives as long as the program. The system ends a worker with the
//! thread that started it, not with its process (`PR_SET_PDEATHSIG`), and threads of the runtime come and go.

use std::io;
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Something that the thread does: no more of it waits than workers are being started.
type Task = Box<dyn FnOnce() + Send>;

static STARTER: Mutex<Option<Sender<Task>>> = Mutex::new(None);

/// Starts a process, which may outlive the thread that asks for it.
///
/// # Errors
/// When the system has no room for a process, or for the thread.
pub(super) async fn start(mut command: Command) -> io::Result<Child> {
    let (done, started) = oneshot::channel();
    let runtime = Handle::current();
    let task = move || {
        let _inside = runtime.enter();
        // Where nobody waits any more, the process ends with this.
        let _ = done.send(command.spawn());
    };
    hand_over(Box::new(task))?;
    started.await.map_err(|_| io::Error::other("the thread that starts processes is gone"))?
}

fn hand_over(task: Task) -> io::Result<()> {
    let mut starter = STARTER.lock();
    let tasks = if let Some(tasks) = starter.take() {
        tasks
    } else {
        let (sender, tasks) = channel::<Task>();
        let work = move || tasks.into_iter().for_each(|task| task());
        std::thread::Builder::new().name("starter".to_owned()).spawn(work)?;
        sender
    };
    let handed_over = tasks.send(task).map_err(|_| io::Error::other("the thread that starts processes is gone"));
    // One that is gone is replaced the next time.
    *starter = handed_over.is_ok().then_some(tasks);
    handed_over
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Stdio;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_process_outlives_the_thread_that_asked_for_it() {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let runtime = Handle::current();
        let asking = std::thread::spawn(move || runtime.block_on(start(command)));
        let mut child = asking.join().expect("it does not panic").expect("a process");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(child.try_wait().expect("its state"), None, "it goes on");
    }
}
