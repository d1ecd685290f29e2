//! Seeded random cases. A run that fails prints its seed; set `FLYBALL_SEED` to this seed to repeat the run.
//!
//! A case is a byte string, as in a fuzz target, and `arbitrary` decodes it to operations. So a failing case can be stored as a corpus file, and can
//! be shrunk by removing bytes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A small, fast, seedable generator (splitmix64, Steele, Lea and Flood 2014). Do not use it to generate secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next random number; all values of `u64` are equally likely.
    #[expect(clippy::should_implement_trait, reason = "a stream without an end needs no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// Panics if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a bound must be positive");
        self.next() % bound
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// Runs `case` on `cases` random byte strings of 1 to `max_len` bytes.
///
/// The environment variable `FLYBALL_SEED` sets the seed, and `FLYBALL_CASES` sets the number of cases. `FLYBALL_FIRST_SEED` is the seed if
/// `FLYBALL_SEED` is not set.
///
/// # Panics
/// Panics if a case panics. Before it panics, it removes bytes as long as the case still fails, and prints the seed and the remaining bytes. The
/// panic message is that of the shortened case.
pub fn cases(name: &str, cases: u64, max_len: usize, case: impl Fn(&[u8])) {
    let seed = env("FLYBALL_SEED").unwrap_or_else(first_seed);
    cases_of(seed, name, env("FLYBALL_CASES").unwrap_or(cases), max_len, case);
}

/// Like [`cases`], but divides the cases among several threads, one per core, each of which has its own seed. If `FLYBALL_SEED` is set, a single
/// thread runs all cases.
///
/// # Panics
/// Panics like [`cases`].
pub fn cases_in_parallel(name: &str, most: u64, max_len: usize, case: impl Fn(&[u8]) + Sync) {
    if env("FLYBALL_SEED").is_some() {
        return cases(name, most, max_len, case);
    }
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let share = env("FLYBALL_CASES").unwrap_or(most).div_ceil(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let case = &case;
            scope.spawn(move || cases_of(first_seed() + thread, name, share, max_len, case));
        }
    });
}

/// The seed of the first thread. A repeated run of a long test sets another one.
fn first_seed() -> u64 {
    env("FLYBALL_FIRST_SEED").unwrap_or(0x5EED)
}

fn cases_of(seed: u64, name: &str, cases: u64, max_len: usize, case: impl Fn(&[u8])) {
    let mut random = Random::new(seed);
    for number in 0..cases {
        let len = 1 + random.below(max_len as u64) as usize;
        let bytes = random.bytes(len);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(&bytes))) {
            let shortest = shrink(bytes, &case);
            eprintln!(
                "{name}: case {number} of seed FLYBALL_SEED={seed} failed; shortest bytes: {shortest:?}"
            );
            case(&shortest);
            resume_unwind(panic);
        }
    }
}

/// Removes bytes from a failing case as long as it still fails: first from its end, then up to four bytes at any position.
fn shrink(mut bytes: Vec<u8>, case: &impl Fn(&[u8])) -> Vec<u8> {
    let fails = |bytes: &[u8]| catch_unwind(AssertUnwindSafe(|| case(bytes))).is_err();
    let mut step = bytes.len() / 2;
    while step > 0 {
        while bytes.len() > step && fails(&bytes[..bytes.len() - step]) {
            bytes.truncate(bytes.len() - step);
        }
        step /= 2;
    }
    // Most operations consist of several bytes. When one operation is removed, others may become unnecessary, so this is repeated until nothing
    // changes.
    let mut before = usize::MAX;
    while bytes.len() < before {
        before = bytes.len();
        for few in (1..=4).rev() {
            let mut at = 0;
            while at + few <= bytes.len() {
                let mut shorter = bytes.clone();
                shorter.drain(at..at + few);
                if fails(&shorter) {
                    bytes = shorter;
                } else {
                    at += 1;
                }
            }
        }
    }
    bytes
}

/// Whether `FLYBALL_CASES` sets the number of cases. If so, a test cannot expect that each case occurs with its usual frequency.
#[must_use]
pub fn cases_are_chosen() -> bool {
    env("FLYBALL_CASES").is_some()
}

/// Whether a test should run all of its cases. This is so in an optimised build, and if `FLYBALL_THOROUGH` is set; otherwise, a test runs only some
/// of its cases.
#[must_use]
pub fn thorough() -> bool {
    !cfg!(debug_assertions) || std::env::var_os("FLYBALL_THOROUGH").is_some()
}

fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, not {text:?}")))
}
