//! EDGE. The simulation, which runs a controller and its environment on one thread. A seed determines the order of the steps, and the test advances
//! the time.
//!
//! Cancel safety: dropping the simulation drops all of its tasks.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Informer, InformerBuildError, InformerBuilder, Source};
use flyball_sync::locks::Mutex;
use flyball_sync::{Clock, ManualClock, ManualTimer};
use flyball_workqueue::{Key, Order, QueueLimiter, Timer};

use super::runtime::Simulated;
use super::scheduler::Scheduler;
use super::{SimulatedTask, SimulatedTime};
use crate::{Action, BatchConfig, Context, Controller, RunError, RunReport};

/// Runs a controller and its environment on one thread. A seed determines the order of the steps, and the test advances the time.
///
/// Informers, workers and all futures that are [spawned](Self::spawn) are tasks. These tasks run within
/// [`run_until_stalled`](Self::run_until_stalled) and [`advance`](Self::advance), one step after another. The seed determines which task runs next,
/// so two runs with the same seed are identical. Only [`advance`](Self::advance) moves the simulated time. Queues and reconciles must use the
/// simulated time: build queues with [`timer`](Self::timer), seed them with [`next_random`](Self::next_random), and let reconciles sleep with
/// [`SimulatedTime::sleep`]. Timers of a real runtime do not follow the simulated time.
///
/// The controller catches panics in reconciles, as usual; a panic in any other task propagates to the call that ran it.
///
/// # Examples
/// Tests a reconciler that assigns an address to every pod, while the network is slow and requests fail:
/// ```
/// use flyball_controller::testing::Simulation;
/// use flyball_controller::{Action, Controller, ControllerConfig};
/// use flyball_informer_cache::testing::TestServer;
/// use flyball_informer_cache::{Informer, Schema, SourceErrorKind, Version};
/// use flyball_ratelimit::Exponential;
/// use flyball_workqueue::Queue;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
///
/// #[derive(Clone)]
/// struct Pod { name: &'static str, address: Option<u32>, version: Version }
/// const PODS: Schema<&str, Pod> = Schema::new(|pod: &Pod| pod.name, |pod| pod.version);
///
/// // Under a hundred orders of events; a failure names its seed.
/// Simulation::explore(100, |sim| {
///     let server = TestServer::new(PODS, |pod, _, version| pod.version = version);
///     server.set_latency(sim.clock(), Duration::from_millis(20));
///     let pods = sim.informer(Informer::builder(PODS, server.clone())).unwrap();
///
///     let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(60));
///     let queue = Queue::builder().limiter(backoff).timer(sim.timer()).seed(sim.next_random()).build();
///     let config = ControllerConfig { workers: 2.into(), ..ControllerConfig::default() };
///     let controller = Controller::new(queue).watches(&pods, |change| *change.key()).with_config(config);
///     let (cluster, time, answers) = (server.clone(), sim.time(), AtomicU32::new(sim.next_random() as u32 % 2));
///     sim.run(controller, move |name, _| {
///         let (pods, cluster, time) = (pods.clone(), cluster.clone(), time.clone());
///         let refused = answers.fetch_add(1, Ordering::Relaxed) % 3 == 0;
///         async move {
///             let Some(pod) = pods.store().get(&name) else { return Ok(Action::await_change()) };
///             if pod.address.is_none() {
///                 time.sleep(Duration::from_millis(300)).await; // asks for an address
///                 if refused { return Err("no address is free") }
///                 cluster.update(&name, |pod| pod.address = Some(7));
///             }
///             Ok(Action::await_change())
///         }
///     });
///
///     server.put(Pod { name: "a", address: None, version: Version::ZERO });
///     sim.advance(Duration::from_millis(100));
///     server.break_watches(SourceErrorKind::Other);
///     server.put(Pod { name: "b", address: None, version: Version::ZERO });
///     sim.advance(Duration::from_secs(60));
///     assert!(server.objects().iter().all(|pod| pod.address == Some(7)));
/// });
/// ```
pub struct Simulation {
    scheduler: Arc<Scheduler>,
    seed: u64,
    busy_clock: bool,
}

impl Simulation {
    /// Creates a simulation with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { scheduler: Arc::new(Scheduler::new(seed)), seed, busy_clock: false }
    }

    /// Runs the test with each seed from 1 to `seeds`. If the test panics, prints the seed.
    ///
    /// If the environment variable `FLYBALL_SEED` is set, only that seed runs, which repeats a failed run. `FLYBALL_CASES` overrides the number of
    /// seeds, and `FLYBALL_FIRST_SEED` the first seed.
    ///
    /// # Panics
    /// Panics if the test panics, or if one of these variables is not a number.
    pub fn explore(seeds: u64, test: impl Fn(&mut Self)) {
        let number = |name| {
            let text = std::env::var(name).ok()?;
            Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, not {text:?}")))
        };
        let seeds = match number("FLYBALL_SEED") {
            Some(seed) => seed..=seed,
            None => {
                let first: u64 = number("FLYBALL_FIRST_SEED").unwrap_or(1);
                first..=first.saturating_add(number("FLYBALL_CASES").unwrap_or(seeds)).saturating_sub(1)
            }
        };
        for seed in seeds {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&mut Self::new(seed)))) {
                eprintln!("this was seed {seed}: FLYBALL_SEED={seed} repeats it");
                resume_unwind(panic);
            }
        }
    }

    /// Returns the seed of this run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the next random number of the run, uniform over `u64`. Use it to seed a queue, or for random choices in the test.
    pub fn next_random(&self) -> u64 {
        self.scheduler.random()
    }

    /// Returns the clock of the simulation. Only [`advance`](Self::advance) may move this clock; do not call the clock's own methods for that.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.scheduler.clock
    }

    /// Returns a new timer on the clock of the simulation, for a queue.
    #[must_use]
    pub fn timer(&self) -> ManualTimer {
        self.scheduler.clock.timer()
    }

    /// Returns the simulated time, for reconciles.
    #[must_use]
    pub fn time(&self) -> SimulatedTime {
        SimulatedTime::new(self.scheduler.clock.clone())
    }

    /// Sets whether time passes while tasks are still ready, as on a machine under load. If it does, several deadlines may pass before a ready task
    /// runs. By default the clock moves only when all tasks are stalled.
    ///
    /// # Examples
    /// ```
    /// use flyball_controller::testing::Simulation;
    /// use std::time::Duration;
    ///
    /// Simulation::explore(100, |sim| {
    ///     sim.set_busy_clock(true);
    ///     let (time, working) = (sim.time(), sim.time());
    ///     let deadline = sim.spawn(async move { time.sleep(Duration::from_secs(2)).await });
    ///     let work = sim.spawn(async move { working.sleep(Duration::from_secs(1)).await });
    ///     sim.run_until_stalled(); // both sleep
    ///     sim.advance(Duration::from_secs(3));
    ///     assert!(deadline.is_finished() && work.is_finished()); // in either order
    /// });
    /// ```
    pub fn set_busy_clock(&mut self, busy_clock: bool) {
        self.busy_clock = busy_clock;
    }

    /// Returns the number of steps so far. A step polls one task, or drops an aborted task.
    #[must_use]
    pub fn poll_count(&self) -> u64 {
        self.scheduler.steps()
    }

    /// Spawns the future as a task of this simulation.
    ///
    /// # Examples
    /// ```
    /// use flyball_controller::testing::{SimulatedTask, SimulatedTime, Simulation};
    /// use flyball_controller::Nanos;
    /// use std::time::Duration;
    ///
    /// let mut sim = Simulation::new(1);
    /// let time: SimulatedTime = sim.time();
    /// let task: SimulatedTask<Nanos> = sim.spawn(async move {
    ///     time.sleep(Duration::from_secs(60)).await;
    ///     time.now()
    /// });
    /// sim.run_until_stalled();
    /// assert!(!task.is_finished() && task.take_output().is_none());
    ///
    /// sim.advance(Duration::from_secs(60));
    /// assert_eq!(task.take_output(), Some(Nanos::ZERO + Duration::from_secs(60)));
    /// println!("{} polls with seed {}", sim.poll_count(), sim.seed());
    /// ```
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> SimulatedTask<T> {
        let output = Arc::new(Mutex::new(None));
        let slot = output.clone();
        let id = self.scheduler.spawn(Box::pin(async move {
            let output = future.await;
            *slot.lock() = Some(output);
        }));
        SimulatedTask::new(self.scheduler.clone(), id, output)
    }

    /// Builds an informer with a seed and the time of this simulation, and runs the informer as a task.
    ///
    /// # Errors
    /// Like [`InformerBuilder::build`].
    pub fn informer<K, V, S, T>(
        &self,
        builder: InformerBuilder<K, V, S, T>,
    ) -> Result<Informer<K, V>, InformerBuildError>
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: Source<Object = V>,
    {
        let (informer, run) = builder.timer(self.timer()).seed(self.next_random()).build()?;
        self.spawn(run);
        Ok(informer)
    }

    /// Runs the controller; see [`Controller::run`]. Its workers are tasks, and its timeouts use the simulated time.
    pub fn run<K, O, L, T, F, R, E>(
        &self,
        controller: Controller<K, O, L, T>,
        reconcile: F,
    ) -> SimulatedTask<Result<RunReport<K>, RunError>>
    where
        K: Key,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
        F: Fn(K, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.spawn(controller.run_on(Simulated(self.scheduler.clone()), reconcile))
    }

    /// Runs the controller with batches; see [`Controller::run_batches`].
    pub fn run_batches<K, O, L, T, G, F, R, E>(
        &self,
        controller: Controller<K, O, L, T>,
        batches: BatchConfig<K, G>,
        reconcile: F,
    ) -> SimulatedTask<Result<RunReport<K>, RunError>>
    where
        K: Key,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
        G: Key,
        F: Fn(Vec<K>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<Result<Action, E>>, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
    {
        self.spawn(controller.run_batches_on(Simulated(self.scheduler.clone()), batches, reconcile))
    }

    /// Runs every task until all are stalled. The clock does not move.
    ///
    /// # Panics
    /// Panics if the tasks never stall, or if a task other than a reconcile panics.
    #[track_caller]
    pub fn run_until_stalled(&mut self) {
        for _ in 0..1_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("a million steps did not stall the tasks: they wake each other without waiting for time");
    }

    /// Advances the clock by `time`, from one alarm to the next. After each alarm all tasks run until they are stalled, unless [the clock is
    /// busy](Self::set_busy_clock).
    ///
    /// # Panics
    /// Like [`run_until_stalled`](Self::run_until_stalled).
    #[track_caller]
    pub fn advance(&mut self, time: Duration) {
        let clock = self.scheduler.clock.clone();
        let end = clock.now() + time;
        loop {
            match self.busy_clock {
                false => self.run_until_stalled(),
                // Runs a random number of steps, possibly none, and at most until all tasks are stalled.
                true => while self.next_random() % 8 != 0 && self.step() {},
            }
            match clock.next_alarm().filter(|alarm| *alarm <= end) {
                Some(alarm) => clock.set(alarm.max(clock.now())),
                None => break,
            }
        }
        clock.set(end);
        self.run_until_stalled();
    }

    fn step(&self) -> bool {
        self.scheduler.step(self.seed % 2 == 1)
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.scheduler.clear();
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Simulation");
        debug.field("seed", &self.seed).field("now", &self.clock().now()).field("steps", &self.poll_count());
        debug.finish_non_exhaustive()
    }
}
