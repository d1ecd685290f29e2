//! An adaptive limit by its definition: all operations are remembered, and a round is judged by sorting its answers.

use arbitrary::Arbitrary;

use crate::oracle::limiter::Span;

/// One step of a random run.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum AdaptiveOp {
    /// An operation starts, if it may.
    Start,
    /// As many as may start.
    Fill,
    /// One of those in flight ends.
    End(u8, Ending),
    /// All in flight end.
    EndAll(Ending),
    /// Time passes.
    Advance(Span),
    /// The clock jumps back.
    JumpBack(Span),
}

/// How an operation ends.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Ending {
    Success,
    Failure,
    Ignored,
}

/// What a random run starts with.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct AdaptiveSetup {
    least: u8,
    above_least: u8,
    /// What is too slow.
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

/// The limit, and everything that ever happened in this round.
#[derive(Clone, Debug)]
pub struct OracleAimd {
    setup: AdaptiveSetup,
    limit: u32,
    in_flight: Vec<Operation>,
    round: u64,
    /// Latency, or a failure.
    answers: Vec<Option<u64>>,
    /// As many were in flight when one started, or was refused.
    peak: usize,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    round: u64,
    at: u64,
}

impl OracleAimd {
    /// Nothing in flight.
    #[must_use]
    pub fn new(setup: AdaptiveSetup) -> Self {
        let limit = u32::from(setup.start_at).max(setup.least()).min(setup.most());
        Self { setup, limit, in_flight: Vec::new(), round: 0, answers: Vec::new(), peak: 0 }
    }

    /// Whether one may start.
    pub fn start(&mut self, now: u64) -> bool {
        let free = self.in_flight.len() < self.limit as usize;
        if free {
            self.in_flight.push(Operation { round: self.round, at: now });
        }
        self.peak = self.peak.max(self.in_flight.len());
        free
    }

    /// The operation at that place in the list of those in flight ends; the last takes its place.
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
        // Failures are not slow.
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

    /// How many may be in flight.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// How many are.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
