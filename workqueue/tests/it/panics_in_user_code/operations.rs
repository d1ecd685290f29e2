//! User code that panics in the operations that the parent module does not test: no key is lost, no waiter is stranded, and the queue continues.

use flyball_sync::block_on;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, Nanos};
use flyball_workqueue::{
    AddError, AddOptions, DelayMode, DrainOptions, KeyInfo, KeyState, Lease, LeaseOutcome, Leftovers,
    OverdueLease, Queue,
};
use testkit::panicking::{PanicSwitch, PanickingKey, Point};

use super::{BASE, CAP, Fuse, HostileLease, HostilePolicy, HostileQueue, HostileTimer};
use crate::support::{ns, times};
use crate::task::Task;

/// The state of the queue, and its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// Keys in every state, and room for two more.
    Busy,
    /// Like `Busy`, but without room: an adder waits.
    Full,
    /// No key is Ready: a getter waits.
    Quiet,
}

const SCENES: [Scene; 3] = [Scene::Busy, Scene::Full, Scene::Quiet];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    AddDelayed(u32, DelayMode),
    AddLimited(u32),
    AddMany,
    Postpone(u32),
    TryGetMany,
    GetMany,
    BlockingGetMany,
    AddWhenRoom(u32),
    BlockingAdd(u32),
    Pause,
    Resume,
    Detach,
    Done,
    /// Ends a lease with a failure, at which the key is given up.
    Die,
    /// If the outcome is a failure, the key is given up.
    End(LeaseOutcome),
    KeepAges,
    Age,
    NextOverdue,
    WaitIdle,
    DrainWaiting,
    Keys,
}

const OUTCOMES: [LeaseOutcome; 6] = [
    LeaseOutcome::Done,
    LeaseOutcome::DoneAndRequeueAfter(Duration::from_nanos(5)),
    LeaseOutcome::Succeeded,
    LeaseOutcome::SucceededAndRequeueAfter(Duration::from_nanos(5)),
    LeaseOutcome::Failed { at_least: Duration::ZERO },
    LeaseOutcome::Requeued,
];

impl Operation {
    fn takes_a_lease(self) -> bool {
        matches!(self, Self::Detach | Self::Die | Self::End(_))
    }
}

/// The result of an operation. It is moved out of the operation, so that only drops inside the queue can trigger a fuse.
#[expect(dead_code, reason = "kept until it is dropped, where nothing is armed")]
enum Given {
    Nothing,
    Leases(Vec<HostileLease>),
    Refused(Vec<AddError<PanickingKey>>),
    Key(PanickingKey),
    Overdue(Option<OverdueLease<PanickingKey>>),
    Left(Leftovers<PanickingKey>),
    Keys(Vec<KeyInfo<PanickingKey>>),
}

/// Key 0 is debounced until 10, keys 1 and 2 are Ready, key 3 is leased and has failed, key 4 is leased and dirty, key 5 is leased and waits until
/// 10, key 6 is due, key 7 is leased without a guard. Keys from 8 on are absent; in a quiet scene keys 1, 2 and 6 are absent, too.
struct World {
    switch: Arc<PanicSwitch>,
    manual: ManualClock,
    fuses: [Fuse; 4],
    queue: HostileQueue,
    leases: Vec<HostileLease>,
}

const CLOCK: usize = 0;
const ALARM: usize = 1;
const POLICY: usize = 2;
const HOOK: usize = 3;

impl World {
    fn new(scene: Scene, ages: bool) -> Self {
        let (switch, manual, fuses) = (PanicSwitch::new(), ManualClock::new(), <[Fuse; 4]>::default());
        let hook = fuses[HOOK].clone();
        let timer =
            HostileTimer { timer: manual.timer(), clock: fuses[CLOCK].clone(), alarm: fuses[ALARM].clone() };
        let limiter = HostilePolicy { backoff: Exponential::new(BASE..=CAP), fuse: fuses[POLICY].clone() };
        let queue = Queue::builder()
            .timer(timer)
            .limiter(limiter)
            .seed(1)
            .capacity(if scene == Scene::Full { 8 } else { 10 })
            .give_up_after(times(2), move |_, _| hook.burn("hook"))
            .build();
        if ages {
            queue.track_ages();
        }
        queue.add_rate_limited(switch.key(3)).unwrap();
        manual.advance(BASE);
        queue.try_get().unwrap().done();
        let mut leases = Vec::new();
        for leased in [3, 4, 5, 7] {
            queue.add(switch.key(leased)).unwrap();
            leases.push(queue.try_get().unwrap());
        }
        drop(leases.pop().unwrap().detach());
        queue.add(switch.key(4)).unwrap();
        if scene != Scene::Quiet {
            queue.add_after(switch.key(6), ns(1)).unwrap();
            manual.advance(ns(1));
            queue.add(switch.key(1)).unwrap();
            queue.add(switch.key(2)).unwrap();
        }
        queue
            .add_with(
                switch.key(0),
                AddOptions {
                    delay: ns(10),
                    mode: DelayMode::Debounce { max_wait: ns(20) },
                    ..AddOptions::default()
                },
            )
            .unwrap();
        queue.add_after(switch.key(5), ns(10)).unwrap();
        Self { switch, manual, fuses, queue, leases }
    }

    fn ids(&self) -> BTreeSet<u32> {
        self.queue.keys().iter().map(|record| record.key.id()).collect()
    }

    fn disarm(&self) {
        for fuse in &self.fuses {
            fuse.disarm();
        }
        for point in Point::ALL {
            self.switch.disarm(point);
        }
    }

    /// Performs the operation. Returns whether it panicked.
    fn act(&mut self, act: Operation, armed: impl FnOnce(&Self)) -> bool {
        let many: Vec<_> = [0, 8, 1, 9, 8, 4, 10, 3].map(|id| self.switch.key(id)).into();
        let key = self.switch.key(match act {
            Operation::AddDelayed(key, _) | Operation::AddLimited(key) | Operation::Postpone(key) => key,
            Operation::AddWhenRoom(key) | Operation::BlockingAdd(key) => key,
            _ => 7,
        });
        let mut lease = act.takes_a_lease().then(|| self.leases.remove(0));
        // If the operation takes a lease, this lease was removed from `leases`. Otherwise `held` is the oldest lease, that of key 3.
        let (queue, held) = (&self.queue, self.leases.first());
        let mut many = Some(many);
        let mut key = Some(key);
        let mut future: Option<Task<'_, Given>> = None;
        armed(self);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let mut poll = |task| match future.insert(task).poll() {
                Poll::Ready(given) => given,
                Poll::Pending => Given::Nothing,
            };
            match act {
                Operation::AddDelayed(_, mode) => {
                    return refused(queue.add_with(
                        key.take().unwrap(),
                        AddOptions { delay: ns(5), mode, ..AddOptions::default() },
                    ));
                }
                Operation::AddLimited(_) => return refused(queue.add_rate_limited(key.take().unwrap())),
                Operation::AddMany => return Given::Refused(queue.add_many(many.take().unwrap()).refused),
                Operation::Postpone(_) => {
                    queue.postpone(key.as_ref().unwrap(), ns(5));
                }
                Operation::TryGetMany => return queue.try_get_many(2).map_or(Given::Nothing, Given::Leases),
                Operation::GetMany => {
                    return poll(Task::new(async { Given::Leases(queue.get_many(2).await) }));
                }
                Operation::BlockingGetMany => return Given::Leases(block_on(queue.get_many(2))),
                Operation::AddWhenRoom(_) => {
                    let key = key.take().unwrap();
                    return poll(Task::new(async { refused(queue.add_when_room(key).await) }));
                }
                Operation::BlockingAdd(_) => {
                    return refused(block_on(queue.add_when_room(key.take().unwrap())));
                }
                Operation::Pause => queue.pause(),
                Operation::Resume => queue.resume(),
                Operation::Detach => {
                    return lease.take().map_or(Given::Nothing, |lease| Given::Key(lease.detach()));
                }
                Operation::Done => queue.done(key.as_ref().unwrap()).unwrap(),
                Operation::Die => lease.take().into_iter().for_each(Lease::retry),
                Operation::End(outcome) => lease.take().into_iter().for_each(|lease| lease.end(outcome)),
                Operation::KeepAges => queue.track_ages(),
                Operation::Age => {
                    std::hint::black_box((queue.stats(), held.unwrap().age()));
                }
                Operation::NextOverdue => {
                    let next = async { Given::Overdue(queue.next_overdue(Duration::ZERO).await) };
                    return poll(Task::new(next));
                }
                Operation::WaitIdle => {
                    let idle = async {
                        queue.wait_idle().await;
                        Given::Nothing
                    };
                    return poll(Task::new(idle));
                }
                Operation::DrainWaiting => {
                    return poll(Task::new(async {
                        Given::Left(queue.drain(DrainOptions::serve_waiting(ns(5))).await)
                    }));
                }
                Operation::Keys => return Given::Keys(queue.keys()),
            }
            Given::Nothing
        }));
        self.disarm();
        drop(future);
        drop((key, many));
        match done {
            Ok(Given::Leases(leases)) => {
                self.leases.extend(leases);
                false
            }
            Ok(_) => false,
            Err(_) => true,
        }
    }
}

fn refused<T>(added: Result<T, AddError<PanickingKey>>) -> Given {
    Given::Refused(added.err().into_iter().collect())
}

fn operations(scene: Scene) -> Vec<Operation> {
    let mut operations = vec![
        Operation::AddMany,
        Operation::TryGetMany,
        Operation::GetMany,
        Operation::Pause,
        Operation::Resume,
        Operation::Detach,
        Operation::Done,
        Operation::Die,
        Operation::KeepAges,
        Operation::Age,
        Operation::NextOverdue,
        Operation::WaitIdle,
        Operation::DrainWaiting,
        Operation::Keys,
    ];
    if scene != Scene::Quiet {
        operations.push(Operation::BlockingGetMany);
    }
    operations.extend(OUTCOMES.map(Operation::End));
    if scene != Scene::Full {
        operations.push(Operation::BlockingAdd(8));
    }
    let latest = DelayMode::Debounce { max_wait: ns(50) };
    for key in 0..9 {
        operations.extend(
            [DelayMode::Earliest, DelayMode::Replace, latest].map(|mode| Operation::AddDelayed(key, mode)),
        );
        operations.extend([
            Operation::AddLimited(key),
            Operation::Postpone(key),
            Operation::AddWhenRoom(key),
        ]);
    }
    operations
}

/// Returns the keys that `act` may remove from the queue, and the keys that it may add.
fn may_change(act: Operation) -> (Vec<u32>, Vec<u32>) {
    match act {
        act if act.takes_a_lease() => (vec![3], vec![]),
        Operation::Done => (vec![7], vec![]),
        Operation::AddMany => (vec![], vec![1, 8, 9, 10]),
        Operation::AddDelayed(key, _) | Operation::AddLimited(key) => (vec![], vec![key]),
        Operation::AddWhenRoom(key) | Operation::BlockingAdd(key) => (vec![], vec![key]),
        _ => (vec![], vec![]),
    }
}

/// For each scene, each operation, and each call of user code that the operation makes: performs the operation on a new queue, and lets that call
/// panic. Returns the number of panics.
fn every_act(what: &str, arm: impl Fn(&World, i64)) -> usize {
    let mut panics = 0;
    for (scene, ages) in SCENES.into_iter().flat_map(|scene| [(scene, false), (scene, true)]) {
        for act in operations(scene) {
            for nth in 1.. {
                let mut world = World::new(scene, ages);
                let (switch, queue) = (world.switch.clone(), world.queue.clone());
                let at = format!("{what} panics in call {nth} of {act:?}, {scene:?}, ages: {ages}");
                let before = world.ids();
                let mut idler = Task::waiting(queue.wait_idle());
                let adder = (scene == Scene::Full).then(|| Task::waiting(queue.add_when_room(switch.key(9))));
                let mut getter = (scene == Scene::Quiet).then(|| Task::waiting(queue.get()));
                if !world.act(act, |world| arm(world, nth)) {
                    break;
                }
                panics += 1;
                queue.check().unwrap_or_else(|broken| panic!("{at}: {broken}"));

                // No key is lost, and no other key is added.
                let after = world.ids();
                let (leave, come) = may_change(act);
                assert!(before.difference(&after).all(|id| leave.contains(id)), "{at}: {before:?} {after:?}");
                assert!(after.difference(&before).all(|id| come.contains(id)), "{at}: {before:?} {after:?}");

                // No waiter is stranded.
                let counts = queue.stats();
                if let Some(adder) = &adder {
                    let left = counts.ready + counts.waiting + counts.leased < 8 || queue.is_shutting_down();
                    assert!(!left || adder.was_woken(), "{at}: there is room and the adder was not woken");
                }
                if getter.as_ref().is_some_and(|getter| !getter.was_woken()) {
                    assert!(
                        counts.ready == 0 || queue.stats().paused,
                        "{at}: a key is Ready and the getter was not woken"
                    );
                    let soonest = (0..11).filter_map(|id| match queue.state(&switch.key(id)) {
                        KeyState::Waiting(until) => Some(until),
                        _ => None,
                    });
                    let alarm = world.manual.next_alarm();
                    let rings = |at: Nanos| alarm.is_some_and(|alarm| alarm <= at);
                    assert!(queue.stats().paused || soonest.min().is_none_or(rings), "{at}: alarm {alarm:?}");
                }
                assert!(counts.leased > 0 && idler.poll().is_pending());

                // The queue continues: woken tasks are polled, all leases end, and every key is handed out once.
                let mut out = BTreeSet::new();
                if let Some(told) = getter.as_mut().filter(|getter| getter.was_woken()) {
                    if let Poll::Ready(Some(lease)) = told.poll() {
                        world.leases.push(lease);
                    }
                }
                drop((adder, getter));
                let mut expected = world.ids();
                for lease in world.leases.drain(..) {
                    let id = lease.id();
                    lease.done();
                    if queue.state(&switch.key(id)) == KeyState::Absent {
                        expected.remove(&id);
                    }
                }
                let dirty = queue.stats().dirty;
                if queue.done(&switch.key(7)).is_ok() && dirty == queue.stats().dirty {
                    expected.remove(&7);
                    expected.extend((queue.state(&switch.key(7)) != KeyState::Absent).then_some(7));
                }
                let _ = queue.done(&switch.key(3)).map(|()| expected.remove(&3));
                queue.resume();
                world.manual.advance(ns(1_000));
                while let Ok(lease) = queue.try_get() {
                    assert!(out.insert(lease.id()), "{at}: {} is handed out twice", lease.id());
                    lease.done();
                }
                let left = queue.stop_now();
                out.extend(left.ready.iter().chain(&left.waiting).chain(&left.leased).map(PanickingKey::id));
                drop(left);
                assert_eq!(out, expected, "{at}");
                queue.check().unwrap_or_else(|broken| panic!("{at}, later: {broken}"));
                assert!(
                    idler.was_woken() && idler.is_ready(),
                    "{at}: the queue is idle and the waiter was not woken"
                );
                drop(idler);
                drop((queue, world));
                // If a drop within a function panics, Rust leaks the function's return value.
                assert!(
                    switch.live() == 0 || act == Operation::Detach,
                    "{at}: {} keys leaked",
                    switch.live()
                );
            }
        }
    }
    panics
}

#[test]
fn hash_panics() {
    assert!(every_act("Hash", |world, nth| world.switch.arm(Point::Hash, nth)) >= 300);
}

#[test]
fn eq_panics() {
    assert!(every_act("Eq", |world, nth| world.switch.arm(Point::Eq, nth)) >= 200);
}

#[test]
fn clone_panics() {
    assert!(every_act("Clone", |world, nth| world.switch.arm(Point::Clone, nth)) >= 50);
}

#[test]
fn drop_panics() {
    assert!(every_act("Drop", |world, nth| world.switch.arm(Point::Drop, nth)) >= 100);
}

#[test]
fn clock_panics() {
    assert!(every_act("the clock", |world, nth| world.fuses[CLOCK].arm(nth)) >= 300);
}

#[test]
fn timer_panics() {
    assert!(every_act("the timer", |world, nth| world.fuses[ALARM].arm(nth)) >= 10);
}

#[test]
fn policy_panics() {
    assert!(every_act("the policy", |world, nth| world.fuses[POLICY].arm(nth)) >= 60);
}

#[test]
fn the_hook_panics() {
    assert!(every_act("the hook", |world, nth| world.fuses[HOOK].arm(nth)) >= 6);
}

/// The iterator given to `add_many` runs before anything is added.
#[test]
fn an_iterator_panics() {
    for nth in 0..4 {
        let switch = PanicSwitch::new();
        let queue = Queue::new();
        queue.add(switch.key(0)).unwrap();
        let keys = (0..4).map(|id| {
            assert!(id != nth, "a hostile iterator panics");
            switch.key(id)
        });
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add_many(keys))).is_err());
        queue.check().unwrap();
        assert_eq!((queue.ready_len(), switch.live()), (1, 1));
        assert_eq!(queue.add_many([switch.key(1)]).new, 1);
    }
}

/// Keys that were added before a key whose `Eq` panics are Ready, and a getter is woken for them.
#[test]
fn add_many_breaks_off() {
    let switch = PanicSwitch::new();
    let queue = Queue::new();
    let mut getters = [Task::waiting(queue.get()), Task::waiting(queue.get())];
    let keys = [1, 2, 1, 3].map(|id| switch.key(id));
    switch.arm(Point::Eq, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add_many(keys))).is_err());
    assert_eq!(queue.ready_len(), 2);
    let leases = getters.each_mut().map(|getter| {
        assert!(getter.was_woken());
        getter.finish().unwrap()
    });
    assert_eq!(leases.map(|lease| lease.id()), [1, 2]);
}

/// A batch ends before a key whose `Clone` panics; that key stays Ready.
#[test]
fn a_batch_breaks_off() {
    let switch = PanicSwitch::new();
    let queue = Queue::new();
    _ = queue.add_many((0..4).map(|id| switch.key(id)));
    for nth in [3, 2, 1] {
        switch.arm(Point::Clone, nth);
        let batch = catch_unwind(AssertUnwindSafe(|| queue.try_get_many(9)));
        match nth {
            1 => assert!(batch.is_err(), "a batch without keys was returned"),
            _ => {
                let batch = batch.unwrap().unwrap();
                assert_eq!(batch.len() as i64, nth - 1);
                batch.into_iter().for_each(Lease::retry);
            }
        }
        queue.check().unwrap();
        assert_eq!(queue.ready_len(), 4);
    }
}
