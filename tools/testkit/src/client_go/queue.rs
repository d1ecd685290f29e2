//! A model of client-go's rate-limiting queue, with a switch for each intended difference of flyball.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::limiter::Limiter;
use super::waits::Waits;
use super::{Answer, LimiterConfig, QueueLine, Rule, Rules};

/// Executes a script for queues, line by line.
///
/// client-go stores a key in up to four places: in `line` if it can be handed out, in `dirty` if it has to be processed, in `processing` while a
/// worker processes it, and in `waits` if it has a deadline. In client-go, a background loop moves each key to `line` some time after its deadline;
/// here, `advance` moves each key when the clock reaches its deadline. Both give the same results if client-go's loop has moved all due keys before
/// the next line of the script is executed.
#[derive(Clone, Debug)]
pub struct ReferenceQueue {
    rules: Rules,
    now: u64,
    line: VecDeque<String>,
    dirty: BTreeSet<String>,
    processing: BTreeSet<String>,
    waits: Waits,
    limiter: Limiter,
    /// For each key, the time at which the wait after its last counted failure ends.
    open: BTreeMap<String, u64>,
    shutting_down: bool,
    started: bool,
}

impl ReferenceQueue {
    /// Creates an empty queue with the backoff that controllers use by default. A `Config` line replaces the backoff if it is the first line of the
    /// script.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            now: 0,
            line: VecDeque::new(),
            dirty: BTreeSet::new(),
            processing: BTreeSet::new(),
            waits: Waits::new(rules.has(Rule::EqualDeadlinesKeepOrder)),
            limiter: Limiter::default_backoff(rules),
            open: BTreeMap::new(),
            shutting_down: false,
            started: false,
        }
    }

    /// Executes a line and returns its answer. `None` stands for an invalid line.
    pub fn answer(&mut self, line: Option<&QueueLine>) -> Answer {
        let first = !self.started;
        self.started = true;
        let Some(line) = line else { return Answer::Error };
        match line {
            QueueLine::Config { base_ms, max_ms } if first => return self.configure(*base_ms, *max_ms),
            QueueLine::Config { .. } => return Answer::Error,
            QueueLine::Add(key) => self.add(key),
            QueueLine::AddAfter(key, ms) => self.add_after(key, ms * 1_000_000),
            QueueLine::AddRateLimited(key) => self.add_rate_limited(key),
            QueueLine::Get => return self.get(),
            QueueLine::Done(key) => self.done(key),
            QueueLine::Forget(key) => {
                self.open.remove(key);
                self.limiter.forget(key);
            }
            QueueLine::Requeues(key) => return Answer::Number(self.limiter.requeues(key)),
            QueueLine::Len => return Answer::Number(self.line.len() as u64),
            QueueLine::Advance(ms) => self.advance(ms * 1_000_000),
            QueueLine::Shutdown => {
                self.shutting_down = true;
                // At shutdown, flyball returns the waiting keys as leftovers, and client-go drops them. In both cases, `get` does not return them any
                // more.
                self.waits.clear();
            }
            QueueLine::ShuttingDown => return Answer::Flag(self.shutting_down),
        }
        Answer::Done
    }

    fn configure(&mut self, base_ms: u64, max_ms: u64) -> Answer {
        match Limiter::new(&LimiterConfig::Exponential { base_ms, max_ms }, self.rules) {
            None => Answer::Error,
            Some(limiter) => {
                self.limiter = limiter;
                Answer::Done
            }
        }
    }

    fn add(&mut self, key: &str) {
        if self.shutting_down {
            return;
        }
        if self.rules.has(Rule::AddSupersedesWait) {
            self.waits.remove(key);
        }
        self.mark(key);
    }

    /// Marks a key as dirty. If the key is not being processed, it is also queued now; otherwise, `done` queues it later.
    fn mark(&mut self, key: &str) {
        if self.dirty.insert(key.to_owned()) && !self.processing.contains(key) {
            self.line.push_back(key.to_owned());
        }
    }

    fn add_after(&mut self, key: &str, after: u64) {
        if self.shutting_down {
            return;
        }
        if after == 0 {
            return self.add(key);
        }
        if self.rules.has(Rule::ReadyCoversDelay) && self.dirty.contains(key) {
            return;
        }
        self.waits.add(key, self.now + after);
    }

    fn add_rate_limited(&mut self, key: &str) {
        if self.shutting_down && self.rules.has(Rule::RefusedAddCountsNothing) {
            return;
        }
        let after = self.failed(key);
        self.add_after(key, after);
    }

    fn failed(&mut self, key: &str) -> u64 {
        let open = self.open.get(key).copied().unwrap_or(0);
        if self.rules.has(Rule::FailureCountsOncePerWait) && self.now < open {
            return open - self.now;
        }
        let Self { dirty, processing, waits, limiter, now, .. } = self;
        let in_queue = |key: &str| dirty.contains(key) || processing.contains(key) || waits.contains(key);
        let wait = limiter.when(key, *now, &in_queue);
        self.open.insert(key.to_owned(), self.now + wait);
        wait
    }

    fn get(&mut self) -> Answer {
        if let Some(key) = self.line.pop_front() {
            self.processing.insert(key.clone());
            self.dirty.remove(&key);
            return Answer::Key(key);
        }
        // `line` is empty here, so every dirty key is being processed, and `done` queues it again.
        let comes = self.rules.has(Rule::ClosedMeansNothingComes) && !self.dirty.is_empty();
        if self.shutting_down && !comes { Answer::Shutdown } else { Answer::Empty }
    }

    fn done(&mut self, key: &str) {
        let held = self.processing.remove(key);
        if !held && self.rules.has(Rule::UnpairedDoneRefused) {
            return;
        }
        if self.dirty.contains(key) {
            self.line.push_back(key.to_owned());
        }
    }

    fn advance(&mut self, by: u64) {
        let now = self.now + by;
        while let Some(key) = self.waits.pop(now) {
            self.mark(&key);
        }
        self.now = now;
    }
}
