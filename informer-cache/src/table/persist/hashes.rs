//! PURE. A persistent hash index from hashes to numbers.
//!
//! It uses linear hashing (Litwin, *Linear Hashing: A New Tool for File and Table Addressing*, 1980): the number of pages grows and shrinks with the
//! number of entries, and a change splits one page, joins two pages, or does neither. So a change rewrites at most two pages, and the index is never
//! rehashed as a whole. A page is a sorted list of entries. The upper half of an entry is 32 bits of the hash, and the lower half is the number. The
//! low bits of these 32 bits choose the page, and the high bits order the entries in the page. Entries are plain numbers, so copying a shared page
//! only copies memory. Each page is a single allocation; with two, each lookup would have one more cache miss. A page has vacant entries at
//! its end, and its length includes them.
//!
//! Several numbers may have the same hash; the caller of [`find`](Hashes::find) distinguishes them.
//!
//! # Invariants
//! 1. There are `count` pages, numbered from 0. `count` is 0 if, and only if, there is no entry.
//! 2. An entry is in the page that its hash chooses. A page is sorted, and holds no entry twice, except [vacant](VACANT) entries.
//! 3. `len` is the number of entries that are not vacant. After a change, [`SPARSE`] × (`count` − 1) ≤ `len` ≤ [`FULL`] × `count`.

use std::iter::{empty, repeat_n};

use super::{COUNT, NodeArc, Vector, prefetch};

/// A page is split if the pages hold more than this number of entries on average.
const FULL: usize = 48;
/// Two pages are joined if the pages will hold fewer than this number of entries on average after the join.
const SPARSE: usize = 20;
/// A full page grows by this many entries. It does not double, so that less memory is unused.
const STEP: usize = 8;

/// A map from hashes to numbers; see the [module](self).
#[derive(Clone)]
pub(crate) struct Hashes {
    pages: Vector<NodeArc<[Entry]>>,
    count: u32,
    len: usize,
}

/// 32 bits of the hash in the upper half, and the number in the lower half.
type Entry = u64;

/// A vacant entry. It is greater than every other entry, because no slab assigns the number in its lower half.
const VACANT: Entry = Entry::MAX;

fn entry(hash: u64, number: u32) -> Entry {
    hash << 32 | u64::from(number)
}

fn entries(page: &[Entry]) -> impl Iterator<Item = Entry> {
    page.iter().copied().take_while(|entry| *entry != VACANT)
}

/// Creates a page of these entries, which must be sorted, and adds some vacant entries.
fn page_of(entries: impl Iterator<Item = Entry>) -> NodeArc<[Entry]> {
    let mut page: Vec<_> = entries.collect();
    page.resize((page.len() + 1).next_multiple_of(STEP), VACANT);
    page.into()
}

/// Returns the entries of a page, to change them. If the page is shared, replaces it by a copy first.
#[inline]
fn unshared(page: &mut NodeArc<[Entry]>) -> &mut [Entry] {
    if !page.is_unique() {
        *page = NodeArc::from(&**page);
    }
    NodeArc::get_mut(page).expect("a copy is not shared")
}

/// Returns the likely position of an entry in a page of this length.
#[inline]
fn likely(len: usize, entry: Entry) -> usize {
    (((entry >> 32) * len.saturating_sub(STEP / 2) as u64) >> 32) as usize
}

/// Returns how many entries of a sorted page are less than this entry.
///
/// Hashes are evenly distributed, so the search starts at the estimated position and continues in growing steps. The search usually stays within one
/// cache line; a binary search would touch three cache lines. It takes O(log n) for any distribution of the hashes.
#[inline]
fn lower_bound(page: &[Entry], entry: Entry) -> usize {
    let guess = likely(page.len(), entry);
    let (mut from, mut to, mut step) = (0, page.len(), 4);
    if page.get(guess).is_some_and(|found| *found < entry) {
        from = guess + 1;
        while let Some(found) = page.get(from + step) {
            if *found >= entry {
                to = from + step;
                break;
            }
            from += step + 1;
            step *= 2;
        }
    } else {
        to = guess;
        while let Some(at) = to.checked_sub(step) {
            if page[at] < entry {
                from = at + 1;
                break;
            }
            to = at;
            step *= 2;
        }
    }
    from + page[from..to].partition_point(|other| *other < entry)
}

impl Hashes {
    pub(crate) fn new() -> Self {
        Self { pages: Vector::new(), count: 0, len: 0 }
    }

    /// Calls `found` with the numbers that have this hash, one after the other, until it returns `Some`; returns that result.
    #[inline]
    pub(crate) fn find<R>(&self, hash: u64, found: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let page = self.pages.get(self.page(hash))?;
        let first = lower_bound(page, hash << 32);
        // A vacant entry ends the search, because its upper half equals that of a hash whose low bits are all set.
        let same = entries(&page[first..]).take_while(|entry| *entry >> 32 == hash & 0xffff_ffff);
        same.map(|entry| entry as u32).find_map(found)
    }

    /// Prefetches the part of a page in which a hash is likely to be.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let page = self.pages.get(self.page(hash));
        if let Some(entry) = page.and_then(|page| page.get(likely(page.len(), hash << 32))) {
            prefetch(entry);
        }
    }

    /// Inserts a number with its hash. The number must not be in the index with this hash already.
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        if self.count == 0 {
            self.pages.set(0, page_of(empty()));
            self.count = 1;
        }
        let entry = entry(hash, number);
        let page = self.page_mut(self.page(hash));
        if page.last() != Some(&VACANT) {
            *page = page.iter().copied().chain(repeat_n(VACANT, STEP)).collect();
        }
        // If the page was full, the line above has replaced it by a longer copy. Otherwise, this line copies it if it is shared.
        let page = unshared(page);
        let at = lower_bound(page, entry);
        page.copy_within(at..page.len() - 1, at + 1);
        page[at] = entry;
        self.len += 1;
        if self.len > self.count as usize * FULL {
            self.split();
        }
    }

    /// Removes a number with its hash. The number must be in the index with this hash.
    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        let entry = entry(hash, number);
        let page = self.page(hash);
        let Some(Ok(at)) = self.pages.get(page).map(|page| page.binary_search(&entry)) else {
            debug_assert!(false, "the removed entry is absent");
            return;
        };
        let page = unshared(self.page_mut(page));
        page.copy_within(at + 1.., at);
        page[page.len() - 1] = VACANT;
        self.len -= 1;
        if self.len == 0 {
            *self = Self::new();
        } else if self.count > 1 && self.len < (self.count as usize - 1) * SPARSE {
            self.join();
        }
    }

    /// Returns the number of the page that holds the entries with this hash.
    #[inline]
    fn page(&self, hash: u64) -> u32 {
        let bits = self.count.max(1).next_power_of_two();
        let page = hash as u32 & (bits - 1);
        // If the page does not exist yet, its entries are still in the page from which it will be split.
        if page < self.count { page } else { page & (bits / 2).wrapping_sub(1) }
    }

    fn page_mut(&mut self, page: u32) -> &mut NodeArc<[Entry]> {
        self.pages.get_mut(page).expect("invariant 1: the page exists")
    }

    /// Adds a page, and moves to it the entries of one earlier page that belong there now.
    fn split(&mut self) {
        let new = self.count;
        let bits = (new + 1).next_power_of_two();
        let from = new & (bits / 2 - 1);
        let goes = |entry: &Entry| (*entry >> 32) as u32 & (bits - 1) == new;
        let old = self.pages.get(from).expect("invariant 1: the page exists");
        let goes_on = page_of(entries(old).filter(goes));
        let stays = page_of(entries(old).filter(|entry| !goes(entry)));
        self.pages.set(from, stays);
        self.pages.set(new, goes_on);
        self.count += 1;
    }

    /// Removes the last page, and moves its entries back to the page from which it was split.
    fn join(&mut self) {
        let last = self.count - 1;
        let into = last & (self.count.next_power_of_two() / 2 - 1);
        let Some(page) = self.pages.remove(last) else { return };
        let old = self.page_mut(into);
        let mut all: Vec<_> = entries(old).chain(entries(&page)).collect();
        all.sort_unstable();
        *old = page_of(all.into_iter());
        self.count -= 1;
    }

    /// Frees the pages, like [`Vector::free`].
    pub(crate) fn free(&mut self, most: usize) -> usize {
        self.pages.free(most)
    }

    /// Returns the memory of the index in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes() + self.pages.iter().map(|(_, page)| COUNT + size_of_val(&**page)).sum::<usize>()
    }

    /// Checks the invariants; `hash_of` returns the hash with which a number was inserted.
    pub(crate) fn check(&self, hash_of: impl Fn(u32) -> Option<u64>) -> Result<(), String> {
        self.pages.check()?;
        if self.pages.len() != self.count as usize || (self.count == 0) != (self.len == 0) {
            return Err(format!(
                "hashes invariant 1: {} pages of {}, {} entries",
                self.pages.len(),
                self.count,
                self.len
            ));
        }
        let mut len = 0;
        for (number, page) in self.pages.iter() {
            let count = entries(page).count();
            let (filled, vacant) = page.split_at(count);
            if !filled.is_sorted_by(|a, b| a < b) || vacant.iter().any(|entry| *entry != VACANT) {
                return Err("hashes invariant 2: a page out of order".into());
            }
            for found in filled {
                let hash = hash_of(*found as u32).ok_or("hashes invariant 2: a number without an item")?;
                if entry(hash, *found as u32) != *found || self.page(hash) != number {
                    return Err("hashes invariant 2: an entry with a wrong hash or in a wrong page".into());
                }
            }
            len += count;
        }
        let (full, sparse) = (self.count as usize * FULL, self.count.saturating_sub(1) as usize * SPARSE);
        match len == self.len && (sparse..=full).contains(&len) {
            true => Ok(()),
            false => {
                Err(format!("hashes invariant 3: {len} of {} entries in {} pages", self.len, self.count))
            }
        }
    }
}
