//! Three concurrent operations of the work queue, checked as in `workqueue_pairs.rs`.

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
        catches: "an add that checks before it locks whether there is a waiter",
    };
    check(claim, [Get, Cancel, Add]);
}

#[test]
fn get_add_lease_end() {
    let claim = Model {
        name: "workqueue::get_add_lease_end",
        threads: 3,
        floor: 2400,
        catches: "a lease end that checks the dirty flag in one critical section and ends the lease in another, while a getter waits",
    };
    check(claim, [Get, Add, Done]);
}

#[test]
fn get_add_timer() {
    let claim = Model {
        name: "workqueue::get_add_timer",
        threads: 3,
        floor: 1900,
        catches: "an alarm that is not set because its deadline passed in the meantime, and so never fires",
    };
    check(claim, [Get, Add, Advance]);
}

#[test]
fn get_cancel_lease_end() {
    let claim = Model {
        name: "workqueue::get_cancel_lease_end",
        threads: 3,
        floor: 2500,
        catches: "a cancel that reports the state it read, not the change it made",
    };
    check(claim, [Get, Cancel, Done]);
}

#[test]
fn get_cancel_timer() {
    let claim = Model {
        name: "workqueue::get_cancel_timer",
        threads: 3,
        floor: 1900,
        catches: "a cancel that reports the state it read, not the change it made, while the key's deadline passes",
    };
    check(claim, [Get, Cancel, Advance]);
}

#[test]
fn get_retry_timer() {
    let claim = Model {
        name: "workqueue::get_retry_timer",
        threads: 3,
        floor: 3300,
        catches: "a backoff whose alarm is not set because its deadline passed in the meantime",
    };
    check(claim, [Get, Retry, Advance]);
}

#[test]
fn get_add_shut_down() {
    let claim = Model {
        name: "workqueue::get_add_shut_down",
        threads: 3,
        floor: 2000,
        catches: "a key that is accepted after a getter returned \"closed\"",
    };
    check(claim, [Get, Add, ShutDown]);
}

#[test]
fn get_lease_end_shut_down() {
    let claim = Model {
        name: "workqueue::get_lease_end_shut_down",
        threads: 3,
        floor: 1800,
        catches: "a shutdown that checks before it locks whether there is a waiter, while the last lease ends",
    };
    check(claim, [Get, Done, ShutDown]);
}

#[test]
fn get_timer_shut_down() {
    let claim = Model {
        name: "workqueue::get_timer_shut_down",
        threads: 3,
        floor: 1800,
        catches: "a key that is due at shutdown and wakes no getter, because its alarm has not fired",
    };
    check(claim, [Get, Advance, ShutDown]);
}

#[test]
fn get_add_drain() {
    let claim = Model {
        name: "workqueue::get_add_drain",
        threads: 3,
        floor: 3900,
        catches: "a task that registers its waker without checking the queue again under that lock, while the queue is drained",
    };
    check(claim, [Get, Add, Drain]);
}

#[test]
fn get_lease_end_drain() {
    let claim = Model {
        name: "workqueue::get_lease_end_drain",
        threads: 3,
        floor: 2950,
        catches: "a drainer that checks the queue in one critical section and registers its waker in another, beside a waiting getter",
    };
    check(claim, [Get, Done, Drain]);
}

#[test]
fn get_timer_drain_waiting() {
    let claim = Model {
        name: "workqueue::get_timer_drain_waiting",
        threads: 3,
        floor: 7700,
        catches: "a wait of full length whose alarm is not set because its deadline has passed",
    };
    check(claim, [Get, Advance, DrainWaiting]);
}

#[test]
fn add_lease_end_shut_down() {
    let claim = Model {
        name: "workqueue::add_lease_end_shut_down",
        threads: 3,
        floor: 1100,
        catches: "a lease end that checks the dirty flag in one critical section and ends the lease in another, at shutdown",
    };
    check(claim, [Add, Done, ShutDown]);
}

#[test]
fn cancel_add_lease_end() {
    let claim = Model {
        name: "workqueue::cancel_add_lease_end",
        threads: 3,
        floor: 1300,
        catches: "a lease end that checks the dirty flag in one critical section and ends the lease in another",
    };
    check(claim, [Cancel, Add, Done]);
}

#[test]
fn cancel_lease_end_drain() {
    let claim = Model {
        name: "workqueue::cancel_lease_end_drain",
        threads: 3,
        floor: 2300,
        catches: "a drainer that checks the queue in one critical section and registers its waker in another, while a dirty flag is cleared",
    };
    check(claim, [Cancel, Done, Drain]);
}

#[test]
fn cancel_add_timer() {
    let claim = Model {
        name: "workqueue::cancel_add_timer",
        threads: 3,
        floor: 730,
        catches: "a cancel that reports the state it read, not the change it made, while the key is promoted",
    };
    check(claim, [Cancel, Add, Advance]);
}

#[test]
fn retry_timer_drain_waiting() {
    let claim = Model {
        name: "workqueue::retry_timer_drain_waiting",
        threads: 3,
        floor: 5800,
        catches: "a backoff of full length whose alarm is not set because its deadline has passed",
    };
    check(claim, [Retry, Advance, DrainWaiting]);
}

#[test]
fn get_get_add_many() {
    let claim = Model {
        name: "workqueue::get_get_add_many",
        threads: 3,
        floor: 3200,
        catches: "an `add_many` that checks before it locks whether there is a waiter",
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
