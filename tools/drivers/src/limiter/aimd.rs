//! Applies the same operations to an adaptive limit and its oracle. The random test, the corpus test and the fuzz target use this driver.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{AimdLimit, Outcome, Started};
use flyball_sync::Nanos;
use testkit::oracle::aimd::{AdaptiveOp, AdaptiveSetup, Ending, OracleAimd};

/// Decodes `bytes` to a configuration and operations, and compares the limit with its oracle after every operation.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(setup) = AdaptiveSetup::arbitrary(&mut input) else { return };
    let bound = Duration::from_nanos(setup.bound.nanos());
    let mut pair = Pair {
        real: AimdLimit::new(setup.least()..=setup.most(), bound).initial_limit(setup.start_at.into()),
        oracle: OracleAimd::new(setup),
        held: Vec::new(),
        now: 0,
    };
    for _ in 0..200 {
        let Ok(op) = AdaptiveOp::arbitrary(&mut input) else { break };
        pair.step(op);
        pair.real.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        assert_eq!(pair.real.limit(), pair.oracle.limit(), "limit after {op:?}");
        assert_eq!(pair.real.in_flight() as usize, pair.oracle.in_flight(), "in flight after {op:?}");
        if input.is_empty() {
            break;
        }
    }
}

struct Pair {
    real: AimdLimit,
    oracle: OracleAimd,
    held: Vec<Started>,
    now: u64,
}

impl Pair {
    fn step(&mut self, op: AdaptiveOp) {
        match op {
            AdaptiveOp::Start => _ = self.start(),
            AdaptiveOp::Fill => while self.start() {},
            AdaptiveOp::End(which, ending) => {
                if !self.held.is_empty() {
                    self.end(usize::from(which) % self.held.len(), ending);
                }
            }
            AdaptiveOp::EndAll(ending) => {
                while !self.held.is_empty() {
                    self.end(0, ending);
                }
            }
            AdaptiveOp::Advance(span) => self.now += span.finite(),
            AdaptiveOp::JumpBack(span) => self.now = self.now.saturating_sub(span.finite()),
        }
    }

    fn start(&mut self) -> bool {
        let started = self.real.start(Nanos::new(self.now));
        assert_eq!(started.is_some(), self.oracle.start(self.now), "started");
        let may = started.is_some();
        self.held.extend(started);
        may
    }

    fn end(&mut self, which: usize, ending: Ending) {
        let outcome = match ending {
            Ending::Success => Outcome::Success,
            Ending::Failure => Outcome::Failure,
            Ending::Ignored => Outcome::Ignored,
        };
        self.real.end(self.held.swap_remove(which), outcome, Nanos::new(self.now));
        self.oracle.end(which, ending, self.now);
    }
}
