//! What the operating system says about this process. Where it says nothing (not Linux) there is `None`.
use std::fs;
use std::time::Duration;

/// Clock ticks per second in `/proc`: fixed for programs on every Linux architecture in use.
const TICKS: f64 = 100.0;
/// Bytes of a page as `/proc` counts them.
const PAGE: u64 = 4096;

/// Returns the bytes of resident memory.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

/// Returns the most bytes that were resident since the start, or since [`reset_peak`].
#[must_use]
pub fn peak_resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Makes the peak of resident bytes begin anew; where the system can't, it stays that since the start.
pub fn reset_peak() {
    drop(fs::write("/proc/self/clear_refs", "5"));
}

/// Returns the nanoseconds that the calling thread has been ready to run without a core.
#[must_use]
pub fn run_delay_ns() -> Option<u64> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the time that the calling thread has been on a core; `None` where the system does not say.
#[must_use]
pub fn on_core() -> Option<Duration> {
    #[cfg(unix)]
    return clock(rustix::time::ClockId::ThreadCPUTime);
    #[cfg(not(unix))]
    None
}

/// Returns the time that all threads of this process have been on a core; `None` where the system does not say.
#[must_use]
pub fn cpu_time() -> Option<Duration> {
    #[cfg(unix)]
    return clock(rustix::time::ClockId::ProcessCPUTime);
    #[cfg(not(unix))]
    None
}

#[cfg(unix)]
fn clock(id: rustix::time::ClockId) -> Option<Duration> {
    rustix::time::clock_gettime(id).try_into().ok()
}

/// Measures how many cores other processes (and the hypervisor) take.
#[derive(Debug)]
pub struct OtherCores {
    busy: f64,
    own: Duration,
    start: std::time::Instant,
}

fn busy_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.split_ascii_whitespace().skip(1);
    let ticks = fields.take(8).enumerate();
    // Not idle, not waiting for a disk.
    let busy = ticks.filter(|(field, _)| !matches!(field, 3 | 4));
    Some(
        busy.filter_map(|(_, text)| text.parse::<f64>().ok())
            .sum::<f64>()
            / TICKS,
    )
}

impl OtherCores {
    /// Starts measuring.
    #[must_use]
    pub fn start() -> Self {
        Self {
            busy: busy_seconds().unwrap_or_default(),
            own: cpu_time().unwrap_or_default(),
            start: crate::stopwatch::now(),
        }
    }

    /// Returns the cores that others took on average since the start.
    #[must_use]
    pub fn cores(&self) -> Option<f64> {
        let seconds = self.start.elapsed().as_secs_f64();
        let others = (busy_seconds()? - self.busy) - (cpu_time()? - self.own).as_secs_f64();
        Some((others / seconds).max(0.0))
    }
}
