//! The oracle of the adaptive concurrency limit. It stores all operations in flight, and at the end of each round it sorts the latencies of the round
//! to find their median.

use arbitrary::Arbitrary;

use crate::oracle::limiter::Span;

/// One step of a random run.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum AdaptiveOp {
    /// Starts an operation, if the limit allows it.
    Start,
    /// Starts as many operations as the limit allows.
    Fill,
    /// Ends one of the operations in flight.
    End(u8, Ending),
    /// Ends all operations in flight.
    EndAll(Ending),
    /// Advances the clock.
    Advance(Span),
    /// Sets the clock back.
    JumpBack(Span),
}

/// The outcome of an operation.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Ending {
    Success,
    Failure,
    Ignored,
}

/// The configuration of a random run.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct AdaptiveSetup {
    least: u8,
    above_least: u8,
    /// The latency above which a response is too slow.
    pub bound: Span,
    /// The first limit.
    pub start_at: u8,
}

impl AdaptiveSetup {
    /// The lowest limit.
    #[must_use]
    pub fn least(&self) -> u32 {
        u32::from(self.least).max(1)
    }

    /// The highest limit.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.least() + u32::from(self.above_least)
    }
}

/// The oracle: the limit, the operations in flight, and the responses of the current round.
#[derive(Clone, Debug)]
pub struct OracleAimd {
    setup: AdaptiveSetup,
    limit: u32,
    in_flight: Vec<Operation>,
    round: u64,
    /// The latency of each response of this round; `None` for a failure.
    answers: Vec<Option<u64>>,
    /// The largest number of operations in flight at the end of any call of [`start`](Self::start) in this round.
    peak: usize,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    round: u64,
    at: u64,
}

impl OracleAimd {
    /// Creates the oracle, without operations in flight.
    #[must_use]
    pub fn new(setup: AdaptiveSetup) -> Self {
        let limit = u32::from(setup.start_at).max(setup.least()).min(setup.most());
        Self { setup, limit, in_flight: Vec::new(), round: 0, answers: Vec::new(), peak: 0 }
    }

    /// Starts an operation if the limit allows it. Returns whether the operation has started.
    pub fn start(&mut self, now: u64) -> bool {
        let free = self.in_flight.len() < self.limit as usize;
        if free {
            self.in_flight.push(Operation { round: self.round, at: now });
        }
        self.peak = self.peak.max(self.in_flight.len());
        free
    }

    /// Ends the operation at index `which` of the operations in flight. The last operation of the list moves to this index.
    pub fn end(&mut self, which: usize, ending: Ending, now: u64) {
        let operation = self.in_flight.swap_remove(which);
        if operation.round == self.round && ending != Ending::Ignored {
            let latency = now.saturating_sub(operation.at);
            self.answers.push((ending == Ending::Success).then_some(latency));
        }
        if self.answers.len() < self.limit.max(10) as usize {
            return;
        }
        let count = self.answers.len();
        let failures = self.answers.iter().filter(|answer| answer.is_none()).count();
        // A failure counts as a response with latency 0, so failures do not raise the median.
        let mut latencies: Vec<u64> = self.answers.iter().map(|answer| answer.unwrap_or(0)).collect();
        latencies.sort_unstable();
        let median = latencies[(count - 1) / 2];
        if failures > count / 10 || median > self.setup.bound.nanos() {
            self.limit = (self.limit * 7 / 10).max(self.setup.least());
        } else if self.peak >= self.limit as usize {
            self.limit = (self.limit + 1).min(self.setup.most());
        }
        self.round += 1;
        self.answers.clear();
        self.peak = 0;
    }

    /// The limit on operations in flight.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The number of operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
