//! Every pair of the operations of [`Op`], from every initial state that matters.
//!
//! The two operations run concurrently. Their results, and the later states of the queue, must equal those of some
//! sequential order of their steps. So nothing is lost, duplicated or forgotten. Tasks are polled only when they are
//! woken.

use loom_tests::queue_ops::Op::{self, *};
use loom_tests::queue_ops::{Case, For, Start};
use loom_tests::{Model, models};

/// Checks every operation of `group` in a pair with itself and with each operation after it in `Op::ALL`.
fn check(model: Model, group: &[Op]) {
    let mut pairs = Vec::new();
    for &first in group {
        let from = Op::ALL.iter().position(|&op| op == first).expect("an operation is missing in ALL");
        for &second in &Op::ALL[from..] {
            let ops = vec![first, second];
            pairs.extend(starts(&ops).iter().map(|&start| Case { start, ops: ops.clone() }));
        }
    }
    models(model, pairs.into_iter().map(Case::body));
}

fn starts(ops: &[Op]) -> &'static [Start] {
    use Start::*;
    match ops.iter().find(|op| op.blocks()).map(|op| op.waits_for()) {
        None => &[Ready, Leased, Full, Soon, Waiting, Paused, Ending],
        // If an operation blocks its thread, the model also explores the interleavings with the shutdown. To limit their number, such a pair starts
        // only from the states that matter for the event that the operation waits for.
        Some(For::Key) => &[Ready, Leased, Soon, Paused],
        Some(For::Room) => &[Full],
        Some(For::Drained) => &[Ready, Leased, Soon],
        _ => &[Ready, Leased],
    }
}

#[test]
fn pairs_inspect() {
    let claim = Model {
        name: "workqueue::pairs_inspect",
        threads: 2,
        floor: 30000,
        catches: "figures that are read in two critical sections",
    };
    check(claim, &[Keys, Stats, Len, State, TrackAges, NumRequeues, Forget]);
}

#[test]
fn pairs_next_overdue() {
    let claim = Model {
        name: "workqueue::pairs_next_overdue",
        threads: 2,
        floor: 10900,
        catches: "a watcher that finds no lease in one critical section and registers its waker in another",
    };
    check(claim, &[NextOverdue]);
}

#[test]
fn pairs_wait_idle() {
    let claim = Model {
        name: "workqueue::pairs_wait_idle",
        threads: 2,
        floor: 5600,
        catches: "a task that checks in one critical section whether the queue is idle and registers its waker in another",
    };
    check(claim, &[WaitIdle]);
}

#[test]
fn pairs_add_when_room() {
    let claim = Model {
        name: "workqueue::pairs_add_when_room",
        threads: 2,
        floor: 2600,
        catches: "an adder that checks for room in one critical section and registers its waker in another",
    };
    check(claim, &[AddWhenRoom]);
}

#[test]
fn pairs_shut_down() {
    let claim = Model {
        name: "workqueue::pairs_shut_down",
        threads: 2,
        floor: 2600,
        catches: "a shutdown that checks before it locks whether there is a waiter",
    };
    check(claim, &[ShutDown]);
}

#[test]
fn pairs_get() {
    let claim = Model {
        name: "workqueue::pairs_get",
        threads: 2,
        floor: 12000,
        catches: "a task that registers its waker without checking the queue again under that lock",
    };
    check(claim, &[Get, GetMany]);
}

#[test]
fn pairs_blocking_get() {
    let claim = Model {
        name: "workqueue::pairs_blocking_get",
        threads: 3,
        floor: 80000,
        catches: "a thread that unlocks between its check and its sleep",
    };
    check(claim, &[BlockingGet]);
}

#[test]
fn pairs_drain() {
    let claim = Model {
        name: "workqueue::pairs_drain",
        threads: 3,
        floor: 42000,
        catches: "a drainer that checks the queue in one critical section and registers its waker in another",
    };
    check(claim, &[Drain, BlockingDrain]);
}

#[test]
fn pairs_drain_waiting() {
    let claim = Model {
        name: "workqueue::pairs_drain_waiting",
        threads: 3,
        floor: 39000,
        catches: "a draining thread that checks the queue in one critical section and waits in another",
    };
    check(claim, &[DrainWaiting, BlockingDrainWaiting]);
}

#[test]
fn pairs_pause_resume() {
    let claim = Model {
        name: "workqueue::pairs_pause_resume",
        threads: 2,
        floor: 1800,
        catches: "a pause that restores the state it read, not the current one",
    };
    check(claim, &[Pause, Resume]);
}

#[test]
fn pairs_clock() {
    let claim = Model {
        name: "workqueue::pairs_clock",
        threads: 2,
        floor: 1200,
        catches: "an alarm that is not set because its deadline passed in the meantime, and so never fires",
    };
    check(claim, &[Advance]);
}

#[test]
fn pairs_detach() {
    let claim = Model {
        name: "workqueue::pairs_detach",
        threads: 2,
        floor: 2900,
        catches: "a lease that is found in one critical section and ended in another",
    };
    check(claim, &[Detach, DoneByKey]);
}

#[test]
fn pairs_add_delayed() {
    let claim = Model {
        name: "workqueue::pairs_add_delayed",
        threads: 2,
        floor: 3500,
        catches: "a delayed add that reports the state it read, not the change it made",
    };
    check(claim, &[AddEarliest, AddLatest, AddReplace]);
}

#[test]
fn pairs_add_rate_limited() {
    let claim = Model {
        name: "workqueue::pairs_add_rate_limited",
        threads: 2,
        floor: 2300,
        catches: "an `add_rate_limited` that reports the state it read, not the change it made",
    };
    check(claim, &[AddRateLimited]);
}

#[test]
fn pairs_postpone() {
    let claim = Model {
        name: "workqueue::pairs_postpone",
        threads: 2,
        floor: 800,
        catches: "a postponement that reports the state it read, not the change it made",
    };
    check(claim, &[Postpone]);
}

#[test]
fn pairs_add_many() {
    let claim = Model {
        name: "workqueue::pairs_add_many",
        threads: 2,
        floor: 530,
        catches: "an `add_many` that reports the state it read, not the change it made",
    };
    check(claim, &[AddMany]);
}

#[test]
fn pairs_add() {
    let claim = Model {
        name: "workqueue::pairs_add",
        threads: 2,
        floor: 480,
        catches: "an add that reports the state it read, not the change it made",
    };
    check(claim, &[Add]);
}

#[test]
fn pairs_lease_end() {
    let claim = Model {
        name: "workqueue::pairs_lease_end",
        threads: 2,
        floor: 4200,
        catches: "a lease end that checks in one critical section whether the queue is stopped and ends the lease in another",
    };
    check(claim, &[Done, Succeed, Retry, RequeueAfter, DropLease]);
}

#[test]
fn pairs_done_after() {
    let claim = Model {
        name: "workqueue::pairs_done_after",
        threads: 2,
        floor: 480,
        catches: "a requeue that delays the key in one critical section and ends the lease in another",
    };
    check(claim, &[DoneAfter]);
}

#[test]
fn pairs_cancel() {
    let claim = Model {
        name: "workqueue::pairs_cancel",
        threads: 2,
        floor: 183,
        catches: "a cancel that reports the state it read, not the change it made",
    };
    check(claim, &[Cancel]);
}

#[test]
fn pairs_try_get() {
    let claim = Model {
        name: "workqueue::pairs_try_get",
        threads: 2,
        floor: 202,
        catches: "a get that selects the key in one critical section and leases it in another",
    };
    check(claim, &[TryGet, TryGetMany]);
}

#[test]
fn pairs_stop_now() {
    let claim = Model {
        name: "workqueue::pairs_stop_now",
        threads: 2,
        floor: 47,
        catches: "a stop that lists the keys in one critical section and takes them in another",
    };
    check(claim, &[StopNow]);
}
