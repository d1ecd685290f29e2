//! PURE. Releases the memory of a map whose keys have left.
//!
//! The map consists of slots without gaps and an index of their numbers. It shrinks to twice its length when it is at most an eighth full. So after it
//! has shrunk, it loses or gains as many keys as it has, or more, before it changes its capacity again, and the cost of a call is O(1), amortised.

use hashbrown::HashTable;

/// Slots that are never released, so that a small map does not allocate again and again.
const KEPT: usize = 256;

/// Call this after removing a slot. `hash` returns the hash under which a slot is stored in the index. No user code runs.
#[inline]
pub(crate) fn shrink<S>(slots: &mut Vec<S>, index: &mut HashTable<u32>, hash: impl Fn(&S) -> u64) {
    if slots.capacity() > KEPT && slots.len() <= slots.capacity() / 8 {
        release(slots, index, hash);
    }
}

#[cold]
fn release<S>(slots: &mut Vec<S>, index: &mut HashTable<u32>, hash: impl Fn(&S) -> u64) {
    let kept = (slots.len() * 2).max(KEPT);
    slots.shrink_to(kept);
    index.shrink_to(kept, |&slot| hash(&slots[slot as usize]));
}
