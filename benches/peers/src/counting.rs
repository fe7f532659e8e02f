//! The system's allocator, with counters that can be turned off, because counting costs time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

pub struct Counting;

static BEGUN: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Becomes negative when memory is freed that was allocated before counting began, so use only differences.
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

impl Counting {
    pub fn begin() {
        BEGUN.store(true, Relaxed);
    }

    /// The number of allocations and reallocations.
    pub fn count() -> u64 {
        COUNT.load(Relaxed)
    }

    /// The number of allocated bytes.
    pub fn live() -> i64 {
        LIVE.load(Relaxed)
    }

    /// The maximum number of allocated bytes.
    pub fn peak() -> i64 {
        PEAK.load(Relaxed)
    }

    /// Resets the maximum to the number of bytes that are allocated now.
    pub fn forget_peak() {
        PEAK.store(LIVE.load(Relaxed), Relaxed);
    }

    fn add(bytes: usize) {
        if BEGUN.load(Relaxed) {
            COUNT.fetch_add(1, Relaxed);
            let live = LIVE.fetch_add(bytes as i64, Relaxed) + bytes as i64;
            PEAK.fetch_max(live, Relaxed);
        }
    }

    fn take(bytes: usize) {
        if BEGUN.load(Relaxed) {
            LIVE.fetch_sub(bytes as i64, Relaxed);
        }
    }
}

// SAFETY: each call is forwarded to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Counting::take(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::take(layout.size());
        Counting::add(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}
