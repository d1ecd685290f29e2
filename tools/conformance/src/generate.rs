//! PURE. Generates scripts from a seed.
//!
//! A script has few keys and few different delays, so that operations affect each other. Each script has its own weights for the operations: some
//! scripts consist mostly of delayed adds, others mostly of unpaired `done`s (swarm testing, Groce et al. 2012).

mod store;

use testkit::client_go::Rules;
use testkit::random::Random;

use self::store::StoreScript;
use crate::kind::{Answering, Kind};

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

const DELAYS: [u64; 11] = [0, 1, 2, 5, 10, 15, 20, 40, 100, 1000, 10_000];

const BASES: [u64; 6] = [1, 2, 5, 5, 10, 50];

const MOSTS: [u64; 5] = [40, 1000, 60_000, 1_000_000, 1_000_000];

/// The largest valid number of milliseconds.
const LONGEST: u64 = i64::MAX as u64 / 1_000_000;

const INVALID: [&str; 10] = [
    " ",
    "{",
    "[]",
    "null",
    "{\"op\":\"fly\",\"k\":\"a\"}",
    "{\"OP\":\"get\"}",
    "{\"op\":\"add\"}",
    "{\"op\":\"add_after\",\"k\":\"a\",\"ms\":-1}",
    "{\"op\":\"advance\",\"ms\":1.5}",
    "{\"op\":\"requeues\",\"k\":7}",
];

/// Generates the script with this number for a seed.
pub(crate) fn script(kind: Kind, seed: u64, number: u64) -> Vec<String> {
    // The seed is hashed first; otherwise `seed ^ number` would be the same for different pairs, for example (2, 3) and (3, 2).
    let mut random = Random::new(Random::new(seed).next() ^ number);
    match kind {
        Kind::Queue => QueueScript::new(&mut random).write(),
        Kind::Limiter => limiter(&mut random),
        Kind::Store => StoreScript::new(&mut random).write(),
    }
}

struct QueueScript<'a> {
    random: &'a mut Random,
    keys: &'static [&'static str],
    delays: Vec<u64>,
    lines: Vec<String>,
    /// Answers each line as soon as it has been generated. From the answers to `get`, the generator knows the leased keys, for which it generates
    /// most `done`s.
    reference: Box<dyn Answering>,
    held: Vec<String>,
    unpaired: bool,
}

/// Generates a line that fits the current state of the script.
type Writer<'a> = fn(&mut QueueScript<'a>) -> String;

impl<'a> QueueScript<'a> {
    fn new(random: &'a mut Random) -> Self {
        let keys = &KEYS[..1 + random.below(KEYS.len() as u64) as usize];
        let mut delays: Vec<u64> = (0..1 + random.below(4)).map(|_| pick(random, &DELAYS)).collect();
        let config = (!one_in(random, 4)).then(|| backoff(random));
        if one_in(random, 6) {
            // A delay that is close to the time after which failures expire. At its end, the failures of a key have either just expired or are about
            // to expire.
            let (_, most) = config.unwrap_or((5, 1_000_000));
            delays.push(most + most.max(600_000) + random.below(2));
        }
        let unpaired = one_in(random, 5);
        let reference = Kind::Queue.reference(Rules::ALL);
        let mut script =
            Self { random, keys, delays, lines: Vec::new(), reference, held: Vec::new(), unpaired };
        if let Some((base, most)) = config {
            script.push(format!(r#"{{"op":"config","base_ms":{base},"max_ms":{most}}}"#));
        }
        script
    }

    fn write(mut self) -> Vec<String> {
        let operations: [(u64, Writer<'a>); 9] = [
            (3, |script| script.of_key("add")),
            (4, Self::add_after),
            (3, |script| script.of_key("add_rate_limited")),
            (5, |_| op("get")),
            (4, Self::done),
            (1, |script| script.of_key("forget")),
            (4, Self::advance),
            (2, |_| op("len")),
            (1, |script| script.of_key("requeues")),
        ];
        let weights = operations.map(|(weight, _)| weight * pick(self.random, &[0, 1, 1, 1, 3]));
        let length = 1 + self.random.below(80);
        let end = one_in(self.random, 3).then(|| self.random.below(length));
        for at in 0..length {
            if end == Some(at) || one_in(self.random, 500) {
                self.push(op("shutdown"));
            }
            let line = match weighted(self.random, &weights) {
                _ if one_in(self.random, 300) => pick(self.random, &INVALID).to_owned(),
                _ if one_in(self.random, 100) => op("shutting_down"),
                Some(operation) => operations[operation].1(&mut self),
                None => op("get"),
            };
            self.push(line);
        }
        if one_in(self.random, 2) {
            self.look();
        }
        self.lines
    }

    /// Advances the clock, then generates more `get`s than there are keys, so that the answers show all Ready keys in their order.
    fn look(&mut self) {
        let advance = self.advance();
        self.lines.extend([advance, op("len")]);
        for _ in 0..=self.keys.len() {
            self.lines.push(op("get"));
        }
        let requeues = self.keys.iter().map(|key| format!(r#"{{"op":"requeues","k":"{key}"}}"#));
        self.lines.extend(requeues);
    }

    fn push(&mut self, line: String) {
        let answer = self.reference.answer(&line);
        if let Some(key) = answer.strip_prefix(r#"{"k":""#).and_then(|rest| rest.strip_suffix(r#""}"#)) {
            self.held.push(key.to_owned());
        }
        self.lines.push(line);
    }

    fn done(&mut self) -> String {
        if self.unpaired || self.held.is_empty() && one_in(self.random, 50) {
            return self.of_key("done");
        }
        if self.held.is_empty() {
            return op("get");
        }
        let key = self.held.swap_remove(self.random.below(self.held.len() as u64) as usize);
        format!(r#"{{"op":"done","k":"{key}"}}"#)
    }

    fn of_key(&mut self, op: &str) -> String {
        format!(r#"{{"op":"{op}","k":"{}"}}"#, pick(self.random, self.keys))
    }

    fn add_after(&mut self) -> String {
        let key = pick(self.random, self.keys);
        // Sometimes the delay is so long that it practically never ends.
        let delay = if one_in(self.random, 50) { long(self.random) } else { pick(self.random, &self.delays) };
        format!(r#"{{"op":"add_after","k":"{key}","ms":{delay}}}"#)
    }

    fn advance(&mut self) -> String {
        let delay = pick(self.random, &self.delays);
        // Often advances by a time that is not one of the delays, so that the clock may stop between two deadlines.
        let by = if one_in(self.random, 3) { self.random.below(delay + 3) } else { delay };
        format!(r#"{{"op":"advance","ms":{by}}}"#)
    }
}

fn limiter(random: &mut Random) -> Vec<String> {
    let keys = &KEYS[..1 + random.below(3) as usize];
    let mut lines = Vec::new();
    for _ in 0..1 + random.below(3) {
        if !one_in(random, 8) {
            lines.push(format!(r#"{{"op":"config",{}}}"#, limiter_config(random, 2)));
        }
        for _ in 0..random.below(50) {
            let key = pick(random, keys);
            lines.push(match random.below(100) {
                0 => pick(random, &INVALID).to_owned(),
                1..8 => format!(r#"{{"op":"forget","k":"{key}"}}"#),
                8..25 => format!(r#"{{"op":"requeues","k":"{key}"}}"#),
                _ => format!(r#"{{"op":"when","k":"{key}"}}"#),
            });
        }
    }
    lines
}

/// The members of a configuration object, without the braces.
fn limiter_config(random: &mut Random, depth: u64) -> String {
    match random.below(5 + depth) {
        0..3 => {
            let (base, most) = match random.below(4) {
                0 => (long(random), LONGEST),
                1 => (long(random), long(random)),
                _ => backoff(random),
            };
            format!(r#""kind":"exponential","base_ms":{base},"max_ms":{most}"#)
        }
        3 | 4 => {
            let (fast, slow) = (pick(random, &DELAYS), pick(random, &DELAYS));
            format!(r#""kind":"fast_slow","fast_ms":{fast},"slow_ms":{slow},"fast":{}"#, random.below(6))
        }
        _ => {
            let of: Vec<_> = (0..random.below(4))
                .map(|_| format!("{{{}}}", limiter_config(random, depth.saturating_sub(1))))
                .collect();
            format!(r#""kind":"max_of","of":[{}]"#, of.join(","))
        }
    }
}

/// The first and the longest delay of a backoff; sometimes an invalid pair.
fn backoff(random: &mut Random) -> (u64, u64) {
    match random.below(40) {
        0 => (0, pick(random, &MOSTS)),
        1 => (pick(random, &MOSTS) + 1, pick(random, &MOSTS)),
        _ => {
            let base = pick(random, &BASES);
            (base, base.max(pick(random, &MOSTS)))
        }
    }
}

/// Returns a random valid number of milliseconds below a random bound. In half of the calls, the bound is at least an eighth of `LONGEST`; in the
/// other half, it has any order of magnitude.
fn long(random: &mut Random) -> u64 {
    let magnitudes = if one_in(random, 2) { 4 } else { u64::from(LONGEST.ilog2()) };
    let most = LONGEST >> random.below(magnitudes);
    random.below(most) | 1
}

fn op(op: &str) -> String {
    format!(r#"{{"op":"{op}"}}"#)
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

fn one_in(random: &mut Random, n: u64) -> bool {
    random.below(n) == 0
}

fn weighted(random: &mut Random, weights: &[u64]) -> Option<usize> {
    let all: u64 = weights.iter().sum();
    let mut at = random.below(all.max(1));
    weights.iter().position(|weight| {
        let here = at < *weight;
        at = at.saturating_sub(*weight);
        here
    })
}
