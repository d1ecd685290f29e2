//! PURE. A map from numbers to numbers, for one relist. It is not a persistent structure.
//!
//! A page of 512 numbers is allocated when the first of them is set. So the memory depends on the pages in use, and not on the highest number.

/// The numbers of a page.
const PAGE: usize = 512;

/// A map from numbers to numbers. A number that was not set is mapped to 0.
pub(crate) struct Paged {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
}

impl Paged {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new() }
    }

    pub(crate) fn get(&self, number: u32) -> u32 {
        let page = self.pages.get(number as usize / PAGE).and_then(Option::as_ref);
        page.map_or(0, |page| page[number as usize % PAGE])
    }

    pub(crate) fn set(&mut self, number: u32, to: u32) {
        let at = number as usize / PAGE;
        if self.pages.len() <= at {
            self.pages.resize_with(at + 1, || None);
        }
        self.pages[at].get_or_insert_with(|| Box::new([0; PAGE]))[number as usize % PAGE] = to;
    }

    /// Returns an upper bound of the numbers that were set.
    pub(crate) fn end(&self) -> usize {
        self.pages.len() * PAGE
    }
}
