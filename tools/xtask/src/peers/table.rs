//! The rows, their targets, and the runs that give their figures.

use super::Group;
use super::parties::Party::{
    self, ClientGo, ControllerRuntime, Dashmap, DelayQueue, Governor, GovernorFoldhash, Kube, LeakyBucket,
    Naive, Ours, OursBlocking, OursCollected, OursMultiThread, OursPure, OursView, OursWaited, Papaya,
    TimeRate,
};

/// What is asked of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// Of the ratio of ours to theirs.
    Ratio(f64),
    /// Of our figure, whatever theirs is.
    Ours(f64),
    /// Nothing: who does less, or is not whom the target is about, is shown in a row of his own.
    Shown,
}

/// One run of the programs, and the rows that its figures fill.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) groups: &'static [Group],
    pub(super) run: &'static [&'static str],
    /// The first is the row's; the others are shown beside it.
    pub(super) ours: &'static [Party],
    pub(super) peers: &'static [Party],
    pub(super) rows: &'static [Row],
    /// A run that takes long and hardly varies is not repeated as often.
    pub(super) most_rounds: usize,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) work: &'static str,
    pub(super) unit: &'static str,
    /// What the programs call the figure.
    pub(super) figure: &'static str,
    /// Whoever it is compared with, unless named in `beside`.
    target: Target,
    beside: &'static [(Party, Target)],
}

impl Row {
    pub(super) fn target(&self, peer: Party) -> Target {
        let own = self.beside.iter().find(|(party, _)| *party == peer);
        own.map_or(self.target, |(_, target)| *target)
    }
}

/// Nobody must be better than we are, and some by far not.
const fn ratio(
    work: &'static str,
    unit: &'static str,
    figure: &'static str,
    beside: &'static [(Party, Target)],
) -> Row {
    Row { work, unit, figure, target: Target::Ratio(1.0), beside }
}

/// A target of our own, whatever the others do.
const fn absolute(work: &'static str, unit: &'static str, figure: &'static str, most: f64) -> Row {
    Row { work, unit, figure, target: Target::Ours(most), beside: &[] }
}

/// Nothing is asked.
const fn shown(work: &'static str, unit: &'static str, figure: &'static str) -> Row {
    Row { work, unit, figure, target: Target::Shown, beside: &[] }
}

/// Asked beside client-go; kube-runtime has no index.
const fn indexed(
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
/// The recorded cluster needs all there is.
pub(super) const ALL_OF_IT: &[Group] = &[Group::Store, Group::Controller];

const THIRD: Target = Target::Ratio(1.0 / 3.0);
const HALF: Target = Target::Ratio(0.5);
const TENTH: Target = Target::Ratio(0.1);
const INDEXED: &[Party] = &[ClientGo, Kube];
const MAPS: &[Party] = &[Dashmap, Papaya, Kube, ClientGo];
const FIFO: &[Party] = &[ClientGo, ControllerRuntime, Naive];

/// The recorded cluster so many times side by side, as fast as it is taken.
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
                // Everybody at his own speed, so not the same load.
                shown(concat!("cluster-queued-p50", $row), "us", "p50"),
                shown(concat!("cluster-queued-p99", $row), "us", "p99"),
                shown(concat!("cluster-queued-longest", $row), "us", "max"),
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
        &[ratio("queue-cycle", "ns", "ns", &[(ClientGo, THIRD)])],
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
        // client-go's queues wake up every ten seconds: shorter would see that either not at all or too often.
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
        &[Ours, OursWaited, OursPure],
        &[Governor, LeakyBucket, TimeRate],
        &[ratio("limit-bucket", "ns", "ns", &[])],
    ),
    measurement(
        LIMIT,
        &["limit-keyed", "--keys=10000", "--adds=10000000"],
        // Shown, nothing asked: governor with a hasher of ours instead of its own.
        &[Ours, GovernorFoldhash],
        &[Governor],
        &[ratio("limit-keyed", "ns", "ns", &[])],
    ),
    Measurement {
        groups: LIMIT,
        // Two seconds of real time: governor's waits know no other.
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
        &[indexed("store-add", "ns", "ns", &[(ClientGo, THIRD)])],
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
        &[indexed("store-update", "ns", "ns", &[(ClientGo, HALF)])],
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
        // Shown: the same, all from one view.
        &[Ours, OursView],
        &[ClientGo, Kube, Dashmap, Papaya],
        &[indexed("store-get", "ns", "ns", &[(ClientGo, HALF)])],
    ),
    measurement(
        STORE,
        &["store-by-index", "--keys=100000", "--adds=100000"],
        // Shown: the same, with the objects handed out.
        &[Ours, OursCollected],
        INDEXED,
        &[indexed("store-by-index", "ns", "ns", &[(ClientGo, TENTH)])],
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
            // 330 000 a second.
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
            indexed("store-replace", "ms", "total", &[(ClientGo, THIRD)]),
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
    cluster!("", "1"),
    cluster!("-x5", "5"),
    cluster!("-x20", "20"),
];
