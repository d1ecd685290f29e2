//! The three ways to run the body of a model, one per build.

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
pub(crate) use native::{once, run};
#[cfg(flyball_loom)]
pub(crate) use under_loom::{once, run};
#[cfg(flyball_shuttle)]
pub(crate) use under_shuttle::{once, run};

/// The results of an exhaustive exploration.
#[derive(Debug)]
pub(crate) struct Explored {
    /// The number of runs of the body.
    pub(crate) interleavings: u64,
    /// The largest number of threads in one interleaving, including the main thread.
    pub(crate) threads: usize,
    /// The bound on preemptions; `None` means unbounded.
    pub(crate) preemptions: Option<usize>,
    /// The wall-clock time.
    pub(crate) seconds: f64,
    /// Whether no interleaving is left. Only an exploration with a time limit can be incomplete.
    pub(crate) complete: bool,
    /// Whether the recorded floors are checked. The run of a seeded fault does not check them, because only the fault itself may make the model fail.
    pub(crate) floors_apply: bool,
}

/// The position of a body among those of its model.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(flyball_loom, flyball_shuttle)),
    expect(dead_code, reason = "only the model checkers need it")
)]
pub(crate) struct Body {
    /// Its index, from 0.
    pub(crate) at: usize,
    /// The number of bodies.
    pub(crate) of: usize,
}

impl Explored {
    /// Adds up the results of two explorations.
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            interleavings: self.interleavings + other.interleavings,
            threads: self.threads.max(other.threads),
            seconds: self.seconds + other.seconds,
            complete: self.complete && other.complete,
            ..self
        }
    }
}

#[cfg(not(any(flyball_loom, flyball_shuttle)))]
mod native {
    use super::{Body, Explored};
    use crate::Model;

    pub(crate) fn run(_: &Model, _: Body, body: impl Fn() + Send + Sync + 'static) -> Option<Explored> {
        body();
        None
    }

    pub(crate) fn once(body: impl Fn() + Send + Sync + 'static) {
        body();
    }
}

#[cfg(flyball_loom)]
mod under_loom {
    use std::io::{self, Write};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Once};
    use std::time::{Duration, Instant};
    use std::{env, panic};

    use super::{Body, Explored};
    use crate::checkpoint::Checkpoint;
    use crate::{Model, thread};

    /// The largest number of preemptions, unless `LOOM_MAX_PREEMPTIONS` is set.
    const PREEMPTIONS: usize = 3;
    /// The largest number of scheduling points in one interleaving, unless `LOOM_MAX_BRANCHES` is set.
    const BRANCHES: usize = 10_000;

    pub(crate) fn run(_: &Model, at: Body, body: impl Fn() + Send + Sync + 'static) -> Option<Explored> {
        let mut builder = loom::model::Builder::new();
        if env::var_os("LOOM_MAX_BRANCHES").is_none() {
            builder.max_branches = BRANCHES;
        }
        builder.preemption_bound = match env::var_os("FLYBALL_MODEL_UNBOUNDED") {
            Some(_) => None,
            None => Some(builder.preemption_bound.unwrap_or(PREEMPTIONS)),
        };
        // If an exploration stops at a cap, loom returns in the same way as after a complete exploration. So the runner sets no cap other than its own
        // time limit, and then decides by itself whether the exploration is complete.
        builder.max_permutations = None;
        let limit = time_limit(at);
        builder.max_duration = limit;
        builder.checkpoint_interval = INTERVAL;
        let mut checkpoint = Checkpoint::open(at);
        builder.checkpoint_file = checkpoint.as_ref().map(Checkpoint::working_file);
        if let Some(explored) =
            checkpoint.as_ref().and_then(|checkpoint| checkpoint.complete(builder.preemption_bound))
        {
            return Some(explored);
        }

        print_panics_plainly();
        // `count` is std's atomic, not the model's, because counting must not add a scheduling point.
        let count = Arc::new(AtomicU64::new(0));
        let counter = count.clone();
        thread::reset_count();
        #[expect(
            clippy::disallowed_methods,
            reason = "measures the exploration; nothing waits for the clock"
        )]
        let started = Instant::now();
        builder.check(move || {
            // Ordering: Relaxed; loom runs all threads of a model on this thread.
            counter.fetch_add(1, Ordering::Relaxed);
            thread::start_interleaving();
            body();
        });
        // Ordering: Relaxed, because the same thread has counted.
        let interleavings = count.load(Ordering::Relaxed);
        let elapsed = started.elapsed();
        // Loom looks at the time only before an interleaving whose number, from 1, is a multiple of the interval. An exploration that ends just there
        // by itself counts as incomplete, and the next run completes it.
        let at_interval = (interleavings + 1).is_multiple_of(INTERVAL as u64);
        let mut explored = Explored {
            interleavings,
            threads: thread::most(),
            preemptions: builder.preemption_bound,
            seconds: elapsed.as_secs_f64(),
            complete: !(at_interval && limit.is_some_and(|limit| elapsed >= limit)),
            floors_apply: env::var_os("FLYBALL_MODEL_FAULT").is_none(),
        };
        if let Some(checkpoint) = &mut checkpoint {
            checkpoint.store(&mut explored);
        }
        Some(explored)
    }

    /// The number of interleavings between two checks of the time.
    const INTERVAL: usize = 1_000;

    /// The share of the model's time limit, `FLYBALL_MODEL_SECONDS`, for one of its bodies.
    fn time_limit(at: Body) -> Option<Duration> {
        let seconds = env::var("FLYBALL_MODEL_SECONDS").ok()?;
        let seconds: u32 = seconds.parse().expect("FLYBALL_MODEL_SECONDS must be a whole number");
        Some(Duration::from_secs(seconds.into()) / at.of as u32)
    }

    /// Prints panics without a backtrace. If a model deadlocks, a destructor panics a second time, and for this panic std's hook prints a backtrace
    /// regardless of the environment. This may overflow the small stack of a model's thread. The overflow is treated as a panic that unwinds without
    /// releasing the locks of the output, and the test harness then waits for these locks forever.
    fn print_panics_plainly() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| panic::set_hook(Box::new(|info| _ = writeln!(io::stderr(), "\n{info}"))));
    }

    pub(crate) fn once(body: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.max_branches = BRANCHES;
        builder.check(body);
    }

    #[cfg(test)]
    mod tests {
        use loom::sync::atomic::{AtomicUsize, Ordering};

        use super::*;

        const MODEL: Model = Model { name: "engine::tests", threads: 2, floor: 1, catches: "" };

        #[test]
        fn interleavings_and_threads_are_counted() {
            let explored = run(&MODEL, Body { at: 0, of: 1 }, || {
                let shared = Arc::new(AtomicUsize::new(0));
                let theirs = shared.clone();
                let other = thread::spawn(move || theirs.fetch_add(1, Ordering::SeqCst));
                shared.fetch_add(1, Ordering::SeqCst);
                other.join().unwrap();
                assert_eq!(shared.load(Ordering::SeqCst), 2);
            });
            let explored = explored.unwrap();
            assert!(explored.interleavings > 1, "{explored:?}");
            assert_eq!(explored.threads, 2);
        }

        #[test]
        #[should_panic(expected = "lost update")]
        fn a_lost_update_is_found() {
            run(&MODEL, Body { at: 0, of: 1 }, || {
                let shared = Arc::new(AtomicUsize::new(0));
                let theirs = shared.clone();
                let other =
                    thread::spawn(move || theirs.store(theirs.load(Ordering::SeqCst) + 1, Ordering::SeqCst));
                shared.store(shared.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
                other.join().unwrap();
                assert_eq!(shared.load(Ordering::SeqCst), 2, "lost update");
            });
        }

        #[test]
        #[expect(clippy::disallowed_types, reason = "the test needs a lock that loom does not see")]
        fn what_loom_cannot_see_is_one_interleaving() {
            let explored = run(&MODEL, Body { at: 0, of: 1 }, || {
                let other = thread::spawn(|| std::sync::Mutex::new(1).into_inner());
                assert!(other.join().unwrap().is_ok());
            });
            assert_eq!(explored.unwrap().interleavings, 1);
        }
    }
}

#[cfg(flyball_shuttle)]
mod under_shuttle {
    use std::env;
    use std::sync::Arc;

    use shuttle::Runner;
    use shuttle::scheduler::{PctScheduler, RandomScheduler};

    use super::{Body, Explored};
    use crate::Model;

    /// The number of schedules of each kind, unless `FLYBALL_SHUTTLE_ITERATIONS` is set.
    const ITERATIONS: usize = 10_000;
    /// The depth of PCT: the number of scheduling constraints that a fault may need to appear.
    const DEPTH: usize = 3;
    /// Shuttle's default is 32 KiB, too small for an unoptimised build.
    const STACK: usize = 256 * 1024;

    pub(crate) fn run(model: &Model, at: Body, body: impl Fn() + Send + Sync + 'static) -> Option<Explored> {
        let iterations = match env::var("FLYBALL_SHUTTLE_ITERATIONS") {
            Ok(text) => text.parse().expect("FLYBALL_SHUTTLE_ITERATIONS must be a whole number"),
            Err(_) => ITERATIONS,
        };
        // The schedules are divided among the bodies of the model.
        let iterations = iterations.div_ceil(at.of);
        let mut config = shuttle::Config::new();
        config.stack_size = STACK;
        let body = Arc::new(body);
        let again = body.clone();
        Runner::new(RandomScheduler::new(iterations), config.clone()).run(move || again());
        // PCT panics if a body has no concurrency.
        if model.threads > 1 {
            Runner::new(PctScheduler::new(DEPTH, iterations), config).run(move || body());
        }
        None
    }

    pub(crate) fn once(body: impl Fn() + Send + Sync + 'static) {
        let mut config = shuttle::Config::new();
        config.stack_size = STACK;
        Runner::new(RandomScheduler::new(1), config).run(body);
    }
}

/// Not under loom, whose locks panic once they are poisoned.
#[cfg(all(test, not(flyball_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use flyball_sync::locks::{Mutex, RwLock};

    #[test]
    fn a_panic_under_a_lock_does_not_poison_it() {
        super::once(|| {
            let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _guards = (mutex.lock(), lock.write());
                panic!("a panic while both locks are held");
            }));
            assert!(panicked.is_err());
            assert_eq!(mutex.try_lock().map(|guard| *guard), Some(1));
            assert_eq!(*mutex.lock(), 1);
            assert_eq!(*lock.read(), 1);
            assert_eq!(*lock.write(), 1);
            let held = mutex.lock();
            assert!(mutex.try_lock().is_none());
            drop(held);
            assert_eq!(mutex.into_inner(), 1);
        });
    }
}
