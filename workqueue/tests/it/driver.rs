//! Drives a queue and the naive one through the same operations and compares every answer after every step.
//!
//! Shared with the fuzz targets: a case is bytes, and a panic is a difference. The first byte says how the queue is
//! built.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flyball_ratelimit::{Exponential, ManualClock};
use flyball_workqueue::{Fair, Fifo, Priority, Queue};
use testkit::cells::Cells;
use testkit::deadline_op::DeadlineOp;
use testkit::naive_backoff::NaiveExponential;
use testkit::naive_order::Sharing;
use testkit::naive_queue::{NaiveQueue, NaiveSetup};
use testkit::op::{SmallKey, operations};
use testkit::queue_op::{HeldOp, OrderedOp, QueueOp};

use crate::kind::{Kind, group};
use crate::life::{Dead, Life};
use crate::told::Notes;

const BASE: Duration = Duration::from_nanos(2);
const CAP: Duration = Duration::from_nanos(20);
const MOST: usize = 200;

/// A queue with delays and honest backoff.
pub(crate) fn limited(bytes: &[u8]) -> Cells {
    let Some((choice, life)) = bytes.split_first() else { return Cells::default() };
    limited_by(*choice, operations(life, MOST), SmallKey::all().collect())
}

/// The same where leases are held for long.
pub(crate) fn limited_held(bytes: &[u8]) -> Cells {
    let Some((choice, life)) = bytes.split_first() else { return Cells::default() };
    limited_by(*choice, held(life), SmallKey::all().collect())
}

/// A queue with delays, where a failure comes back at once.
pub(crate) fn unlimited(bytes: &[u8]) -> Cells {
    let Some((choice, life)) = bytes.split_first() else { return Cells::default() };
    unlimited_by(*choice, operations(life, MOST))
}

/// The same where leases are held for long.
pub(crate) fn unlimited_held(bytes: &[u8]) -> Cells {
    let Some((choice, life)) = bytes.split_first() else { return Cells::default() };
    unlimited_by(*choice, held(life))
}

/// A queue that knows no time: what needs a clock becomes its nearest timeless relative.
pub(crate) fn timeless(bytes: &[u8]) -> Cells {
    let Some((choice, life)) = bytes.split_first() else { return Cells::default() };
    timeless_by(*choice, operations(life, MOST))
}

/// Keys of priorities. The first byte says how they age.
pub(crate) fn by_priority(bytes: &[u8]) -> Cells {
    let Some(([how, choice], life)) = bytes.split_first_chunk() else { return Cells::default() };
    let ageing = [None, NonZeroU32::new(1), NonZeroU32::new(2), NonZeroU32::new(64)][usize::from(how % 4)];
    let order = ageing.map_or(Priority::new().strict(), |most| Priority::new().ageing(most));
    let sharing = Sharing::Priority(ageing.map(|most| most.get().into()));
    let keys = SmallKey::all().collect();
    limited_in(
        order,
        sharing,
        *choice,
        operations(life, MOST).into_iter().map(|OrderedOp(op)| op).collect(),
        keys,
    )
}

/// Keys of groups. The first byte says what weights and caps these have.
pub(crate) fn by_group(bytes: &[u8]) -> Cells {
    let Some(([how, choice], life)) = bytes.split_first_chunk() else { return Cells::default() };
    let weights = [[1, 1], [2, 1], [1, 3], [2, 2]][usize::from(how % 4)];
    let cap = [u32::MAX, 1, 1, 2][usize::from(how / 4 % 4)];
    let fair = Fair::by(|key: &SmallKey| group(*key)).weights(move |group| weights[*group]).cap(cap);
    let ops = operations(life, MOST).into_iter().map(|OrderedOp(op)| op).collect();
    limited_in(fair, Sharing::Fair { weights, cap }, *choice, ops, SmallKey::all().collect())
}

/// The fuzz target `order_ops`: the length of the case says which order.
pub(crate) fn order_ops(bytes: &[u8]) -> Cells {
    if bytes.len() % 2 == 0 { by_priority(bytes) } else { by_group(bytes) }
}

/// The fuzz target `queue_ops`: the first byte chooses the kind of queue, too.
pub(crate) fn queue_ops(bytes: &[u8]) -> Cells {
    let Some((first, life)) = bytes.split_first() else { return Cells::default() };
    let choice = first / 4;
    match first % 4 {
        0 => limited_by(choice, operations(life, MOST), SmallKey::all().collect()),
        1 => limited_by(choice, held(life), SmallKey::all().collect()),
        2 if choice < 32 => unlimited_by(choice, operations(life, MOST)),
        2 => unlimited_by(choice, held(life)),
        _ => timeless_by(choice, operations(life, MOST)),
    }
}

/// The fuzz target `deadlines`: many keys, all about time. The length of the case says whether backoff is strict.
pub(crate) fn deadlines(bytes: &[u8]) -> Cells {
    let life = operations::<DeadlineOp>(bytes, 4 * MOST).into_iter().map(|op| match op {
        DeadlineOp::AddAfter(key, delay) => QueueOp::AddAfter(SmallKey(key), delay),
        DeadlineOp::AddDelayed(key, delay, mode) => QueueOp::AddDelayed(SmallKey(key), delay, mode),
        DeadlineOp::Add(key) => QueueOp::Add(SmallKey(key)),
        DeadlineOp::TryGet => QueueOp::TryGet,
        DeadlineOp::Postpone(key, delay) => QueueOp::Postpone(SmallKey(key), delay),
        DeadlineOp::RequeueAfter(delay) => QueueOp::RequeueAfter(0, delay),
        DeadlineOp::Retry => QueueOp::Retry(0),
        DeadlineOp::Cancel(key) => QueueOp::Cancel(SmallKey(key)),
        DeadlineOp::Advance(step) => QueueOp::Advance(step),
    });
    let strict = u8::from(bytes.len() % 2 == 1);
    limited_by(strict, life.collect(), (0..64).map(SmallKey).collect())
}

/// Operations of a life in which leases are held for long.
fn held(bytes: &[u8]) -> Vec<QueueOp> {
    operations::<HeldOp>(bytes, MOST).into_iter().map(|HeldOp(op)| op).collect()
}

fn limited_by(choice: u8, life: Vec<QueueOp>, keys: Vec<SmallKey>) -> Cells {
    limited_in(Fifo, Sharing::Fifo, choice, life, keys)
}

fn limited_in(
    order: impl Kind,
    sharing: Sharing,
    choice: u8,
    life: Vec<QueueOp>,
    keys: Vec<SmallKey>,
) -> Cells {
    let limiter = NaiveExponential { base: BASE, cap: CAP };
    let setup = NaiveSetup {
        limiter: Some(limiter),
        strict: choice % 2 == 1,
        dead_letters: Some(u32::from(choice / 2 % 4)).filter(|most| *most > 0),
        capacity: room(choice / 8),
    };
    let clock = ManualClock::new();
    let dead = Dead::default();
    let limiter = Exponential::new(BASE..=CAP);
    let mut builder = Queue::builder().order(order).timer(clock.timer()).limiter(limiter).seed(1);
    if setup.strict {
        builder = builder.strict_backoff();
    }
    if let Some(most) = setup.dead_letters {
        let dead = dead.clone();
        builder = builder.dead_letters(most, move |key, failures| {
            dead.lock().expect("nobody panics in here").push((*key, failures));
        });
    }
    if let Some(keys) = setup.capacity {
        builder = builder.capacity(keys);
    }
    let notes = notes(&life);
    if let Some(notes) = &notes {
        builder = builder.metrics(notes.clone());
    }
    let model = NaiveQueue::ordered(setup, sharing, group);
    let own = Life::new(builder.build(), model, clock, keys, dead);
    own.measured(notes).live_by_time(life, aged(choice / 8))
}

fn unlimited_by(choice: u8, life: Vec<QueueOp>) -> Cells {
    let strict = choice / 16 % 2 == 1;
    let setup = NaiveSetup { strict, capacity: room(choice), ..NaiveSetup::default() };
    let clock = ManualClock::new();
    let mut builder = Queue::builder().timer(clock.timer()).seed(1);
    if setup.strict {
        builder = builder.strict_backoff();
    }
    if let Some(keys) = setup.capacity {
        builder = builder.capacity(keys);
    }
    let dead = Arc::new(Mutex::new(Vec::new()));
    let keys = SmallKey::all().collect();
    let notes = notes(&life);
    if let Some(notes) = &notes {
        builder = builder.metrics(notes.clone());
    }
    let own = Life::new(builder.build(), NaiveQueue::new(setup), clock, keys, dead);
    own.measured(notes).live_by_time(life, aged(choice))
}

fn timeless_by(choice: u8, life: Vec<QueueOp>) -> Cells {
    let setup = NaiveSetup { capacity: room(choice), ..NaiveSetup::default() };
    let mut builder = Queue::builder();
    if let Some(keys) = setup.capacity {
        builder = builder.capacity(keys);
    }
    let (clock, keys) = (ManualClock::new(), SmallKey::all().collect());
    Life::new(builder.build(), NaiveQueue::new(setup), clock, keys, Dead::default())
        .live(life.into_iter().filter_map(without_time))
}

/// Room for one to four keys, or for all: as often.
fn room(choice: u8) -> Option<usize> {
    let choice = usize::from(choice % 8);
    choice.checked_sub(3).filter(|keys| *keys > 0)
}

/// Every other life is measured.
fn notes(life: &[QueueOp]) -> Option<Notes> {
    (life.len() % 2 == 0).then(Notes::default)
}

/// Whether ages are kept.
fn aged(choice: u8) -> bool {
    choice % 2 == 1
}

/// What is left of an operation where there is no time.
fn without_time(op: QueueOp) -> Option<QueueOp> {
    Some(match op {
        QueueOp::AddAfter(key, _) | QueueOp::AddDelayed(key, ..) | QueueOp::AddLimited(key) => {
            QueueOp::Add(key)
        }
        QueueOp::RequeueAfter(index, _) => QueueOp::Succeed(index),
        QueueOp::DoneAfter(index, _) => QueueOp::Done(index),
        QueueOp::RetryNoSooner(index, _) => QueueOp::Retry(index),
        QueueOp::DrainWaiting(_) => QueueOp::Drain,
        QueueOp::Postpone(..) | QueueOp::PollOverdue(_) | QueueOp::Advance(_) => return None,
        op => op,
    })
}
