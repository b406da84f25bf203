/// Hears how far long work has come.
///
/// # Contract
/// Implemented by programs that show it; called from any thread, often: it must not block.
pub trait Progress: Send + Sync {
    /// Learns that a step begins, and of how many bytes.
    fn begin(&self, step: &str, bytes: u64) {
        let _ = (step, bytes);
    }

    /// Learns that bytes of the step are done.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
