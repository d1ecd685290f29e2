//! Maps a hash to all numbers that were inserted with this hash. The implementation is linear hashing (Litwin, 1980); each page is a sorted vector of
//! words.
//!
//! A word has 64 bits: the upper 32 bits of the hash (the tag), then the number. The low bits of the tag select the page, so a page can be split
//! without computing hashes. The words of a page are sorted, so their tags are ascending, too. The high bits of the tags are uniformly distributed,
//! so a search starts at the proportional position (interpolation search). After every `LOAD` additions one page is split; the pages are split in
//! round-robin order. During a round, the pages that are not yet split grow from `LOAD` to `2 * LOAD` words on average; the pages that are already
//! split have half as many words.

use super::radix::Radix;

#[derive(Clone, Debug)]
pub(super) struct HashIndex<const LOAD: usize> {
    pages: Radix<Vec<u64>>,
    /// The number of pages.
    count: usize,
    len: usize,
}

impl<const LOAD: usize> HashIndex<LOAD> {
    /// Calls `accept` with numbers until it returns `Some`, and returns this result. `accept` must check the hash: it is called for all numbers whose
    /// hash has the same upper half as `hash`.
    #[inline]
    pub(super) fn find<R>(&self, hash: u64, mut accept: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let tag = hash >> 32;
        let page = self.pages.get(self.page(tag))?;
        page[place(page, tag)..]
            .iter()
            .take_while(|word| **word >> 32 == tag)
            .find_map(|word| accept(*word as u32))
    }

    /// `number` must not be in the index yet.
    pub(super) fn insert(&mut self, hash: u64, number: u32) {
        if self.len >= self.count * LOAD {
            self.split();
        }
        let tag = hash >> 32;
        let page = self.pages.get_mut(self.page(tag));
        if page.len() == page.capacity() {
            page.reserve_exact(16);
        }
        page.insert(place(page, tag), tag << 32 | u64::from(number));
        self.len += 1;
    }

    pub(super) fn remove(&mut self, hash: u64, number: u32) {
        let tag = hash >> 32;
        let page = self.pages.get_mut(self.page(tag));
        let first = place(page, tag);
        if let Some(at) = page[first..].iter().position(|word| *word == tag << 32 | u64::from(number)) {
            page.remove(first + at);
            self.len -= 1;
        }
    }

    /// The page of a tag. In pages that have been split in this round, and in the new pages, one more bit of the tag selects the page.
    #[inline]
    fn page(&self, tag: u64) -> usize {
        let mask = self.count.next_power_of_two() - 1;
        let page = tag as usize & mask;
        if page < self.count { page } else { page & (mask >> 1) }
    }

    fn split(&mut self) {
        // The new page has the number `count`. The page to split has the same number without its top bit.
        let bit = 1_usize << self.count.ilog2();
        let old = self.pages.get_mut(self.count - bit);
        let (moved, kept): (Vec<u64>, Vec<u64>) = old.iter().partition(|word| **word >> 32 & bit as u64 != 0);
        *old = kept;
        *self.pages.get_mut(self.count) = moved;
        self.count += 1;
    }
}

/// The position of the first word with this tag or, if there is none, the position at which it would be inserted.
#[inline]
fn place(page: &[u64], tag: u64) -> usize {
    let mut at = ((tag * page.len() as u64) >> 32) as usize;
    while at > 0 && page[at - 1] >> 32 >= tag {
        at -= 1;
    }
    while at < page.len() && page[at] >> 32 < tag {
        at += 1;
    }
    at
}

impl<const LOAD: usize> Default for HashIndex<LOAD> {
    fn default() -> Self {
        Self { pages: Radix::default(), count: 1, len: 0 }
    }
}
