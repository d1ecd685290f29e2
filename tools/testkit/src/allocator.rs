//! A global allocator that counts what each thread allocates. A test binary declares it:
//! ```
//! #[global_allocator]
//! static ALLOCATOR: testkit::allocator::CountingAllocator = testkit::allocator::CountingAllocator;
//! # assert!(testkit::allocator::allocations(|| drop(std::hint::black_box(Box::new(1)))) >= 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static FREES: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static LARGEST_COPY: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count.
#[derive(Debug)]
pub struct CountingAllocator;

fn count(allocations: u64, bytes: isize) {
    ALLOCATIONS.with(|count| count.set(count.get() + allocations));
    LIVE.with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call is passed to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        FREES.with(|frees| frees.set(frees.get() + 1));
        // SAFETY: the caller upholds the contract of `dealloc`, which is the same here.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as isize - layout.size() as isize);
        LARGEST_COPY.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller upholds the contract of `realloc`, which is the same here.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Returns the number of allocations of this thread so far. It stays 0 in a binary without [`CountingAllocator`].
#[must_use]
pub fn allocations_so_far() -> u64 {
    ALLOCATIONS.get()
}

/// Returns how many allocations `work` makes on this thread.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = allocations_so_far();
    work();
    allocations_so_far() - before
}

/// Returns how many allocations `work` frees on this thread.
pub fn frees(work: impl FnOnce()) -> u64 {
    let before = FREES.get();
    work();
    FREES.get() - before
}

/// Returns the largest number of bytes that a reallocation by `work` on this thread may copy, for example when a `Vec` grows.
pub fn largest_copy(work: impl FnOnce()) -> usize {
    let before = LARGEST_COPY.replace(0);
    work();
    LARGEST_COPY.replace(before)
}

/// Returns the bytes that this thread has allocated and not freed. Bytes that another thread frees stay in the sum.
#[must_use]
pub fn live_bytes() -> isize {
    LIVE.get()
}
