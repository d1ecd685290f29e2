//! Operations of the work queue, three at once. As the pairs, see there.

use loom_tests::queue_ops::Op::{self, *};
use loom_tests::queue_ops::{Case, Start};
use loom_tests::{Model, models};

fn check(model: Model, ops: [Op; 3]) {
    use Start::*;
    let starts = [Ready, Leased, Soon, Waiting, Paused, Ending];
    models(model, starts.into_iter().map(|start| Case { start, ops: ops.to_vec() }.body()));
}

#[test]
fn get_cancel_add() {
    let claim = Model {
        name: "workqueue::get_cancel_add",
        threads: 3,
        floor: 2400,
        catches: "an add that decides before it locks that nobody waits",
    };
    check(claim, [Get, Cancel, Add]);
}

#[test]
fn get_add_lease_end() {
    let claim = Model {
        name: "workqueue::get_add_lease_end",
        threads: 3,
        floor: 2400,
        catches: "a lease's end that looks for a mark in one critical section and ends in another, while a getter waits",
    };
    check(claim, [Get, Add, Done]);
}

#[test]
fn get_add_timer() {
    let claim = Model {
        name: "workqueue::get_add_timer",
        threads: 3,
        floor: 1900,
        catches: "an alarm that is not set because its time has come meanwhile, and so never fires",
    };
    check(claim, [Get, Add, Advance]);
}

#[test]
fn get_cancel_lease_end() {
    let claim = Model {
        name: "workqueue::get_cancel_lease_end",
        threads: 3,
        floor: 2500,
        catches: "a cancel that says what it saw, not what it did",
    };
    check(claim, [Get, Cancel, Done]);
}

#[test]
fn get_cancel_timer() {
    let claim = Model {
        name: "workqueue::get_cancel_timer",
        threads: 3,
        floor: 1900,
        catches: "a cancel that says what it saw, not what it did, of a key whose time comes",
    };
    check(claim, [Get, Cancel, Advance]);
}

#[test]
fn get_retry_timer() {
    let claim = Model {
        name: "workqueue::get_retry_timer",
        threads: 3,
        floor: 3300,
        catches: "a backoff whose alarm is not set because its time has come meanwhile",
    };
    check(claim, [Get, Retry, Advance]);
}

#[test]
fn get_add_shut_down() {
    let claim = Model {
        name: "workqueue::get_add_shut_down",
        threads: 3,
        floor: 2000,
        catches: "a key that is accepted after the queue said closed",
    };
    check(claim, [Get, Add, ShutDown]);
}

#[test]
fn get_lease_end_shut_down() {
    let claim = Model {
        name: "workqueue::get_lease_end_shut_down",
        threads: 3,
        floor: 1800,
        catches: "a shutdown that decides before it locks that nobody waits, while the last lease ends",
    };
    check(claim, [Get, Done, ShutDown]);
}

#[test]
fn get_timer_shut_down() {
    let claim = Model {
        name: "workqueue::get_timer_shut_down",
        threads: 3,
        floor: 1800,
        catches: "a key that was due at shutdown and of which nobody is told, as its alarm has not fired",
    };
    check(claim, [Get, Advance, ShutDown]);
}

#[test]
fn get_add_drain() {
    let claim = Model {
        name: "workqueue::get_add_drain",
        threads: 3,
        floor: 3900,
        catches: "a task that parks on a queue it has not looked at since it unlocked, and that was drained meanwhile",
    };
    check(claim, [Get, Add, Drain]);
}

#[test]
fn get_lease_end_drain() {
    let claim = Model {
        name: "workqueue::get_lease_end_drain",
        threads: 3,
        floor: 3600,
        catches: "a drainer that looks in one critical section and parks in another, while a getter waits, too",
    };
    check(claim, [Get, Done, Drain]);
}

#[test]
fn get_timer_drain_waiting() {
    let claim = Model {
        name: "workqueue::get_timer_drain_waiting",
        threads: 3,
        floor: 7700,
        catches: "a wait that is served to the end, and whose alarm is not set because its time has come",
    };
    check(claim, [Get, Advance, DrainWaiting]);
}

#[test]
fn add_lease_end_shut_down() {
    let claim = Model {
        name: "workqueue::add_lease_end_shut_down",
        threads: 3,
        floor: 1100,
        catches: "a lease's end that looks for a mark in one critical section and ends in another, at shutdown",
    };
    check(claim, [Add, Done, ShutDown]);
}

#[test]
fn cancel_add_lease_end() {
    let claim = Model {
        name: "workqueue::cancel_add_lease_end",
        threads: 3,
        floor: 1300,
        catches: "a lease's end that looks for a mark in one critical section and ends in another",
    };
    check(claim, [Cancel, Add, Done]);
}

#[test]
fn cancel_lease_end_drain() {
    let claim = Model {
        name: "workqueue::cancel_lease_end_drain",
        threads: 3,
        floor: 2300,
        catches: "a drainer that looks in one critical section and parks in another, while a mark is erased",
    };
    check(claim, [Cancel, Done, Drain]);
}

#[test]
fn cancel_add_timer() {
    let claim = Model {
        name: "workqueue::cancel_add_timer",
        threads: 3,
        floor: 730,
        catches: "a cancel that says what it saw, not what it did, of a key that is promoted",
    };
    check(claim, [Cancel, Add, Advance]);
}

#[test]
fn retry_timer_drain_waiting() {
    let claim = Model {
        name: "workqueue::retry_timer_drain_waiting",
        threads: 3,
        floor: 5800,
        catches: "a backoff that is served to the end, and whose alarm is not set because its time has come",
    };
    check(claim, [Retry, Advance, DrainWaiting]);
}

#[test]
fn get_get_add_many() {
    let claim = Model {
        name: "workqueue::get_get_add_many",
        threads: 3,
        floor: 3200,
        catches: "an add of many that decides before it locks that nobody waits",
    };
    check(claim, [Get, Get, AddMany]);
}

#[test]
fn add_lease_end_stop() {
    let claim = Model {
        name: "workqueue::add_lease_end_stop",
        threads: 3,
        floor: 1300,
        catches: "a stop that lists the keys in one critical section and takes them in another",
    };
    check(claim, [Add, Done, StopNow]);
}
