//! How much memory the daemon may still take: by its address space, by the control groups it is in, and by the machine.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

use crate::limits::RESERVED_MEMORY;

/// How long what was seen is taken for what is.
const FRESH: Duration = Duration::from_secs(1);
/// Where control groups are (version 2).
const GROUPS: &str = "/sys/fs/cgroup";

/// There is too little of it for anything new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the daemon has {} MiB of memory left, and keeps that for the runs that go on", left >> 20)]
pub struct Short {
    /// Bytes that it may still take.
    pub left: u64,
}

/// Looks at the memory, and not often.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Option<(Instant, Result<(), Short>)>>);

impl Memory {
    /// Whether there is enough for something new.
    ///
    /// # Errors
    /// When there is not.
    pub(super) fn has_room(&self) -> Result<(), Short> {
        let mut seen = self.0.lock();
        match *seen {
            Some((at, known)) if at.elapsed() < FRESH => known,
            _ => {
                let now = look();
                *seen = Some((Instant::now(), now));
                now
            }
        }
    }
}

/// What a limit leaves: of a small one the tenth is kept.
fn room(limit: u64, used: u64) -> Result<(), Short> {
    let left = limit.saturating_sub(used);
    if left < RESERVED_MEMORY.min(limit / 10) { Err(Short { left }) } else { Ok(()) }
}

/// Looks at every limit that there is. One that cannot be read is none.
fn look() -> Result<(), Short> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let (Some(limit), Some(used)) = (getrlimit(Resource::As).current, kib(&status, "VmSize:")) {
        room(limit, used)?;
    }
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if let (Some(all), Some(left)) = (kib(&machine, "MemTotal:"), kib(&machine, "MemAvailable:")) {
        room(all, all.saturating_sub(left))?;
    }
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return Ok(()) };
    // A limit of a group is one of all groups in it.
    for group in Path::new(GROUPS).join(own).ancestors().take_while(|path| path.starts_with(GROUPS)) {
        let number = |file| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        if let (Some(limit), Some(used)) = (number("memory.max"), number("memory.current")) {
            let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            // What the system keeps of files gives way.
            let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok()).unwrap_or(0);
            room(limit, used.saturating_sub(cached))?;
        }
    }
    Ok(())
}

/// The bytes that a line of such a file tells in KiB.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept() {
        assert_eq!(room(4 << 30, 3 << 30), Ok(()));
        assert_eq!(room(4 << 30, (4 << 30) - (1 << 20)), Err(Short { left: 1 << 20 }));
        assert_eq!(room(100 << 20, 80 << 20), Ok(()), "a small limit keeps little");
        assert_eq!(room(100 << 20, 200 << 20), Err(Short { left: 0 }), "a limit may be set lower later");
    }

    #[test]
    fn files_of_the_system() {
        assert_eq!(kib("Name:\tx\nVmSize:\t  12 kB\nVmRSS:\t 3 kB\n", "VmSize:"), Some(12 << 10));
        assert_eq!(kib("VmSize:\t12\n", "VmSize:"), None);
        assert!(kib(&fs::read_to_string("/proc/self/status").expect("the file"), "VmSize:").is_some());
    }
}
