//! Counts what a piece of code allocates.
#![expect(unsafe_code, reason = "a global allocator can't be written without")]
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Metered;

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is going away has no cells left; what it does is not measured.
    let _ = IN_USE.try_with(|in_use| {
        in_use.set(in_use.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(in_use.get())));
    });
}

// SAFETY: every call is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `ptr` comes from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static METERED: Metered = Metered;

/// Runs something and returns the most bytes that it had allocated at one time on this thread.
pub(crate) fn peak_of<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = IN_USE.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before).unsigned_abs())
}

/// Builds something and returns the bytes that it holds on to.
pub(crate) fn held_by<R>(build: impl FnOnce() -> R) -> (R, usize) {
    let before = IN_USE.get();
    let result = build();
    (result, (IN_USE.get() - before).unsigned_abs())
}

#[test]
fn the_meter_counts_the_peak() {
    let (_, peak) = peak_of(|| {
        drop(vec![0u8; 10_000]);
        vec![0u8; 5_000]
    });
    assert!((10_000..11_000).contains(&peak), "{peak}");
}
