//! The rows, their targets, and the runs that measure them.

use super::Group;
use super::parties::Party::{
    self, ClientGo, ControllerRuntime, Dashmap, DelayQueue, Governor, GovernorFoldhash, Kube, LeakyBucket,
    Naive, Ours, OursBlocking, OursCollected, OursMultiThread, OursPure, OursView, Papaya, TimeRate,
};

/// The target of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// The maximum ratio of flyball's result to that of the peer.
    Ratio(f64),
    /// The maximum result of flyball, which does not depend on the result of the peer.
    Ours(f64),
    /// No target, because the peer does less work, or because the target does not apply to it. The name of the row then contains that of the peer.
    Shown,
}

/// One run of the programs, and the rows for its results.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) groups: &'static [Group],
    pub(super) run: &'static [&'static str],
    /// The variants of flyball to run. The first one is compared with the peers; the results of the others are only shown.
    pub(super) ours: &'static [Party],
    pub(super) peers: &'static [Party],
    pub(super) rows: &'static [Row],
    /// The maximum number of rounds. There are few rounds if a run takes a long time and its results vary little.
    pub(super) most_rounds: usize,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) work: &'static str,
    pub(super) unit: &'static str,
    /// The name of the result in the output of the programs.
    pub(super) figure: &'static str,
    /// The target for the peers that are not in `beside`.
    target: Target,
    beside: &'static [(Party, Target)],
}

impl Row {
    pub(super) fn target(&self, peer: Party) -> Target {
        let own = self.beside.iter().find(|(party, _)| *party == peer);
        own.map_or(self.target, |(_, target)| *target)
    }
}

/// A row whose target is that flyball is at least as good as each peer, except for the peers in `beside`, which have targets of their own.
const fn ratio(
    work: &'static str,
    unit: &'static str,
    figure: &'static str,
    beside: &'static [(Party, Target)],
) -> Row {
    Row { work, unit, figure, target: Target::Ratio(1.0), beside }
}

/// A row with a target for the result of flyball alone.
const fn absolute(work: &'static str, unit: &'static str, figure: &'static str, most: f64) -> Row {
    Row { work, unit, figure, target: Target::Ours(most), beside: &[] }
}

/// A row without a target.
const fn shown(work: &'static str, unit: &'static str, figure: &'static str) -> Row {
    Row { work, unit, figure, target: Target::Shown, beside: &[] }
}

/// A row with targets for some peers only.
const fn asked_beside(
    work: &'static str,
    unit: &'static str,
    figure: &'static str,
    beside: &'static [(Party, Target)],
) -> Row {
    Row { work, unit, figure, target: Target::Shown, beside }
}

const fn measurement(
    groups: &'static [Group],
    run: &'static [&'static str],
    ours: &'static [Party],
    peers: &'static [Party],
    rows: &'static [Row],
) -> Measurement {
    Measurement { groups, run, ours, peers, rows, most_rounds: usize::MAX }
}

const QUEUE: &[Group] = &[Group::Queue];
const DELAY: &[Group] = &[Group::Delay];
const LIMIT: &[Group] = &[Group::Limit];
const STORE: &[Group] = &[Group::Store];
const INFORMER: &[Group] = &[Group::Informer];
const CONTROLLER: &[Group] = &[Group::Controller];
/// The groups that contain the replay of the recorded cluster, which uses all layers.
pub(super) const ALL_OF_IT: &[Group] = &[Group::Store, Group::Controller];

const THIRD: Target = Target::Ratio(1.0 / 3.0);
const HALF: Target = Target::Ratio(0.5);
const INDEXED: &[Party] = &[ClientGo, Kube];
const MAPS: &[Party] = &[Dashmap, Papaya, Kube, ClientGo];
const AS_CLIENT_GO: &[(Party, Target)] = &[(ClientGo, Target::Ratio(1.0))];
const AS_KUBE: &[(Party, Target)] = &[(Kube, Target::Ratio(1.0))];
const CONTROLLERS: &[Party] = &[ClientGo, Kube];
const FIFO: &[Party] = &[ClientGo, ControllerRuntime, Naive];

/// Replays several copies of the recorded cluster at the same time, as fast as the informers process the events.
macro_rules! cluster {
    ($row:literal, $copies:literal) => {
        measurement(
            ALL_OF_IT,
            &["cluster", "--seconds=5", concat!("--scale=", $copies)],
            &[Ours],
            &[ClientGo],
            &[
                ratio(concat!("cluster", $row), "ns/event", "ns", &[(ClientGo, THIRD)]),
                ratio(concat!("cluster-cpu", $row), "ns/event", "cpu", &[]),
                ratio(concat!("cluster-peak-memory", $row), "MiB", "peak", &[]),
                // These rows have no targets, because the latencies cannot be compared: each implementation runs at its full speed, so each has a
                // different load.
                shown(concat!("cluster-queued-p50", $row), "us", "p50"),
                shown(concat!("cluster-queued-p99", $row), "us", "p99"),
                shown(concat!("cluster-queued-longest", $row), "us", "max"),
            ],
        )
    };
}

/// Like `cluster`, but at a fixed speed of about 42 000 events per second on average. The events come in bursts, as they were recorded.
macro_rules! cluster_paced {
    ($row:literal, $copies:literal, $speed:literal) => {
        measurement(
            CONTROLLER,
            &["cluster", "--seconds=2", concat!("--scale=", $copies), concat!("--speed=", $speed)],
            &[Ours],
            &[ClientGo],
            &[
                ratio(concat!("cluster-latency-p50", $row), "us", "p50", &[]),
                ratio(concat!("cluster-latency-p99", $row), "us", "p99", &[]),
                ratio(concat!("cluster-longest-wait", $row), "us", "max", &[]),
                ratio(concat!("cluster-paced-cpu", $row), "ns/event", "cpu", &[]),
            ],
        )
    };
}

/// Sends changes to a number of listeners, as fast as the watch stream accepts them.
macro_rules! informer_events {
    ($listeners:literal) => {
        measurement(
            INFORMER,
            &["informer-events", "--keys=100000", "--adds=300000", concat!("--sides=", $listeners)],
            &[Ours],
            CONTROLLERS,
            &[
                ratio(concat!("informer-events-", $listeners), "ns/event", "ns", &[]),
                ratio(concat!("informer-events-cpu-", $listeners), "ns/event", "cpu", &[]),
            ],
        )
    };
}

/// Measures how much work the controller itself needs per reconcile: changes are sent as fast as they are reconciled.
macro_rules! controller_throughput {
    ($name:literal, $workers:literal) => {
        measurement(
            CONTROLLER,
            &["controller-throughput", "--keys=10000", "--adds=300000", concat!("--sides=", $workers)],
            &[Ours],
            CONTROLLERS,
            &[
                ratio(concat!("controller-throughput-", $name), "ns/reconcile", "ns", &[]),
                ratio(concat!("controller-cpu-", $name), "ns/reconcile", "cpu", &[]),
            ],
        )
    };
}

/// Measures the latency of the controller at a fixed rate of changes, which every compared implementation can sustain.
macro_rules! controller_latency {
    ($name:literal, $workers:literal) => {
        measurement(
            CONTROLLER,
            &[
                "controller-paced",
                "--keys=10000",
                "--rate=20000",
                "--seconds=2",
                concat!("--sides=", $workers),
            ],
            &[Ours],
            CONTROLLERS,
            &[
                ratio(concat!("controller-latency-p50-", $name), "us", "p50", &[]),
                ratio(concat!("controller-latency-p99-", $name), "us", "p99", &[]),
                ratio(concat!("controller-longest-wait-", $name), "us", "max", &[]),
            ],
        )
    };
}

/// Measures the latency of reconciles that sleep, with half of the workers busy on average. There is no target for client-go: its queue is FIFO, like
/// the queue of flyball, so the time that keys wait depends only on the load.
macro_rules! controller_busy {
    ($name:literal, $workers:literal, $rate:literal) => {
        measurement(
            CONTROLLER,
            &[
                "controller-paced",
                "--keys=10000",
                concat!("--rate=", $rate),
                "--work=10",
                "--seconds=3",
                concat!("--sides=", $workers),
            ],
            &[Ours],
            CONTROLLERS,
            &[
                asked_beside(concat!("controller-busy-p50-", $name), "us", "p50", AS_KUBE),
                asked_beside(concat!("controller-busy-p99-", $name), "us", "p99", AS_KUBE),
                asked_beside(concat!("controller-busy-longest-wait-", $name), "us", "max", AS_KUBE),
            ],
        )
    };
}

pub(super) const MEASUREMENTS: &[Measurement] = &[
    measurement(
        QUEUE,
        &["cycle", "--keys=1000", "--adds=2000000"],
        &[Ours],
        FIFO,
        &[ratio("queue-cycle", "ns", "ns", &[(ClientGo, Target::Ratio(0.5))])],
    ),
    measurement(
        QUEUE,
        &["worker-cycle", "--keys=1000", "--adds=2000000"],
        &[Ours],
        &[ClientGo, Naive],
        &[ratio("queue-worker-cycle", "ns", "ns", &[(ClientGo, THIRD)])],
    ),
    measurement(
        QUEUE,
        &["worker-cycle-full", "--keys=1000", "--adds=2000000"],
        &[Ours],
        &[ClientGo],
        &[ratio("queue-worker-cycle-full", "ns", "ns", &[(ClientGo, Target::Ratio(0.6))])],
    ),
    measurement(
        QUEUE,
        &["cycle-priority", "--keys=1000", "--adds=1000000"],
        &[Ours],
        &[ControllerRuntime],
        &[ratio("queue-cycle-priority", "ns", "ns", &[(ControllerRuntime, Target::Ratio(1.0 / 8.0))])],
    ),
    measurement(
        QUEUE,
        &["add-duplicate", "--keys=1000", "--adds=5000000"],
        &[Ours],
        FIFO,
        &[ratio("queue-add-duplicate", "ns", "ns", &[])],
    ),
    measurement(
        QUEUE,
        &["fill-drain", "--keys=1000000"],
        &[Ours],
        FIFO,
        &[
            ratio("queue-fill-1m", "ns", "fill", &[(ClientGo, Target::Ratio(0.25))]),
            ratio("queue-drain-1m", "ns", "drain", &[(ClientGo, Target::Ratio(0.25))]),
        ],
    ),
    measurement(
        QUEUE,
        &["contended", "--sides=4", "--keys=100000", "--adds=2000000"],
        &[Ours],
        &[ClientGo, Naive],
        &[ratio("queue-contended-4x4", "ns", "ns", &[(ClientGo, Target::Ratio(0.5))])],
    ),
    measurement(
        QUEUE,
        &["contended", "--sides=8", "--keys=1000000", "--adds=2000000"],
        &[Ours],
        &[ClientGo, Naive],
        &[ratio("queue-contended-8x8", "ns", "ns", &[])],
    ),
    measurement(
        QUEUE,
        &["contended", "--sides=8", "--keys=100", "--adds=5000000"],
        &[Ours],
        &[ClientGo, Naive],
        &[ratio("queue-contended-8x8-hot", "ns", "ns", &[])],
    ),
    measurement(
        QUEUE,
        &["bytes", "--keys=1000000"],
        &[Ours],
        FIFO,
        &[absolute("queue-bytes", "bytes/key", "bytes", 40.0)],
    ),
    measurement(
        QUEUE,
        &["allocations", "--keys=1000"],
        &[Ours],
        FIFO,
        &[absolute("queue-allocations", "allocations/cycle", "allocations", 0.0)],
    ),
    measurement(
        DELAY,
        &["delay-add", "--keys=1000000"],
        &[Ours],
        &[ClientGo, DelayQueue],
        &[ratio("delay-add-1m", "ns", "ns", &[(ClientGo, Target::Ratio(1.0 / 6.0))])],
    ),
    measurement(
        DELAY,
        &["delay-bytes", "--keys=1000000"],
        &[Ours],
        &[ClientGo, DelayQueue],
        &[absolute("delay-bytes", "bytes/key", "bytes", 56.0)],
    ),
    measurement(
        DELAY,
        &["lateness", "--keys=100000"],
        &[OursBlocking, Ours, OursMultiThread],
        &[ClientGo, DelayQueue, Kube],
        &[absolute("delay-lateness-p99", "us", "p99", 1200.0)],
    ),
    measurement(
        DELAY,
        &["handover", "--keys=2000"],
        &[Ours, OursMultiThread, OursBlocking],
        &[Kube, ClientGo],
        &[absolute("handover-p50", "us", "p50", 20.0), absolute("handover-p99", "us", "p99", 50.0)],
    ),
    Measurement {
        groups: DELAY,
        // client-go's queues wake up every ten seconds. A run of less than ten seconds would include one wake-up or none, depending on when it
        // starts.
        run: &["idle", "--keys=10000", "--seconds=10"],
        ours: &[Ours],
        peers: &[ClientGo, ControllerRuntime],
        rows: &[
            absolute("idle-10k-queues", "cpu ms/s", "cpu", 0.0),
            absolute("idle-10k-queues", "tasks", "tasks", 0.0),
            absolute("idle-10k-queues", "threads", "threads", 0.0),
        ],
        most_rounds: 3,
    },
    measurement(
        LIMIT,
        &["limit-default", "--keys=10000", "--adds=5000000"],
        &[Ours],
        &[ClientGo, Naive],
        &[ratio("limit-default", "ns", "ns", &[(ClientGo, Target::Ratio(0.25))])],
    ),
    measurement(
        LIMIT,
        &["limit-bucket", "--adds=20000000"],
        &[Ours, OursPure],
        &[Governor, LeakyBucket, TimeRate],
        &[ratio("limit-bucket", "ns", "ns", &[])],
    ),
    measurement(
        LIMIT,
        &["limit-keyed", "--keys=10000", "--adds=10000000"],
        // `GovernorFoldhash` is governor with flyball's hasher instead of its own. It is only shown, and has no target.
        &[Ours, GovernorFoldhash],
        &[Governor],
        &[ratio("limit-keyed", "ns", "ns", &[])],
    ),
    Measurement {
        groups: LIMIT,
        // This run takes two seconds of real time, because governor's waits do not support virtual time.
        run: &["limit-waiters", "--keys=100"],
        ours: &[Ours],
        peers: &[Governor, LeakyBucket],
        rows: &[
            absolute("limit-waiters", "polls", "polls", 200.0),
            absolute("limit-waiters", "overtaken", "overtaken", 0.0),
        ],
        most_rounds: 3,
    },
    measurement(
        STORE,
        &["store-add", "--keys=100000", "--adds=500000"],
        &[Ours],
        INDEXED,
        &[asked_beside("store-add", "ns", "ns", &[(ClientGo, Target::Ratio(0.65))])],
    ),
    measurement(
        STORE,
        &["store-add", "--keys=100000", "--adds=500000", "--indexes=0"],
        &[Ours],
        MAPS,
        &[shown("store-add-no-index", "ns", "ns")],
    ),
    measurement(
        STORE,
        &["store-update", "--keys=100000", "--adds=500000"],
        &[Ours],
        INDEXED,
        &[asked_beside("store-update", "ns", "ns", &[(ClientGo, Target::Ratio(0.9))])],
    ),
    measurement(
        STORE,
        &["store-update", "--keys=100000", "--adds=500000", "--indexes=0"],
        &[Ours],
        MAPS,
        &[shown("store-update-no-index", "ns", "ns")],
    ),
    measurement(
        STORE,
        &["store-get", "--keys=100000", "--sides=8", "--adds=4000000"],
        // `OursView` makes all reads from one snapshot. It is only shown, and has no target.
        &[Ours, OursView],
        &[ClientGo, Kube, Dashmap, Papaya],
        &[asked_beside("store-get", "ns", "ns", &[(ClientGo, Target::Ratio(1.8))])],
    ),
    measurement(
        STORE,
        &["store-by-index", "--keys=100000", "--adds=100000"],
        // `OursCollected` collects the objects into a vector. It is only shown, and has no target.
        &[Ours, OursCollected],
        INDEXED,
        &[asked_beside("store-by-index", "ns", "ns", &[(ClientGo, Target::Ratio(0.11))])],
    ),
    measurement(
        STORE,
        &["store-list", "--keys=100000", "--adds=200"],
        &[Ours],
        INDEXED,
        &[
            absolute("store-list", "us, the snapshot", "snapshot", 1.0),
            absolute("store-list", "ns/object", "walk", 10.0),
            shown("store-list-read", "ns/object", "read"),
        ],
    ),
    measurement(
        STORE,
        &["store-beside", "--keys=100000", "--adds=1000000", "--seconds=3"],
        &[Ours],
        INDEXED,
        &[
            // 330 000 updates per second.
            absolute("store-write-beside-lister", "us/update", "us", 3.03),
            absolute("store-write-beside-lister", "times alone", "times", 2.0),
            absolute("store-write-beside-lister-p999", "us", "p999", 50.0),
        ],
    ),
    measurement(
        STORE,
        &["store-replace", "--keys=100000", "--indexes=4", "--percent=100", "--adds=5"],
        &[Ours],
        INDEXED,
        &[
            absolute("store-replace", "us blocked", "blocked", 100.0),
            asked_beside("store-replace", "ms", "total", &[(ClientGo, HALF)]),
        ],
    ),
    measurement(
        STORE,
        &["store-replace", "--keys=100000", "--indexes=4", "--percent=0", "--adds=5"],
        &[Ours],
        INDEXED,
        &[shown("store-replace-unchanged", "ms", "total")],
    ),
    measurement(
        STORE,
        &["store-bytes", "--keys=100000"],
        &[Ours],
        INDEXED,
        &[absolute("store-bytes", "bytes/object", "bytes", 120.0)],
    ),
    informer_events!("1"),
    informer_events!("4"),
    informer_events!("16"),
    measurement(
        INFORMER,
        &["informer-relist", "--keys=100000", "--percent=100"],
        &[Ours],
        CONTROLLERS,
        &[
            ratio("informer-relist-100k", "ms", "ms", &[]),
            ratio("informer-relist-100k-memory", "MiB more", "grown", &[]),
        ],
    ),
    measurement(
        INFORMER,
        &["informer-relist", "--keys=100000", "--percent=0"],
        &[Ours],
        CONTROLLERS,
        &[
            ratio("informer-relist-100k-unchanged", "ms", "ms", &[]),
            ratio("informer-relist-100k-unchanged-memory", "MiB more", "grown", &[]),
        ],
    ),
    measurement(
        INFORMER,
        &["informer-slow-handler", "--keys=10000", "--rate=20000", "--seconds=3", "--work=1"],
        &[Ours],
        CONTROLLERS,
        &[
            ratio("informer-slow-handler-p50", "us", "p50", &[]),
            ratio("informer-slow-handler-p99", "us", "p99", &[]),
            ratio("informer-slow-handler-longest", "us", "max", &[]),
            // There is no target for kube-runtime: when one listener is slow, kube-runtime makes all listeners wait, so it needs no memory for
            // pending events.
            asked_beside("informer-slow-handler-memory", "MiB more", "grown", AS_CLIENT_GO),
        ],
    ),
    measurement(
        INFORMER,
        &["informer-late-join", "--keys=100000", "--rate=20000", "--seconds=3"],
        &[Ours],
        &[ClientGo],
        &[
            ratio("informer-late-join", "ms", "joined", &[]),
            ratio("informer-late-join-others-p50", "us", "p50", &[]),
            ratio("informer-late-join-others-p99", "us", "p99", &[]),
            ratio("informer-late-join-others-longest", "us", "max", &[]),
        ],
    ),
    cluster!("", "1"),
    cluster!("-x5", "5"),
    cluster!("-x20", "20"),
    cluster_paced!("", "1", "200"),
    cluster_paced!("-x5", "5", "40"),
    cluster_paced!("-x20", "20", "10"),
    controller_throughput!("1", "1"),
    controller_throughput!("10", "10"),
    controller_throughput!("100", "100"),
    controller_throughput!("unbounded", "0"),
    controller_latency!("1", "1"),
    controller_latency!("10", "10"),
    controller_latency!("100", "100"),
    controller_latency!("unbounded", "0"),
    controller_busy!("1", "1", "50"),
    controller_busy!("10", "10", "500"),
    controller_busy!("100", "100", "5000"),
    controller_busy!("unbounded", "0", "5000"),
    measurement(
        CONTROLLER,
        // Most of this latency is spent in the API server.
        &["kubernetes", "latency", "--rate=50", "--seconds=20"],
        &[Ours],
        &[Kube],
        &[
            ratio("kube-latency-p50", "us", "p50", &[]),
            ratio("kube-latency-p99", "us", "p99", &[]),
            shown("kube-latency-longest", "us", "max"),
        ],
    ),
    measurement(
        CONTROLLER,
        &["kubernetes", "sync"],
        &[Ours],
        &[Kube],
        &[
            ratio("kube-sync-10k", "ms", "time", &[]),
            ratio("kube-cpu-10k", "ms", "cpu", &[]),
            ratio("kube-memory-10k", "MiB", "memory", &[]),
        ],
    ),
    measurement(
        CONTROLLER,
        // The load is twice the capacity: 400 reconciles per second, each of which takes 49 ms, with ten workers.
        &["controller-overload", "--keys=400", "--work=49", "--seconds=6", "--sides=10"],
        &[Ours],
        CONTROLLERS,
        &[
            ratio("controller-overload-p99", "us", "p99", &[]),
            ratio("controller-overload-longest-wait", "us", "max", &[]),
            ratio("controller-overload-cpu", "ns/reconcile", "cpu", &[]),
        ],
    ),
];
