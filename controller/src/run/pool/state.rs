//! PURE. How many workers there are, within bounds.
//!
//! As long as all of them are busy, another one comes; and whoever has had nothing to do for a while goes, if he may. So at
//! each moment somebody is free for the next key, or the crew is as large as it may be; and nobody looks at a clock or at the
//! backlog to find that out.
//!
//! # Invariants
//! 1. `least <= workers <= most`, once it has [begun](Crew::begin).
//! 2. Somebody is idle, or `workers == most`. A worker is idle from the moment at which he is wanted.
//! 3. `idle <= workers`, and `wanted <= idle`.
//!
//! Hence, once all are idle, the crew shrinks to `least`: whoever was kept because he was the only idle one is one, those who
//! were kept because there were no more than `least` were so when nobody had been wanted since, and all others go in time.

/// The workers of a controller, by number.
#[derive(Debug)]
pub(crate) struct Crew {
    least: usize,
    most: usize,
    workers: usize,
    /// Those who wait for a key, or are about to.
    idle: usize,
    /// Those who are to be started.
    wanted: usize,
}

impl Crew {
    /// At least one, and no fewer at most than at least.
    pub(crate) fn new(least: usize, most: usize) -> Self {
        Self { least, most, workers: 0, idle: 0, wanted: 0 }
    }

    /// Whether there is anything to decide.
    pub(crate) fn is_elastic(&self) -> bool {
        self.least < self.most
    }

    pub(crate) fn begin(&mut self) {
        (self.workers, self.idle, self.wanted) = (self.least, self.least, self.least);
    }

    /// How many are to be started now.
    pub(crate) fn hire(&mut self) -> usize {
        std::mem::take(&mut self.wanted)
    }

    /// An idle one takes a key; whether another one is wanted for that.
    pub(crate) fn takes(&mut self) -> bool {
        self.idle -= 1;
        let wanted = self.idle == 0 && self.workers < self.most;
        if wanted {
            self.workers += 1;
            self.idle += 1;
            self.wanted += 1;
        }
        wanted
    }

    /// A busy one is done with his key; whether he may go if no other one comes for a while.
    pub(crate) fn rests(&mut self) -> bool {
        self.idle += 1;
        self.is_large()
    }

    /// Whether there are more than have to be.
    pub(crate) fn is_large(&self) -> bool {
        self.workers > self.least
    }

    /// No key has come to an idle one for a while; whether he goes.
    pub(crate) fn leaves(&mut self) -> bool {
        // The only idle one is kept for the next key.
        let leaves = self.is_large() && self.idle > 1;
        if leaves {
            self.workers -= 1;
            self.idle -= 1;
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker as the shell has him: busy, or idle and, if so, whether he may still go.
    #[derive(Clone, Copy, PartialEq)]
    enum Worker {
        Busy,
        Idle { may_leave: bool },
    }

    fn idle(workers: &[Worker]) -> usize {
        workers.iter().filter(|worker| **worker != Worker::Busy).count()
    }

    #[test]
    fn it_stays_within_its_bounds_and_shrinks_when_all_rest() {
        let mut random = 1_u64;
        let mut below = |bound: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % bound
        };
        let (mut largest, mut left) = (0, 0);
        for life in 0..2_000 {
            let least = 1 + life % 3;
            let most = least + life % 5;
            let mut crew = Crew::new(least, most);
            crew.begin();
            let mut workers = Vec::new();
            for _ in 0..below(200) {
                for _ in 0..crew.hire() {
                    workers.push(Worker::Idle { may_leave: crew.is_large() });
                }
                assert!((least..=most).contains(&workers.len()), "1");
                assert_eq!((crew.workers, crew.idle), (workers.len(), idle(&workers)));
                assert!(crew.idle > 0 || crew.workers == most, "2");
                largest = largest.max(workers.len() - least);
                let one = below(workers.len());
                match &mut workers[one] {
                    worker @ Worker::Busy => *worker = Worker::Idle { may_leave: crew.rests() },
                    Worker::Idle { may_leave } if *may_leave && below(2) == 0 => match crew.leaves() {
                        true => drop((workers.remove(one), left += 1)),
                        false => *may_leave = false,
                    },
                    worker => {
                        *worker = Worker::Busy;
                        let grew = crew.takes();
                        assert_eq!(grew, crew.wanted == 1);
                    }
                }
            }
            // All come to rest, and wait for long.
            for _ in 0..crew.hire() {
                workers.push(Worker::Idle { may_leave: crew.is_large() });
            }
            for worker in workers.iter_mut().filter(|worker| **worker == Worker::Busy) {
                *worker = Worker::Idle { may_leave: crew.rests() };
            }
            while let Some(one) = workers.iter().position(|of| *of == Worker::Idle { may_leave: true }) {
                match crew.leaves() {
                    true => drop(workers.remove(one)),
                    false => workers[one] = Worker::Idle { may_leave: false },
                }
            }
            assert_eq!((crew.workers, workers.len()), (least, least), "of {least} to {most}");
        }
        assert_eq!(largest, 4, "they never were as many as they may be");
        assert!(left > 1_000, "hardly anybody left: {left}");
    }
}
