//! The waiting keys, in the data structure that client-go uses: a binary heap ordered by deadline.
//!
//! The order in which keys with equal deadlines are popped depends on how exactly the heap moves its elements. So the reference moves them like Go's
//! `container/heap`: the children of index i are at 2i+1 and 2i+2, and if both children are equal, the left one is chosen.

/// A key and its deadline. A key has at most one wait.
#[derive(Clone, Debug)]
struct Wait {
    key: String,
    until: u64,
    /// A sequence number: a deadline that is set later has a larger number.
    turn: u64,
}

/// All waits.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    heap: Vec<Wait>,
    turn: u64,
    /// Whether keys with equal deadlines are popped in the order in which the deadlines were set. Otherwise their order depends on the heap.
    in_turn: bool,
}

impl Waits {
    pub(super) fn new(in_turn: bool) -> Self {
        Self { heap: Vec::new(), turn: 0, in_turn }
    }

    /// Adds a wait. If the key is already waiting, the earlier of the two deadlines is kept.
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

    /// Removes and returns the key with the earliest deadline, if this deadline is at or before `now`.
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

    /// Removes and returns the wait at this index. The last wait of the heap takes its place and then moves up or down to restore the heap order.
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
