//! The system's allocator, counting. Only the tables that count have it: it costs time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

impl Counting {
    /// How often memory was asked for; growing counts.
    pub fn count() -> u64 {
        COUNT.load(Relaxed)
    }

    /// Bytes asked for and not given back.
    pub fn live() -> u64 {
        LIVE.load(Relaxed)
    }

    /// The most that was live at once.
    pub fn peak() -> u64 {
        PEAK.load(Relaxed)
    }

    /// From now on.
    pub fn forget_peak() {
        PEAK.store(LIVE.load(Relaxed), Relaxed);
    }

    fn add(bytes: usize) {
        COUNT.fetch_add(1, Relaxed);
        let live = LIVE.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        PEAK.fetch_max(live, Relaxed);
    }
}

// SAFETY: each call goes to the system's allocator as it came.
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
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size() as u64, Relaxed);
        Counting::add(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}
