//! PURE. A list that grows in small steps. It is not a persistent structure.
//!
//! A `Vec` copies all its items when it grows, so one push may take as long as a million others. This list allocates a chunk of 256 items at a time, and
//! copies only the pointers to the chunks.

/// The items of a chunk.
const CHUNK: usize = 256;

/// A list of items. All chunks but the last one are full.
pub(crate) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Chunked<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }

    /// Returns how many items satisfy `before`; these must be the first items.
    pub(crate) fn partition_point(&self, before: impl Fn(&T) -> bool) -> usize {
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_some_and(&before));
        self.chunks.get(chunk).map_or(self.len(), |within| chunk * CHUNK + within.partition_point(&before))
    }

    pub(crate) fn push(&mut self, item: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(item),
            // A short list does not allocate a whole chunk, and the copy of one that grows is bounded by a chunk.
            Some(_) => self.chunks.push(Self::with(CHUNK, item)),
            None => self.chunks.push(Self::with(1, item)),
        }
    }

    fn with(capacity: usize, item: T) -> Vec<T> {
        let mut chunk = Vec::with_capacity(capacity);
        chunk.push(item);
        chunk
    }

    /// Removes and returns the last item.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.chunks.last_mut()?;
        let item = last.pop();
        if last.is_empty() {
            self.chunks.pop();
        }
        item
    }

    /// Removes the item at this position, and moves the last item there. The position must exist.
    pub(crate) fn swap_remove(&mut self, at: usize) -> Option<T> {
        let last = self.pop()?;
        match self.get_mut(at) {
            Some(item) => Some(std::mem::replace(item, last)),
            None => Some(last),
        }
    }
}

// Not derived, because a derive would require `T: Default`.
impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_a_vec() {
        let (mut chunked, mut naive) = (Chunked::new(), Vec::new());
        let mut random = flyball_sync::random::SplitMix64::new(7);
        for _ in 0..20_000 {
            let number = random.next();
            match number % 8 {
                0 => assert_eq!(chunked.pop(), naive.pop()),
                1 if !naive.is_empty() => {
                    let at = number as usize / 8 % naive.len();
                    assert_eq!(chunked.swap_remove(at), Some(naive.swap_remove(at)));
                }
                _ => {
                    chunked.push(number);
                    naive.push(number);
                }
            }
            let at = number as usize / 8 % (naive.len() + 1);
            assert_eq!(chunked.get(at), naive.get(at));
            assert_eq!(chunked.get_mut(at), naive.get_mut(at));
            assert_eq!((chunked.len(), chunked.is_empty()), (naive.len(), naive.is_empty()));
        }
        let mut ascending = Chunked::new();
        for number in 0..=3 * CHUNK {
            let points = [0, number / 2, number];
            assert!(points.iter().all(|at| ascending.partition_point(|other| other < at) == *at), "{number}");
            ascending.push(number);
        }
        assert!(naive.len() > 10 * CHUNK);
    }
}
