//! The rows, their targets, and the runs that give their figures.

use super::Group::{self, Delay, Queue};
use super::parties::Party::{
    self, ClientGo, ControllerRuntime, DelayQueue, Kube, Naive, Ours, OursBlocking, OursMultiThread,
};

/// What is asked of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// Of the ratio of ours to theirs.
    Ratio(f64),
    /// Of our figure, whatever theirs is.
    Ours(f64),
}

/// One run of the programs, and the rows that its figures fill.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) group: Group,
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
    /// By peer; whoever is not named must not be better than we are.
    pub(super) targets: &'static [(Party, Target)],
}

impl Row {
    pub(super) fn target(&self, peer: Party) -> Target {
        let own = self.targets.iter().find(|(party, _)| *party == peer);
        own.map_or(Target::Ratio(1.0), |(_, target)| *target)
    }
}

const fn row(
    work: &'static str,
    unit: &'static str,
    figure: &'static str,
    targets: &'static [(Party, Target)],
) -> Row {
    Row { work, unit, figure, targets }
}

const fn measurement(
    group: Group,
    run: &'static [&'static str],
    ours: &'static [Party],
    peers: &'static [Party],
    rows: &'static [Row],
) -> Measurement {
    Measurement { group, run, ours, peers, rows, most_rounds: usize::MAX }
}

const THIRD: Target = Target::Ratio(1.0 / 3.0);
const FIFO: &[Party] = &[ClientGo, ControllerRuntime, Naive];

pub(super) const MEASUREMENTS: &[Measurement] = &[
    measurement(
        Queue,
        &["cycle", "--keys=1000", "--adds=2000000"],
        &[Ours],
        FIFO,
        &[row("queue-cycle", "ns", "ns", &[(ClientGo, THIRD)])],
    ),
    measurement(
        Queue,
        &["add-duplicate", "--keys=1000", "--adds=5000000"],
        &[Ours],
        FIFO,
        &[row("queue-add-duplicate", "ns", "ns", &[])],
    ),
    measurement(
        Queue,
        &["fill-drain", "--keys=1000000"],
        &[Ours],
        FIFO,
        &[
            row("queue-fill-1m", "ns", "fill", &[(ClientGo, Target::Ratio(0.25))]),
            row("queue-drain-1m", "ns", "drain", &[(ClientGo, Target::Ratio(0.25))]),
        ],
    ),
    measurement(
        Queue,
        &["contended", "--sides=4", "--keys=100000", "--adds=2000000"],
        &[Ours],
        &[ClientGo, Naive],
        &[row("queue-contended-4x4", "ns", "ns", &[(ClientGo, Target::Ratio(0.5))])],
    ),
    measurement(
        Queue,
        &["contended", "--sides=8", "--keys=1000000", "--adds=2000000"],
        &[Ours],
        &[ClientGo, Naive],
        &[row("queue-contended-8x8", "ns", "ns", &[])],
    ),
    measurement(
        Queue,
        &["contended", "--sides=8", "--keys=100", "--adds=5000000"],
        &[Ours],
        &[ClientGo, Naive],
        &[row("queue-contended-8x8-hot", "ns", "ns", &[])],
    ),
    measurement(
        Queue,
        &["bytes", "--keys=1000000"],
        &[Ours],
        FIFO,
        &[row("queue-bytes", "bytes/key", "bytes", &[(ClientGo, Target::Ours(40.0))])],
    ),
    measurement(
        Queue,
        &["allocations", "--keys=1000"],
        &[Ours],
        FIFO,
        &[row("queue-allocations", "allocations/cycle", "allocations", &[(ClientGo, Target::Ours(0.0))])],
    ),
    measurement(
        Delay,
        &["delay-add", "--keys=1000000"],
        &[Ours],
        &[ClientGo, DelayQueue],
        &[row("delay-add-1m", "ns", "ns", &[(ClientGo, Target::Ratio(1.0 / 6.0))])],
    ),
    measurement(
        Delay,
        &["delay-bytes", "--keys=1000000"],
        &[Ours],
        &[ClientGo, DelayQueue],
        &[row(
            "delay-bytes",
            "bytes/key",
            "bytes",
            &[(ClientGo, Target::Ours(56.0)), (DelayQueue, Target::Ours(56.0))],
        )],
    ),
    measurement(
        Delay,
        &["lateness", "--keys=100000"],
        &[OursBlocking, Ours, OursMultiThread],
        &[ClientGo, DelayQueue, Kube],
        &[row(
            "delay-lateness-p99",
            "us",
            "p99",
            &[(ClientGo, Target::Ours(1200.0)), (DelayQueue, Target::Ours(1200.0))],
        )],
    ),
    measurement(
        Delay,
        &["handover", "--keys=2000"],
        &[Ours, OursMultiThread, OursBlocking],
        &[Kube, ClientGo],
        &[
            row("handover-p50", "us", "p50", &[(Kube, Target::Ours(20.0))]),
            row("handover-p99", "us", "p99", &[(Kube, Target::Ours(50.0))]),
        ],
    ),
    Measurement {
        group: Delay,
        // client-go's queues wake up every ten seconds: shorter would see that either not at all or too often.
        run: &["idle", "--keys=10000", "--seconds=10"],
        ours: &[Ours],
        peers: &[ClientGo, ControllerRuntime],
        rows: &[
            row("idle-10k-queues", "cpu ms/s", "cpu", IDLE),
            row("idle-10k-queues", "tasks", "tasks", IDLE),
            row("idle-10k-queues", "threads", "threads", IDLE),
        ],
        most_rounds: 3,
    },
];

const IDLE: &[(Party, Target)] = &[(ClientGo, Target::Ours(0.0)), (ControllerRuntime, Target::Ours(0.0))];
