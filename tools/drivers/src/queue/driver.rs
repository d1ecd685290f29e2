//! Applies the same operations to a queue and to the oracle, and compares all results after every operation.
//!
//! The fuzz targets also use these drivers. The input of a driver is a byte string, whose first byte selects options of the queue. A driver panics if
//! the results differ.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flyball_ratelimit::{Exponential, MaxOf, Quota, TokenBucket};
use flyball_sync::{ManualClock, ManualTimer};
use flyball_workqueue::{Fifo, Priority, Queue, QueueBuilder};
use testkit::coverage::states::Cells;
use testkit::deadline_op::DeadlineOp;
use testkit::oracle::backoff::OracleExponential;
use testkit::oracle::limiter::OracleQuota;
use testkit::oracle::order::{GroupLimits, OrderKind};
use testkit::oracle::queue::{OracleQueue, OracleSetup};
use testkit::queue_op::{HeldOp, OrderedOp, QueueOp};
use testkit::queue_setup::{SmallKey, operations};

use crate::queue::groups::Groups;
use crate::queue::limiters::Changeable;
use crate::queue::metrics_sink::Reports;
use crate::queue::options::{
    CAPACITY, Covered, DEAD_LETTERS, DELAYS, LIMITER, METRICS, ORDER, Row, STRICT, rows,
};
use crate::queue::orders::{Kind, group};
use crate::queue::random_operations::{GivenUp, QueueRun};

const BASE: Duration = Duration::from_nanos(2);
const CAP: Duration = Duration::from_nanos(20);
const MOST: usize = 200;

/// Drives a queue with delays and a limiter that counts at most one failure of a key per backoff.
pub fn limited(bytes: &[u8]) -> Cells {
    let Some((choice, ops)) = bytes.split_first() else { return Cells::default() };
    limited_by(*choice, operations(ops, MOST), SmallKey::all().collect())
}

/// Like [`limited`], but with operation sequences in which leases end late.
pub fn limited_held(bytes: &[u8]) -> Cells {
    let Some((choice, ops)) = bytes.split_first() else { return Cells::default() };
    limited_by(*choice, held(ops), SmallKey::all().collect())
}

/// Drives a queue with delays and without a limiter: a failed key is Ready immediately.
pub fn unlimited(bytes: &[u8]) -> Cells {
    let Some((choice, ops)) = bytes.split_first() else { return Cells::default() };
    unlimited_by(*choice, operations(ops, MOST))
}

/// Like [`unlimited`], but with operation sequences in which leases end late.
pub fn unlimited_held(bytes: &[u8]) -> Cells {
    let Some((choice, ops)) = bytes.split_first() else { return Cells::default() };
    unlimited_by(*choice, held(ops))
}

/// Drives a queue that reads no clock. An operation with a delay is replaced by the most similar operation without, or is left out.
pub fn timeless(bytes: &[u8]) -> Cells {
    let Some((choice, ops)) = bytes.split_first() else { return Cells::default() };
    timeless_by(*choice, operations(ops, MOST))
}

/// Drives a queue with priorities. The first byte selects how often keys of lower priorities are handed out.
pub fn by_priority(bytes: &[u8]) -> Cells {
    let Some(([how, choice], ops)) = bytes.split_first_chunk() else { return Cells::default() };
    let (order, kind) = prioritised([0, 1, 2, 4][usize::from(how % 4)]);
    let keys = SmallKey::all().collect();
    limited_in(
        order,
        kind,
        None,
        *choice,
        operations(ops, MOST).into_iter().map(|OrderedOp(op)| op).collect(),
        keys,
    )
}

/// Drives a queue with groups. The first byte selects the weights, lease limits and capacities of the groups.
pub fn by_group(bytes: &[u8]) -> Cells {
    let Some(([how, choice], ops)) = bytes.split_first_chunk() else { return Cells::default() };
    let weights = [[1, 1], [2, 1], [1, 3], [2, 2]][usize::from(how % 4)];
    let leases = [u32::MAX, 1, 1, 2][usize::from(how / 4 % 4)];
    let keys = [usize::MAX, usize::MAX, 1, 2][usize::from(how / 16 % 4)];
    let groups = Groups::new(weights.map(|weight| GroupLimits { weight, leases, keys, rate: None }));
    let ops = operations(ops, MOST).into_iter().map(|OrderedOp(op)| op).collect();
    // For a quarter of the values of `how`, operations change the limits of the groups during the run.
    let turned = (how / 64 == 3).then(|| groups.clone());
    let keys = SmallKey::all().collect();
    limited_in(groups.order(), groups.kind(), turned, *choice, ops, keys)
}

/// Drives a queue with groups that have rates. The first byte selects the rates, the second byte the other limits. Operations change the rate of the
/// first group during the run.
pub fn by_rate(bytes: &[u8]) -> Cells {
    let Some(([rates, how, choice], ops)) = bytes.split_first_chunk() else { return Cells::default() };
    let groups = rated(*rates, *how);
    let ops = match how / 64 {
        0 => operations(ops, MOST),
        1 => held(ops),
        _ => operations(ops, MOST).into_iter().map(|OrderedOp(op)| op).collect(),
    };
    let keys = SmallKey::all().collect();
    limited_in(groups.order(), groups.kind(), Some(groups.clone()), *choice, ops, keys)
}

/// Groups with rates, and with weights and lease limits that `how` selects.
fn rated(rates: u8, how: u8) -> Groups {
    let weights = [[1, 1], [2, 1], [1, 3], [2, 2]][usize::from(how % 4)];
    let leases = [u32::MAX, u32::MAX, 1, 2][usize::from(how / 4 % 4)];
    let keys = [usize::MAX, usize::MAX, usize::MAX, 2][usize::from(how / 16 % 4)];
    Groups::rated(weights.map(|weight| GroupLimits { weight, leases, keys, rate: None }), rates)
}

/// The fuzz target `order_ops`: drives a queue by priority, by group or by rate, depending on the input's length.
pub fn order_ops(bytes: &[u8]) -> Cells {
    match bytes.len() % 4 {
        0 | 2 => by_priority(bytes),
        1 => by_group(bytes),
        _ => by_rate(bytes),
    }
}

/// The fuzz target `queue_ops`: drives a queue with any valid combination of options.
pub fn queue_ops(bytes: &[u8]) -> Cells {
    combined(bytes, &mut Covered::default())
}

/// Drives a queue with any valid combination of options. The first byte selects a row of the table of combinations, the second byte the parameters of
/// the chosen options, and the third byte the kind of operation sequence.
pub fn combined(bytes: &[u8], covered: &mut Covered) -> Cells {
    let Some(([row, choice, kind], ops)) = bytes.split_first_chunk() else { return Cells::default() };
    let rows = rows();
    // `row` alone can select only the first 256 rows, so a quarter of the values of `kind` select the rows from 256 on. No file of the corpora
    // contains such a value of `kind`.
    let row = rows[(usize::from(*row) + 256 * usize::from(kind / 64 == 1)) % rows.len()];
    let ops = match kind % 3 {
        0 => operations(ops, MOST),
        1 => held(ops),
        _ => operations(ops, MOST).into_iter().map(|OrderedOp(op)| op).collect(),
    };
    let cells = match row[ORDER] {
        0 => built(Fifo, OrderKind::Fifo, None, row, *choice, ops),
        order @ (1 | 2) => {
            let share = if order == 1 { [1, 2, 4, 64][usize::from(choice / 64)] } else { 0 };
            let (order, kind) = prioritised(share);
            built(order, kind, None, row, *choice, ops)
        }
        order @ 3..=5 => {
            let weights = [[1, 1], [2, 1], [1, 3], if order == 5 { [2, 0] } else { [2, 2] }];
            let weights = weights[usize::from(choice / 64)];
            let leases = if order == 4 { [1, 2][usize::from(choice / 32 % 2)] } else { u32::MAX };
            let mut limits =
                weights.map(|weight| GroupLimits { weight, leases, ..GroupLimits::weight(weight) });
            if order == 5 {
                limits[0].keys = usize::from(choice / 4 % 4) + 1;
                limits[1].leases = u32::from(choice / 32 % 2);
            }
            let groups = Groups::new(limits);
            let turned = (order == 5).then(|| groups.clone());
            built(groups.order(), groups.kind(), turned, row, *choice, ops)
        }
        6 => {
            let groups = rated(*choice, choice / 8);
            built(groups.order(), groups.kind(), Some(groups.clone()), row, *choice, ops)
        }
        order => unreachable!("order {order} has no queue here"),
    };
    covered.ran(row);
    cells
}

/// Returns an order in which a lower priority is served once per `share` hand-outs of the highest priority. If `share` is 0, it is served only when
/// no higher priority has Ready keys.
fn prioritised(share: u32) -> (Priority, OrderKind) {
    match NonZeroU32::new(share) {
        None => (Priority::new().strict(), OrderKind::Priority(None)),
        Some(share) => (Priority::new().share(share), OrderKind::Priority(Some(share.get().into()))),
    }
}

/// Builds a queue with the options of a row, and applies the operations to it.
fn built(
    order: impl Kind,
    kind: OrderKind,
    groups: Option<Groups>,
    row: Row,
    choice: u8,
    ops: Vec<QueueOp>,
) -> Cells {
    let backoff = OracleExponential { base: BASE, cap: CAP };
    let quota = OracleQuota::new(1, 1, 2);
    let setup = OracleSetup {
        limiter: (row[LIMITER] > 0).then_some(backoff),
        bucket: (row[LIMITER] == 2).then_some(quota),
        strict: row[STRICT] == 1,
        give_up_after: (row[DEAD_LETTERS] == 1).then_some(u32::from(choice % 4) + 1),
        capacity: (row[CAPACITY] == 1).then_some(usize::from(choice / 4 % 4) + 1),
    };
    let clock = ManualClock::new();
    let mut builder = Queue::builder().order(order).timer(clock.timer()).seed(1);
    if let Some(keys) = setup.capacity {
        builder = builder.capacity(keys);
    }
    let (aged, measured) = (choice / 16 % 2 == 1, row[METRICS] == 1);
    let spec = QueueSpec { setup, kind, groups, clock, aged, measured };
    if row[DELAYS] == 0 {
        let ops = ops.into_iter().filter_map(without_time).collect();
        return spec.beside(builder.build(), GivenUp::default()).run(ops, false);
    }
    match row[LIMITER] {
        0 => spec.by_time(builder, GivenUp::default(), ops),
        1 => spec.limited(builder.limiter(Exponential::new(BASE..=CAP)), ops),
        _ => {
            let bucket = TokenBucket::new(quota_of(quota));
            spec.limited(builder.limiter(MaxOf::new(Exponential::new(BASE..=CAP), bucket)), ops)
        }
    }
}

/// The options of a queue that the driver needs while it applies the operations.
struct QueueSpec {
    setup: OracleSetup,
    kind: OrderKind,
    /// The groups, if operations change their limits during the run; otherwise `None`.
    groups: Option<Groups>,
    clock: ManualClock,
    aged: bool,
    measured: bool,
}

impl QueueSpec {
    fn beside<O: Kind, L: Changeable>(
        &self,
        queue: Queue<SmallKey, O, L, ManualTimer>,
        dead: GivenUp,
    ) -> QueueRun<O, L> {
        let model = OracleQueue::ordered(self.setup, self.kind, group);
        let ops = QueueRun::new(queue, model, self.clock.clone(), SmallKey::all().collect(), dead);
        ops.grouped(self.groups.clone())
    }

    fn limited<O: Kind, L: Changeable>(
        self,
        mut builder: QueueBuilder<SmallKey, O, L, ManualTimer>,
        ops: Vec<QueueOp>,
    ) -> Cells {
        let dead = GivenUp::default();
        if let Some(most) = self.setup.give_up_after {
            let dead = dead.clone();
            builder = builder.give_up_after(NonZeroU32::new(most).unwrap(), move |key, failures| {
                dead.lock().expect("the lock is not poisoned").push((*key, failures));
            });
        }
        self.by_time(builder, dead, ops)
    }

    fn by_time<O: Kind, L: Changeable>(
        self,
        mut builder: QueueBuilder<SmallKey, O, L, ManualTimer>,
        dead: GivenUp,
        ops: Vec<QueueOp>,
    ) -> Cells {
        if self.setup.strict {
            builder = builder.strict_backoff();
        }
        let reports = self.measured.then(Reports::default);
        if let Some(reports) = &reports {
            builder = builder.metrics(reports.clone());
        }
        self.beside(builder.build(), dead).measured(reports).run(ops, self.aged)
    }
}

/// Converts a quota of the oracle to the same quota for the bucket under test.
pub(crate) fn quota_of(oracle: OracleQuota) -> Quota {
    let nz = |value| NonZeroU32::new(value).expect("zeros count as ones");
    let quota = Quota::new(nz(oracle.tokens().into()), Duration::from_nanos(oracle.period()));
    quota.expect("zeros count as ones").allow_burst(nz(oracle.burst().into()))
}

/// The fuzz target `deadlines`: operations with delays on many keys. The parity of the input's length selects whether the backoff is strict.
pub fn deadlines(bytes: &[u8]) -> Cells {
    let ops = operations::<DeadlineOp>(bytes, 4 * MOST).into_iter().map(|op| match op {
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
    limited_by(strict, ops.collect(), (0..64).map(SmallKey).collect())
}

/// Decodes an operation sequence in which leases end late.
fn held(bytes: &[u8]) -> Vec<QueueOp> {
    operations::<HeldOp>(bytes, MOST).into_iter().map(|HeldOp(op)| op).collect()
}

fn limited_by(choice: u8, ops: Vec<QueueOp>, keys: Vec<SmallKey>) -> Cells {
    limited_in(Fifo, OrderKind::Fifo, None, choice, ops, keys)
}

fn limited_in(
    order: impl Kind,
    kind: OrderKind,
    groups: Option<Groups>,
    choice: u8,
    ops: Vec<QueueOp>,
    keys: Vec<SmallKey>,
) -> Cells {
    let limiter = OracleExponential { base: BASE, cap: CAP };
    let setup = OracleSetup {
        limiter: Some(limiter),
        bucket: None,
        strict: choice % 2 == 1,
        give_up_after: Some(u32::from(choice / 2 % 4)).filter(|most| *most > 0),
        capacity: room(choice / 8),
    };
    let clock = ManualClock::new();
    let dead = GivenUp::default();
    let limiter = Exponential::new(BASE..=CAP);
    let mut builder = Queue::builder().order(order).timer(clock.timer()).limiter(limiter).seed(1);
    if setup.strict {
        builder = builder.strict_backoff();
    }
    if let Some(most) = setup.give_up_after {
        let dead = dead.clone();
        builder = builder.give_up_after(NonZeroU32::new(most).unwrap(), move |key, failures| {
            dead.lock().expect("the lock is not poisoned").push((*key, failures));
        });
    }
    if let Some(keys) = setup.capacity {
        builder = builder.capacity(keys);
    }
    let reports = reports(&ops);
    if let Some(reports) = &reports {
        builder = builder.metrics(reports.clone());
    }
    let model = OracleQueue::ordered(setup, kind, group);
    let own = QueueRun::new(builder.build(), model, clock, keys, dead);
    own.grouped(groups).measured(reports).run(ops, aged(choice / 8))
}

fn unlimited_by(choice: u8, ops: Vec<QueueOp>) -> Cells {
    let strict = choice / 16 % 2 == 1;
    let setup = OracleSetup { strict, capacity: room(choice), ..OracleSetup::default() };
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
    let reports = reports(&ops);
    if let Some(reports) = &reports {
        builder = builder.metrics(reports.clone());
    }
    let own = QueueRun::new(builder.build(), OracleQueue::new(setup), clock, keys, dead);
    own.measured(reports).run(ops, aged(choice))
}

fn timeless_by(choice: u8, ops: Vec<QueueOp>) -> Cells {
    let setup = OracleSetup { capacity: room(choice), ..OracleSetup::default() };
    let (clock, keys) = (ManualClock::new(), SmallKey::all().collect());
    let mut builder = Queue::builder().timer(clock.timer());
    if let Some(keys) = setup.capacity {
        builder = builder.capacity(keys);
    }
    QueueRun::new(builder.build(), OracleQueue::new(setup), clock, keys, GivenUp::default())
        .run(ops.into_iter().filter_map(without_time).collect(), false)
}

/// Returns the capacity: for half of the values of `choice` no capacity, for the others one to four keys.
fn room(choice: u8) -> Option<usize> {
    let choice = usize::from(choice % 8);
    choice.checked_sub(3).filter(|keys| *keys > 0)
}

/// Returns a metrics sink if the number of operations is even.
fn reports(ops: &[QueueOp]) -> Option<Reports> {
    (ops.len() % 2 == 0).then(Reports::default)
}

/// Returns whether the queue tracks ages.
fn aged(choice: u8) -> bool {
    choice % 2 == 1
}

/// Returns the operation without a delay that is most similar to `op`; `None` if there is none.
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
