//! SHELL. Decides with seeded random numbers when to inject a fault, and counts the injected faults.
//!
//! | guarded by | |
//! |---|---|
//! | `Dice::throws`, `Fault::fired` | atomic counters; they guard no other data |

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::args::{Args, Faults};

/// Random numbers from a seed, shared by all tasks: splitmix64 (Steele, Lea and Flood 2014) applied to a common counter.
///
/// The seed determines the sequence of numbers, but the scheduler determines which task gets which number.
#[derive(Debug)]
struct Dice {
    seed: u64,
    throws: AtomicU64,
}

impl Dice {
    fn throw(&self) -> u64 {
        // Ordering: Relaxed; each throw only needs a unique number, and reads no other memory.
        let number = self.throws.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut z = self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// One kind of fault: the probability that it is injected at an opportunity, and the numbers of opportunities and of injected faults.
#[derive(Debug)]
struct Fault {
    /// The probability in units of 2^-32; 0 for a fault that is not selected.
    odds: u64,
    opportunities: AtomicU64,
    fired: AtomicU64,
}

impl Fault {
    fn new(odds: u64) -> Self {
        Self { odds, opportunities: AtomicU64::new(0), fired: AtomicU64::new(0) }
    }

    /// Decides whether to inject the fault now, and counts this call as an opportunity. A selected fault is always injected at the first opportunity,
    /// so that it occurs even in the shortest trace.
    fn is_due(&self, dice: &Dice) -> bool {
        // Ordering: Relaxed; a counter that publishes no other memory.
        self.odds > 0
            && (self.opportunities.fetch_add(1, Ordering::Relaxed) == 0 || dice.throw() >> 32 < self.odds)
    }

    fn fire(&self) {
        // Ordering: Relaxed; the counter is read after the tasks were joined.
        self.fired.fetch_add(1, Ordering::Relaxed);
    }

    fn fired(&self) -> u64 {
        // Ordering: Relaxed; see `fire`.
        self.fired.load(Ordering::Relaxed)
    }
}

/// The faults of one pass.
#[derive(Debug)]
pub(crate) struct Injector {
    dice: Dice,
    drops: Fault,
    gone: Fault,
    panics: Fault,
    failures: Fault,
}

/// How often each fault was injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Fired {
    pub(crate) drops: u64,
    pub(crate) gone: u64,
    pub(crate) panics: u64,
}

const ONE: u64 = 1 << 32;

/// The approximate number of times that watches are cut in a pass. It is lower for a trace with less than about 500 events. Compactions of the
/// history are half as frequent.
const CUTS: u64 = 64;

impl Injector {
    pub(crate) fn new(args: &Args, events: usize) -> Self {
        let per_event = |times: u64| (ONE * times / events.max(1) as u64).min(ONE / 8);
        let asked = |asked: bool, odds: u64| Fault::new(if asked { odds } else { 0 });
        let Args { faults, fail, seed, .. } = *args;
        Self {
            dice: Dice { seed, throws: AtomicU64::new(0) },
            drops: asked(faults.drops(), per_event(CUTS)),
            gone: asked(faults.gone(), per_event(CUTS / 2)),
            panics: asked(faults.panics(), ONE / 64),
            failures: asked(fail > 0, ONE / 100 * u64::from(fail)),
        }
    }

    /// Decides whether to cut a watch now, and counts the cut.
    pub(crate) fn cuts(&self) -> bool {
        let due = self.drops.is_due(&self.dice);
        if due {
            self.drops.fire();
        }
        due
    }

    /// Decides whether to compact the history now. This does not count the fault; call [`count_gone`](Self::count_gone) when a request fails because
    /// of a compaction.
    pub(crate) fn compacts(&self) -> bool {
        self.gone.is_due(&self.dice)
    }

    pub(crate) fn count_gone(&self) {
        self.gone.fire();
    }

    /// Decides whether a reconcile panics now, and counts the panic.
    pub(crate) fn panics(&self) -> bool {
        let due = self.panics.is_due(&self.dice);
        if due {
            self.panics.fire();
        }
        due
    }

    /// Decides whether a reconcile fails now.
    pub(crate) fn fails(&self) -> bool {
        self.failures.is_due(&self.dice)
    }

    /// Returns true with a probability of one half.
    pub(crate) fn coin(&self) -> bool {
        self.dice.throw() >> 63 == 0
    }

    pub(crate) fn fired(&self) -> Fired {
        Fired { drops: self.drops.fired(), gone: self.gone.fired(), panics: self.panics.fired() }
    }
}

impl Fired {
    /// Returns the name of the first selected fault that was never injected.
    pub(crate) fn missing(&self, asked: Faults) -> Option<&'static str> {
        [
            ("drops", asked.drops(), self.drops),
            ("gone", asked.gone(), self.gone),
            ("panics", asked.panics(), self.panics),
        ]
        .into_iter()
        .find_map(|(name, asked, fired)| (asked && fired == 0).then_some(name))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn injector(line: &str, events: usize) -> Injector {
        Injector::new(&Args::parse_from(line.split(' ')), events)
    }

    #[test]
    fn each_fault_strikes_at_the_first_opportunity_and_about_as_often_as_its_odds() {
        let injector = injector("replay --faults all --fail 20", 20_000);
        assert!(injector.cuts() && injector.panics() && injector.fails() && injector.compacts());
        let cuts = (1..20_000).filter(|_| injector.cuts()).count();
        assert!((32..=128).contains(&cuts), "{cuts} cuts");
        let fails = (1..20_000).filter(|_| injector.fails()).count();
        assert!((3_600..=4_400).contains(&fails), "{fails} failures of 20 % of 20 000");
        assert_eq!(injector.fired().drops, 1 + cuts as u64);
        assert_eq!(injector.fired().missing(Faults::All), Some("gone"), "no request failed with gone");
        injector.count_gone();
        assert_eq!(injector.fired().missing(Faults::All), None);
    }

    #[test]
    fn nothing_strikes_that_was_not_asked_for() {
        let injector = injector("replay", 100);
        assert!(
            (0..1_000)
                .all(|_| !(injector.cuts() || injector.compacts() || injector.panics() || injector.fails()))
        );
        assert_eq!(injector.fired().missing(Faults::None), None);
    }

    #[test]
    fn a_seed_fixes_the_sequence() {
        let due = |seed: u64| {
            let injector = injector(&format!("replay --fail 50 --seed {seed}"), 100);
            (0..64).map(|_| injector.fails()).collect::<Vec<_>>()
        };
        assert_eq!(due(7), due(7));
        assert_ne!(due(7), due(8));
    }
}
