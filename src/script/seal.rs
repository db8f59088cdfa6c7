//! Takes from a worker the way to new privileges, and all calls of the system but those that computing takes.
//!
//! The engine that runs scripts is a large program in C, and the parser one in Rust. A script that breaks out of them
//! is in a process that can read and write the pipes that it has, and can have memory; it can open, start, connect and
//! signal nothing. A call that is not listed fails, and ends nobody.

/// Seals this process. What this system does not have, for people; `None`: it has everything.
#[cfg(target_os = "linux")]
pub(super) fn seal() -> Option<String> {
    let no_privileges = rustix::thread::set_no_new_privs(true).map_err(|error| format!("no_new_privs ({error})"));
    let filter = filter().map_err(|error| format!("seccomp ({error})"));
    let missing: Vec<String> = [no_privileges.err(), filter.err()].into_iter().flatten().collect();
    (!missing.is_empty()).then(|| missing.join(" and "))
}

/// Elsewhere there is no such thing.
#[cfg(not(target_os = "linux"))]
pub(super) fn seal() -> Option<String> {
    Some("a filter of system calls".to_owned())
}

#[cfg(target_os = "linux")]
fn filter() -> Result<(), Box<dyn std::error::Error>> {
    use std::collections::BTreeMap;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        TargetArch, apply_filter,
    };

    let free = [
        // What it has open.
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        // Memory.
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_munmap,
        // Time and chance.
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_getrandom,
        // Itself: threads are not made, and locks are taken all the same.
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_yield,
        libc::SYS_sigaltstack,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = free.into_iter().map(|call| (call, Vec::new())).collect();
    let itself = u64::from(std::process::id());
    let is_own = || SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, itself);
    // How a program aborts.
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![is_own()?])?]);
    // Limits of its own, which it can lower, and raise no further than before.
    let is_this = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![is_this])?, SeccompRule::new(vec![is_own()?])?]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter(&program)?;
    Ok(())
}
