//! Counts what the program asks its allocator for, while somebody wants to know.
#![expect(unsafe_code, reason = "a global allocator can't be written without")]
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

use mimalloc::MiMalloc;

static COUNTING: AtomicBool = AtomicBool::new(false);
static HELD: AtomicIsize = AtomicIsize::new(0);

/// The allocator of the `holdfast` program, with a count that is off unless [`held_by`] runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metered;

#[inline]
fn count(bytes: usize, sign: isize) {
    if COUNTING.load(Ordering::Relaxed) {
        HELD.fetch_add(bytes.cast_signed() * sign, Ordering::Relaxed);
    }
}

// SAFETY: every call is handed to `MiMalloc` unchanged.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those that `MiMalloc` asks for.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, 1);
        count(layout.size(), -1);
        // SAFETY: `ptr` comes from `MiMalloc` with this layout.
        unsafe { MiMalloc.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: `ptr` comes from `MiMalloc` with this layout.
        unsafe { MiMalloc.dealloc(ptr, layout) }
    }
}

/// Builds something and returns the bytes that it holds on to, all threads together; 0 where [`Metered`] is not the global allocator.
pub fn held_by<R>(build: impl FnOnce() -> R) -> (R, usize) {
    HELD.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    let result = build();
    COUNTING.store(false, Ordering::Relaxed);
    (
        result,
        usize::try_from(HELD.load(Ordering::Relaxed)).unwrap_or(0),
    )
}
