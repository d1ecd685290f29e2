//! The waiting keys in client-go's data structure: a binary heap by deadline.
//!
//! The order of equal deadlines depends on the exact way in which the heap sifts. So the reference sifts like Go's `container/heap`: the children of
//! index i are at 2i+1 and 2i+2, and the left child is chosen if both are equal.

/// A key and its deadline. A key has at most one wait.
#[derive(Clone, Debug)]
struct Wait {
    key: String,
    until: u64,
    /// A sequence number, which grows with every deadline that is set.
    turn: u64,
}

/// All waits.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    heap: Vec<Wait>,
    turn: u64,
    /// Whether equal deadlines are popped in the order in which they were set, instead of in the order of the heap.
    in_turn: bool,
}

impl Waits {
    pub(super) fn new(in_turn: bool) -> Self {
        Self { heap: Vec::new(), turn: 0, in_turn }
    }

    /// Adds a wait; the earliest deadline of a key wins.
    pub(super) fn add(&mut self, key: &str, until: u64) {
        self.turn += 1;
        let turn = self.turn;
        match self.position(key) {
            None => {
                self.heap.push(Wait { key: key.to_owned(), until, turn });
                self.rise(self.heap.len() - 1);
            }
            Some(at) if until < self.heap[at].until => {
                (self.heap[at].until, self.heap[at].turn) = (until, turn);
                self.settle(at);
            }
            Some(_) => {}
        }
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Some(at) = self.position(key) {
            self.take(at);
        }
    }

    /// Removes the key with the earliest deadline, if this deadline has passed at `now`.
    pub(super) fn pop(&mut self, now: u64) -> Option<String> {
        let due = self.heap.first().is_some_and(|first| first.until <= now);
        due.then(|| self.take(0).key)
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }

    fn position(&self, key: &str) -> Option<usize> {
        self.heap.iter().position(|wait| wait.key == key)
    }

    fn before(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.heap[one], &self.heap[other]);
        one.until < other.until || self.in_turn && one.until == other.until && one.turn < other.turn
    }

    /// Removes the wait at this index. The last wait of the heap takes its place and is sifted.
    fn take(&mut self, at: usize) -> Wait {
        let taken = self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.settle(at);
        }
        taken
    }

    fn settle(&mut self, at: usize) {
        if self.sink(at) == at {
            self.rise(at);
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.before(at, (at - 1) / 2) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) -> usize {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                return at;
            }
            let child = if right < self.heap.len() && self.before(right, left) { right } else { left };
            if !self.before(child, at) {
                return at;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }
}
