//! Counts what a piece of code allocates, for tests that hold it to a bound.
//!
//! A test program that measures makes [`Metered`] its allocator:
//!
//! ```
//! use backend_testkit::meter::{Metered, held_by, peak_of};
//!
//! #[global_allocator]
//! static METERED: Metered = Metered;
//!
//! let (held, peak) = peak_of(|| held_by(|| vec![0u8; 1000].into_boxed_slice()).1);
//! assert_eq!((held, peak), (1000, 1000));
//! ```
#![expect(unsafe_code, reason = "a global allocator can't be written without")]
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts the bytes in use per thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metered;

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

// SAFETY: every call is handed to the system allocator unchanged. What grows counts with its old and its new bytes, since
// `realloc` is the provided one, which moves.
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

/// Runs something and returns the most bytes that it had allocated at one time on this thread; 0 where [`Metered`] is not
/// the global allocator.
pub fn peak_of<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = IN_USE.get();
    let outer = PEAK.replace(before);
    let result = work();
    let peak = PEAK.get();
    PEAK.set(peak.max(outer));
    (result, (peak - before).unsigned_abs())
}

/// Builds something and returns the bytes that it holds on to; 0 where [`Metered`] is not the global allocator.
pub fn held_by<R>(build: impl FnOnce() -> R) -> (R, usize) {
    let before = IN_USE.get();
    let result = build();
    (result, (IN_USE.get() - before).unsigned_abs())
}

/// What decoding an input may allocate at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bytes that any input may cost.
    pub fixed: usize,
    /// Bytes that each byte of the input may cost beyond them.
    pub per_byte: usize,
}

impl Bound {
    /// Runs something on an input of this length.
    ///
    /// # Panics
    /// When it allocates more, or nothing is measured because [`Metered`] is not the global allocator.
    #[track_caller]
    pub fn hold<R>(self, input: usize, work: impl FnOnce() -> R) -> R {
        let probe = peak_of(|| drop(std::hint::black_box(Box::new([0u8; 64])))).1;
        assert!(probe > 0, "`Metered` is not the global allocator");
        let (result, peak) = peak_of(work);
        let most = self.fixed + self.per_byte * input;
        assert!(
            peak <= most,
            "an input of {input} bytes takes {peak} bytes of memory, more than {most}"
        );
        result
    }
}
