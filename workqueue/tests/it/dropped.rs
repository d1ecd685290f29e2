//! Every future of the queue is dropped or leaked at every stage: no key is lost, and the remaining waiters are woken.

use std::task::Poll;
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, Nanos};
use flyball_workqueue::{
    AddError, Added, DrainOptions, KeyState, Lease, Leftovers, OverdueLease, Queue, TryGetError,
};
use futures_util::FutureExt;
use testkit::random::{cases, cases_are_chosen};

use crate::support::{TimedQueue, ns, timed};
use crate::task::{Task, lists};

/// The stage at which a future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Unpolled,
    Parked,
    Woken,
    /// Woken, and parked again because another waiter took the key or the room.
    LostRace,
}

const STAGES: [At; 4] = [At::Unpolled, At::Parked, At::Woken, At::LostRace];

/// For each kind of getter: if the first getter is dropped, the second one takes the key.
#[test]
fn getters_at_every_stage() {
    for at in STAGES {
        for kind in 0..3 {
            let (queue, _clock) = timed();
            let mut first = match kind {
                0 => Task::new(async { queue.get().await.is_some() }),
                1 => Task::new(async { !queue.get_many(9).await.is_empty() }),
                _ => Task::new(streamed(&queue)),
            };
            if at != At::Unpolled {
                assert!(first.poll().is_pending());
            }
            let mut second = Task::waiting(queue.get_many(9));
            if at == At::LostRace {
                queue.add("gone").unwrap();
                assert!(first.was_woken());
                queue.try_get().unwrap().done();
                assert!(first.poll().is_pending());
            }
            if at == At::Woken {
                queue.add("a").unwrap();
                assert!(first.was_woken() && !second.was_woken(), "{at:?} {kind}");
            }
            drop(first);
            queue.add("a").unwrap();
            queue.check().unwrap();
            assert!(second.was_woken(), "{at:?} {kind}");
            assert_eq!(*second.finish()[0], "a");
        }
    }
}

#[cfg(feature = "stream")]
async fn streamed(queue: &TimedQueue) -> bool {
    use futures_core::Stream;
    let mut stream = std::pin::pin!(queue.stream());
    std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await.is_some()
}

#[cfg(not(feature = "stream"))]
async fn streamed(queue: &TimedQueue) -> bool {
    queue.get().await.is_some()
}

#[test]
fn adders_at_every_stage() {
    for at in STAGES {
        let queue = Queue::builder().capacity(1).build();
        queue.add("full").unwrap();
        let mut first = Task::new(queue.add_when_room("first"));
        if at != At::Unpolled {
            assert!(first.poll().is_pending());
        }
        let mut second = Task::waiting(queue.add_when_room("second"));
        if matches!(at, At::Woken | At::LostRace) {
            queue.try_get().unwrap().done();
            assert!(first.was_woken() && !second.was_woken());
        }
        if at == At::LostRace {
            queue.add("robber").unwrap();
            assert!(first.poll().is_pending());
        }
        drop(first);
        if at != At::Woken {
            assert!(!second.was_woken());
            queue.try_get().unwrap().done();
        }
        assert!(second.was_woken(), "{at:?}");
        assert_eq!(second.finish().unwrap(), Added::New);
        assert_eq!(queue.state(&"first"), KeyState::Absent, "a dropped adder has added its key");
        queue.check().unwrap();
    }
}

/// Futures that wait for a state of the queue: dropping one of them at any stage does not affect the others.
#[test]
fn idle_waiters_at_every_stage() {
    type Idler = for<'a> fn(&'a TimedQueue) -> Task<'a, ()>;
    let kinds: [(Idler, &str); 4] = [
        (|queue| Task::new(queue.wait_idle()), "wait_idle"),
        (|queue| Task::new(async move { drop(queue.drain(DrainOptions::unlimited()).await) }), "drain"),
        (
            |queue| Task::new(async move { drop(queue.drain(DrainOptions::serve_waiting(ns(50))).await) }),
            "a drain that serves waiting keys",
        ),
        (
            |queue| Task::new(async move { assert!(queue.next_overdue(ns(10)).await.is_some()) }),
            "next_overdue",
        ),
    ];
    for (onlooker, name) in kinds {
        for at in [At::Unpolled, At::Parked, At::Woken] {
            let (queue, clock) = timed();
            queue.track_ages();
            queue.add("a").unwrap();
            let lease = queue.try_get().unwrap();
            let mut first = onlooker(&queue);
            if at != At::Unpolled {
                assert!(first.poll().is_pending(), "{name}");
            }
            let mut second = onlooker(&queue);
            assert!(second.poll().is_pending(), "{name}");
            if at != At::Woken {
                drop(first);
                first = Task::new(std::future::ready(()));
            }
            if name == "next_overdue" {
                clock.advance(ns(10));
            } else {
                lease.done();
            }
            assert_eq!(first.was_woken(), at == At::Woken, "{name}");
            drop(first);
            assert!(second.was_woken(), "{name} {at:?}");
            second.finish();
            queue.check().unwrap();
        }
    }
}

/// A drain shuts the queue down at its first poll, whether or not it is dropped afterwards.
#[test]
fn a_drain_does_nothing_before_it_is_polled_and_goes_on_when_it_is_dropped() {
    for waiting in [false, true] {
        for polls in 0..3 {
            let (queue, clock) = timed();
            queue.add_after("soon", ns(5)).unwrap();
            queue.add("a").unwrap();
            let mut drain = Task::new(async {
                if waiting {
                    queue.drain(DrainOptions::serve_waiting(ns(20))).await
                } else {
                    queue.drain(DrainOptions::unlimited()).await
                }
            });
            for _ in 0..polls {
                assert!(drain.poll().is_pending());
            }
            drop(drain);
            assert_eq!(queue.is_shutting_down(), polls > 0);
            if polls == 0 {
                continue;
            }
            queue.try_get().unwrap().done();
            clock.advance(ns(5));
            let (left, served) =
                (queue.try_get().ok().map(|lease| lease.detach()), waiting.then_some("soon"));
            assert_eq!(left, served, "dropping the drain changed whether delayed keys are served");
            if let Some(key) = left {
                queue.done(&key).unwrap();
            }
            let left =
                queue.drain(DrainOptions::unlimited()).now_or_never().expect("no key is Ready or leased");
            assert_eq!(lists(left).1, if waiting { vec![] } else { vec!["soon"] });
        }
    }
}

/// A future that is polled and then leaked receives at most one wake-up. All other wake-ups go to the remaining futures.
#[test]
fn forgotten_futures() {
    let clock = ManualClock::new();
    let queue: TimedQueue = Queue::builder().timer(clock.timer()).capacity(2).build();
    queue.track_ages();
    Task::waiting(queue.get_many(3)).leak();
    Task::waiting(queue.next_overdue(ns(10))).leak();
    _ = queue.add_many(["a", "b"]);
    Task::waiting(queue.add_when_room("c")).leak();
    let leases = queue.try_get_many(9).unwrap();
    Task::waiting(queue.wait_idle()).leak();
    let (mut idle, mut overdue) =
        (Task::waiting(queue.wait_idle()), Task::waiting(queue.next_overdue(ns(10))));
    clock.advance(ns(10));
    assert!(overdue.was_woken() && overdue.is_ready());
    let mut getter = Task::waiting(queue.get());
    let (mut adder, mut other) =
        (Task::waiting(queue.add_when_room("d")), Task::waiting(queue.add_when_room("e")));
    leases.into_iter().for_each(Lease::done);
    assert!(idle.was_woken() && idle.is_ready());
    // There is room for two keys, and one of the three waiting adders was leaked.
    assert!(adder.was_woken() && !other.was_woken());
    adder.finish().unwrap();
    assert!(getter.was_woken());
    getter.finish().unwrap().done();
    assert!(other.was_woken(), "the leaked adder kept a second wake-up");
    other.finish().unwrap();
    Task::waiting(queue.drain(DrainOptions::unlimited())).leak();
    let mut drain = Task::waiting(queue.drain(DrainOptions::unlimited()));
    queue.try_get().unwrap().done();
    assert!(drain.was_woken());
    drain.finish();
    queue.check().unwrap();
}

/// If a getter was woken by the alarm and is not polled, it may delay the key that it was woken for, but nothing else: waiters that wait for later
/// times are woken at those times.
#[test]
fn a_stalled_getter_keeps_one_key_from_the_others() {
    for order in 0..2 {
        let (queue, clock) = timed();
        queue.track_ages();
        queue.add("stuck").unwrap();
        let _ = queue.try_get().unwrap().detach();
        queue.add_after("first", ns(20)).unwrap();
        queue.add_after("second", ns(30)).unwrap();
        let stalled = Task::waiting(queue.get());
        let mut watcher = Task::waiting(queue.next_overdue(ns(50)));
        let mut getter = Task::waiting(queue.get());
        if order == 1 {
            queue.add_after("earlier", ns(10)).unwrap();
            clock.set(Nanos::new(10));
            assert!(stalled.was_woken() && !getter.was_woken());
        }
        clock.set(Nanos::new(20));
        assert!(stalled.was_woken());
        clock.set(Nanos::new(30));
        assert!(getter.was_woken(), "the second due key woke no other getter");
        getter.finish().unwrap().done();
        clock.set(Nanos::new(50));
        assert!(watcher.was_woken(), "the watcher was not woken");
        assert_eq!(watcher.finish().map(|overdue| overdue.key), Some("stuck"));
        let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(40))));
        clock.set(Nanos::new(90));
        assert!(drain.was_woken());
        assert_eq!(lists(drain.finish()).2, ["stuck"]);
        queue.check().unwrap();
    }
}

/// An adder that is polled after it has completed panics with a clear message.
#[test]
fn an_adder_answers_once() {
    let queue = Queue::new();
    let mut adder = Box::pin(queue.add_when_room("a"));
    assert!(testkit::wakers::poll_once(adder.as_mut()).is_ready());
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = testkit::wakers::poll_once(adder.as_mut());
    }));
    let message = again.unwrap_err();
    assert_eq!(message.downcast_ref::<&str>(), Some(&"polled after it was ready"));
    queue.check().unwrap();
}

// ---- random operation sequences --------------------------------------------------------------------------------

const KEYS: u64 = 6;
const ROOM: usize = 4;

/// A lease, the time at which it began, and whether it was reported as overdue.
struct Held {
    lease: Lease<u64>,
    since: Nanos,
    reported: bool,
}

/// Waiters of all kinds for one queue.
struct Waiters<'a> {
    queue: &'a TimedQueue<u64>,
    clock: &'a ManualClock,
    getters: Vec<Task<'a, Vec<Lease<u64>>>>,
    adders: Vec<Task<'a, Result<Added, AddError<u64>>>>,
    idlers: Vec<Task<'a, ()>>,
    drainers: Vec<(Option<Nanos>, Task<'a, Leftovers<u64>>)>,
    watchers: Vec<(Duration, Task<'a, Option<OverdueLease<u64>>>)>,
    held: Vec<Held>,
    stopped: bool,
    /// For each kind of waiter, the number of times that its condition held.
    known: [usize; 5],
}

impl<'a> Waiters<'a> {
    fn step(&mut self, act: u8, choice: u8) {
        let (queue, choice) = (self.queue, u64::from(choice));
        let key = choice % KEYS;
        match act % 32 {
            0..=2 => drop(queue.add(key)),
            3 => drop(queue.add_many([key, (key + 1) % KEYS])),
            4 | 5 => drop(queue.add_after(key, ns(1 + choice % 9))),
            6 => drop(queue.postpone(&key, ns(choice % 9))),
            7 => drop(queue.cancel(&key)),
            8 | 10 => self.getters.push(Task::new(async move { queue.get().await.into_iter().collect() })),
            9 => self.getters.push(Task::new(queue.get_many(2))),
            11 | 12 => self.adders.push(Task::new(queue.add_when_room(key))),
            13 => self.idlers.push(Task::new(queue.wait_idle())),
            14 => {
                let bound = ns(choice % 12);
                self.watchers.push((bound, Task::new(queue.next_overdue(bound))));
            }
            15..=17 => self.poll_getter(choice as usize),
            18 => self.poll_adder(choice as usize),
            19 => self.poll_idler(choice as usize),
            20 | 21 => self.drop_one(choice as usize),
            22..=24 => self.end_lease(choice),
            25 => {
                if let Ok(leases) = queue.try_get_many(1) {
                    self.hold(leases);
                }
            }
            26 | 27 => self.clock.advance(ns(choice % 5)),
            28 => {
                if choice % 2 == 0 {
                    queue.pause();
                } else {
                    queue.resume();
                }
            }
            30 if choice < 40 => self.drain(None, Task::new(queue.drain(DrainOptions::unlimited()))),
            30 if choice < 80 => {
                let limit = ns(choice % 16);
                let until = self.clock.now() + limit;
                self.drain(Some(until), Task::new(queue.drain(DrainOptions::serve_waiting(limit))));
            }
            31 if choice < 10 => queue.shut_down(),
            31 if choice < 16 => {
                drop(queue.stop_now());
                self.stopped = true;
            }
            _ => {}
        }
    }

    /// Polls a drain once, which shuts the queue down.
    fn drain(&mut self, until: Option<Nanos>, mut drain: Task<'a, Leftovers<u64>>) {
        match drain.poll() {
            Poll::Pending => self.drainers.push((until, drain)),
            Poll::Ready(left) => {
                let counts = self.queue.stats();
                let over = until.is_some_and(|until| until <= self.clock.now());
                assert!(
                    over || self.stopped || (counts.ready, counts.leased) == (0, 0),
                    "{left:?} {counts:?}"
                );
            }
        }
    }

    fn hold(&mut self, leases: Vec<Lease<u64>>) {
        let since = self.clock.now();
        for lease in leases {
            assert!(self.held.iter().all(|held| *held.lease != *lease), "{} is leased twice", *lease);
            self.held.push(Held { lease, since, reported: false });
        }
    }

    fn poll_getter(&mut self, choice: usize) {
        let Some(index) = choice.checked_rem(self.getters.len()) else { return };
        if let Poll::Ready(leases) = self.getters[index].poll() {
            drop(self.getters.swap_remove(index));
            self.hold(leases);
        }
    }

    fn poll_adder(&mut self, choice: usize) {
        let Some(index) = choice.checked_rem(self.adders.len()) else { return };
        if self.adders[index].is_ready() {
            drop(self.adders.swap_remove(index));
        }
    }

    fn poll_idler(&mut self, choice: usize) {
        let (idlers, drainers, watchers) = (self.idlers.len(), self.drainers.len(), self.watchers.len());
        let Some(index) = choice.checked_rem(idlers + drainers + watchers) else { return };
        if index < idlers {
            if self.idlers[index].is_ready() {
                drop(self.idlers.swap_remove(index));
            }
        } else if index < idlers + drainers {
            if self.drainers[index - idlers].1.is_ready() {
                drop(self.drainers.swap_remove(index - idlers));
            }
        } else {
            self.poll_watcher(index - idlers - drainers);
        }
    }

    fn poll_watcher(&mut self, index: usize) {
        let Poll::Ready(overdue) = self.watchers[index].1.poll() else { return };
        let (bound, _) = self.watchers.swap_remove(index);
        let Some(OverdueLease { key, age, .. }) = overdue else {
            assert!(self.stopped || self.held.is_empty(), "{} leases are held", self.held.len());
            return;
        };
        let now = self.clock.now();
        let oldest = self.held.iter().filter(|held| !held.reported).map(|held| held.since).min();
        let held = self.held.iter_mut().find(|held| *held.lease == key).expect("the reported key is leased");
        assert!(!held.reported, "{key} was reported twice");
        assert!(age == now.since(held.since) && age >= bound, "{key} at {age:?}, bound {bound:?}");
        assert_eq!(Some(held.since), oldest, "not the oldest lease was reported");
        held.reported = true;
    }

    fn drop_one(&mut self, choice: usize) {
        match choice % 5 {
            0 if !self.getters.is_empty() => drop(self.getters.swap_remove(choice / 5 % self.getters.len())),
            1 if !self.adders.is_empty() => drop(self.adders.swap_remove(choice / 5 % self.adders.len())),
            2 if !self.idlers.is_empty() => drop(self.idlers.swap_remove(choice / 5 % self.idlers.len())),
            3 if !self.drainers.is_empty() => {
                drop(self.drainers.swap_remove(choice / 5 % self.drainers.len()))
            }
            4 if !self.watchers.is_empty() => {
                drop(self.watchers.swap_remove(choice / 5 % self.watchers.len()))
            }
            _ => {}
        }
    }

    fn end_lease(&mut self, choice: u64) {
        let Some(index) = (choice as usize).checked_rem(self.held.len()) else { return };
        let lease = self.held.remove(index).lease;
        match choice / 8 % 5 {
            0 | 1 => lease.done(),
            2 => lease.requeue_after(ns(choice % 6)),
            3 => lease.retry(),
            _ => {
                let key = lease.detach();
                self.queue.done(&key).unwrap();
            }
        }
    }

    /// Asserts that each waiter was woken if its condition holds, and that an alarm is set if a waiter waits for a certain time.
    fn assert_woken(&mut self) {
        let (queue, now) = (self.queue, self.clock.now());
        queue.check().unwrap();
        let counts = queue.stats();
        let closed = counts.ready == 0 && queue.try_get().err() == Some(TryGetError::Closed);
        let idle = counts.ready + counts.leased == 0;
        let drained = closed && (self.stopped || counts.leased == 0);
        let alarm = self.clock.next_alarm();
        assert!(alarm.is_none_or(|alarm| alarm > now), "the alarm is set for a time that has passed");
        let rings_by = |moment: Nanos| alarm.is_some_and(|alarm| alarm <= moment);

        let getters = self.getters.iter().filter(|task| task.is_parked()).count();
        let on_their_way = self.getters.iter().filter(|task| task.was_woken()).count();
        if closed {
            assert_eq!(on_their_way, getters, "the queue is closed and a getter was not woken");
            self.known[0] += getters;
        } else if getters > on_their_way && !queue.stats().paused {
            assert!(counts.ready == 0 || on_their_way > 0, "a key is Ready and no getter was woken");
            self.known[0] += counts.ready;
            let soonest = (0..KEYS).filter_map(|key| match queue.state(&key) {
                KeyState::Waiting(at) => Some(at),
                _ => None,
            });
            // Not checked after a shutdown, because a waiting key may then never become Ready, and a drain that still hands out delayed keys sets its
            // own alarm.
            if let Some(soonest) = soonest.min().filter(|_| on_their_way == 0 && !queue.is_shutting_down()) {
                assert!(rings_by(soonest), "a key and a getter wait, and no alarm is set");
            }
        }

        let adders = self.adders.iter().filter(|task| task.is_parked()).count();
        let let_in = self.adders.iter().filter(|task| task.was_woken()).count();
        let room = ROOM.saturating_sub(counts.ready + counts.waiting + counts.leased);
        let expected = if queue.is_shutting_down() { adders } else { room.min(adders) };
        assert!(let_in >= expected, "{adders} adders wait, {let_in} of {expected} were woken");
        self.known[1] += expected;

        if idle {
            assert!(
                self.idlers.iter().all(|task| !task.is_parked() || task.was_woken()),
                "the queue is idle and a waiter was not woken"
            );
            self.known[2] += self.idlers.len();
        }
        for (until, _) in self.drainers.iter().filter(|(_, task)| task.is_parked() && !task.was_woken()) {
            assert!(!drained, "the queue is drained and a drain was not woken");
            assert!(
                until.is_none_or(|until| rings_by(until) || on_their_way > 0),
                "a drain with a limit has no alarm"
            );
        }
        self.known[3] += usize::from(drained) * self.drainers.len();
        let oldest = self.held.iter().filter(|held| !held.reported).map(|held| held.since).min();
        let watch = self.watchers.iter().filter(|(_, task)| task.was_woken()).count();
        for (bound, _) in self.watchers.iter().filter(|(_, task)| task.is_parked() && !task.was_woken()) {
            assert!(!drained, "the queue is drained and a watcher was not woken");
            // A watcher that was woken sets the alarm for the others when it is polled.
            if let Some(oldest) = oldest.filter(|_| watch == 0) {
                assert!(
                    rings_by(oldest + *bound),
                    "a lease from {oldest:?}, bound {bound:?}, alarm {alarm:?}"
                );
            }
        }
        self.known[4] += self.watchers.iter().filter(|(_, task)| task.was_woken()).count();
    }

    /// Polls only woken tasks, and moves the clock only to its alarms: every waiter must still complete.
    fn settle(&mut self) {
        self.queue.resume();
        loop {
            if let Some(index) = self.getters.iter().position(Task::was_woken) {
                self.poll_getter(index);
                while let Some(held) = self.held.pop() {
                    held.lease.done();
                }
            } else if let Some(index) = self.adders.iter().position(Task::was_woken) {
                self.poll_adder(index);
            } else if let Some(index) = self.idlers.iter().position(Task::was_woken) {
                self.poll_idler(index);
            } else if let Some(index) = self.drainers.iter().position(|(_, task)| task.was_woken()) {
                self.poll_idler(self.idlers.len() + index);
            } else if let Some(index) = self.watchers.iter().position(|(_, task)| task.was_woken()) {
                self.poll_watcher(index);
            } else if let Some(alarm) = self.clock.next_alarm() {
                self.clock.set(alarm);
            } else {
                break;
            }
            self.assert_woken();
        }
    }
}

/// Random operation sequences: waiters of all kinds are created, polled and dropped at any time.
#[test]
fn random_waiters_dropped_at_any_poll() {
    let known = std::cell::Cell::new([0; 5]);
    cases("random_waiters_dropped_at_any_poll", 6_000, 240, |bytes| {
        let clock = ManualClock::new();
        let queue: TimedQueue<u64> = Queue::builder().timer(clock.timer()).capacity(ROOM).build();
        queue.track_ages();
        let mut waiters = Waiters {
            queue: &queue,
            clock: &clock,
            getters: Vec::new(),
            adders: Vec::new(),
            idlers: Vec::new(),
            drainers: Vec::new(),
            watchers: Vec::new(),
            held: Vec::new(),
            stopped: false,
            known: [0; 5],
        };
        for pair in bytes.chunks_exact(2) {
            waiters.step(pair[0], pair[1]);
            waiters.assert_woken();
        }
        while let Some(held) = waiters.held.pop() {
            held.lease.done();
        }
        waiters.settle();
        let counts = queue.stats();
        let getters = waiters.getters.iter().any(Task::is_parked);
        assert!(!getters || queue.is_shutting_down() || counts.ready + counts.waiting == 0, "{counts:?}");
        let mut total = known.get();
        total.iter_mut().zip(waiters.known).for_each(|(total, own)| *total += own);
        known.set(total);
    });
    let known = known.get();
    assert!(known.iter().all(|times| *times > 500) || cases_are_chosen(), "{known:?}");
}
