//! The command line: the run, the party (the implementation to measure) and the sizes.

use std::process::exit;

use benches::naive_port::NaivePort;
use clap::{Parser, ValueEnum};
use flyball_workqueue::Queue;

use crate::delaying::{ByKey, Ours};
use crate::keys::Key;
use crate::{
    Figures, allocations, contended, controller, delay, fifo, handover, idle, informer, latency, lateness,
    limit, store, waiters,
};

/// Runs one measurement and prints its figures as one JSON object.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    run: Run,
    /// The implementation to measure.
    #[arg(long = "who", default_value = "ours")]
    party: Party,
    /// Distinct keys, objects, or waiters.
    #[arg(long, default_value_t = 1000)]
    pub(crate) keys: usize,
    /// Total number of adds, failures or checks.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) adds: usize,
    /// Number of producers; the number of consumers is the same.
    #[arg(long, default_value_t = 1)]
    pub(crate) sides: usize,
    /// Percentage of the adds whose key is queued already, or of the listed objects that are newer than the stored ones.
    #[arg(long, default_value_t = 0)]
    pub(crate) percent: usize,
    /// Adds per second.
    #[arg(long, default_value_t = 50_000)]
    pub(crate) rate: usize,
    /// Indexes of a store: 0, 1, 2 or 4.
    #[arg(long, default_value_t = 2)]
    pub(crate) indexes: usize,
    /// Duration of the measurement in seconds.
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Duration of a reconcile or of a handler call, in milliseconds.
    #[arg(long, default_value_t = 0)]
    pub(crate) work: u64,
    /// Threads of the runtime of the controller or informer; 0: one per core.
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Run {
    Cycle,
    CyclePriority,
    WorkerCycle,
    WorkerCycleFull,
    AddDuplicate,
    FillDrain,
    Mixed,
    Contended,
    Latency,
    Bytes,
    Allocations,
    DelayAdd,
    DelayBytes,
    Lateness,
    Handover,
    Idle,
    LimitDefault,
    LimitBucket,
    LimitKeyed,
    LimitWaiters,
    StoreAdd,
    StoreUpdate,
    StoreGet,
    StoreByIndex,
    StoreList,
    StoreBeside,
    StoreReplace,
    StoreBytes,
    StoreOperations,
    StoreReaders,
    ControllerThroughput,
    ControllerPaced,
    ControllerOverload,
    InformerEvents,
    InformerSlowHandler,
    InformerLateJoin,
    InformerRelist,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Party {
    /// flyball's queue. If a run waits for the queue in a task, its runtime has one thread.
    Ours,
    /// flyball's queue on a runtime of several threads.
    OursMultiThread,
    /// flyball's queue without a runtime; a thread blocks while it waits for a key.
    OursBlocking,
    /// The pure state machine, for a caller with its own lock or a single owner.
    OursPure,
    /// A straightforward port of client-go's queue and limiters to Rust.
    Naive,
    /// tokio-util's `DelayQueue` with a map by key.
    DelayQueue,
    /// kube-runtime's scheduler.
    Kube,
    Governor,
    /// Governor's keyed limiter with flyball's hasher.
    GovernorFoldhash,
    LeakyBucket,
    /// A store whose lookup collects the objects into a vector.
    OursCollected,
    /// One snapshot of a store.
    OursView,
    Dashmap,
    Papaya,
}

impl Options {
    pub(crate) fn run(&self) -> Figures {
        match (self.run, self.party) {
            (Run::Cycle, Party::Ours) => fifo::cycle::<Queue<Key>>(self),
            (Run::Cycle, Party::Naive) => fifo::cycle::<NaivePort<Key>>(self),
            (Run::CyclePriority, Party::Ours) => fifo::cycle_priority(self),
            (Run::WorkerCycle, Party::Ours) => fifo::worker_cycle(self),
            (Run::WorkerCycle, Party::Naive) => fifo::cycle::<NaivePort<Key>>(self),
            (Run::WorkerCycleFull, Party::Ours) => fifo::worker_cycle_full(self),
            (Run::AddDuplicate, Party::Ours) => fifo::add_duplicate::<Queue<Key>>(self),
            (Run::AddDuplicate, Party::Naive) => fifo::add_duplicate::<NaivePort<Key>>(self),
            (Run::FillDrain, Party::Ours) => fifo::fill_drain::<Queue<Key>>(self),
            (Run::FillDrain, Party::Naive) => fifo::fill_drain::<NaivePort<Key>>(self),
            (Run::Mixed, Party::Ours) => fifo::mixed::<Queue<Key>>(self),
            (Run::Mixed, Party::Naive) => fifo::mixed::<NaivePort<Key>>(self),
            (Run::Contended, Party::Ours) => contended::contended::<Queue<Key>>(self),
            (Run::Contended, Party::Naive) => contended::contended::<NaivePort<Key>>(self),
            (Run::Latency, Party::Ours) => latency::latency::<Queue<Key>>(self),
            (Run::Latency, Party::Naive) => latency::latency::<NaivePort<Key>>(self),
            (Run::Bytes, Party::Ours) => allocations::bytes::<Queue<Key>>(self),
            (Run::Bytes, Party::Naive) => allocations::bytes::<NaivePort<Key>>(self),
            (Run::Allocations, Party::Ours) => allocations::allocations::<Queue<Key>>(self),
            (Run::Allocations, Party::Naive) => allocations::allocations::<NaivePort<Key>>(self),
            (Run::DelayAdd, Party::Ours) => delay::add::<Ours>(self),
            (Run::DelayAdd, Party::DelayQueue) => delay::add::<ByKey>(self),
            (Run::DelayBytes, Party::Ours) => delay::bytes::<Ours>(self),
            (Run::DelayBytes, Party::DelayQueue) => delay::bytes::<ByKey>(self),
            (
                Run::Lateness,
                party @ (Party::Ours
                | Party::OursMultiThread
                | Party::OursBlocking
                | Party::DelayQueue
                | Party::Kube),
            ) => lateness::lateness(self, party),
            (
                Run::Handover,
                party @ (Party::Ours | Party::OursMultiThread | Party::OursBlocking | Party::Kube),
            ) => handover::handover(self, party),
            (Run::Idle, Party::Ours) => idle::idle(self),
            (Run::LimitDefault, party @ (Party::Ours | Party::Naive)) => limit::default(self, party),
            (
                Run::LimitBucket,
                party @ (Party::Ours | Party::OursPure | Party::Naive | Party::Governor | Party::LeakyBucket),
            ) => limit::bucket(self, party),
            (Run::LimitKeyed, party @ (Party::Ours | Party::Governor | Party::GovernorFoldhash)) => {
                limit::keyed(self, party)
            }
            (Run::LimitWaiters, party @ (Party::Ours | Party::Governor | Party::LeakyBucket)) => {
                waiters::waiters(self, party)
            }
            (run, party) => {
                let other = || controller::run(self, run, party).or_else(|| informer::run(self, run, party));
                store::run(self, run, party).or_else(other).unwrap_or_else(|| {
                    eprintln!("error: {party:?} has no {run:?}");
                    exit(2);
                })
            }
        }
    }
}
