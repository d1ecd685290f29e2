//! Properties of random schedules of delayed adds, on virtual time: a key is never handed out early or late, has one lease at a time, is
//! never lost, and waits no longer than requested.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, Nanos};
use flyball_workqueue::{AddOptions, DelayMode, KeyState, Lease, Queue};
use testkit::random::{Random, cases, cases_are_chosen};

use crate::support::{TimedQueue, ns};
use crate::task::Task;

/// The pending request for one key.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// The earliest and the latest time at which the key may become Ready.
    earliest: u64,
    latest: u64,
}

/// The pending request of a key, and its lease.
#[derive(Default)]
struct KeyRecord {
    request: Option<Request>,
    lease: Option<Lease<u64>>,
    /// The time at which the last lease of the key ended.
    freed: u64,
}

/// A queue with one getter, which is polled as soon as it is woken.
struct Schedule<'a> {
    queue: &'a TimedQueue<u64>,
    clock: &'a ManualClock,
    getter: Task<'a, Option<Lease<u64>>>,
    records: BTreeMap<u64, KeyRecord>,
    served: usize,
    at_their_limit: usize,
}

const KEYS: u64 = 5;

impl<'a> Schedule<'a> {
    fn new(queue: &'a TimedQueue<u64>, clock: &'a ManualClock) -> Self {
        let records = (0..KEYS).map(|key| (key, KeyRecord::default())).collect();
        Self { queue, clock, getter: Task::waiting(queue.get()), records, served: 0, at_their_limit: 0 }
    }

    fn now(&self) -> u64 {
        self.clock.now().get()
    }

    fn request(&mut self, key: u64) -> &mut Option<Request> {
        &mut self.records.get_mut(&key).expect("all keys have a record").request
    }

    fn add(&mut self, key: u64, delay: u64, mode: DelayMode) {
        // A key that is Ready already stays Ready in every mode.
        let ready = matches!(self.queue.state(&key), KeyState::Ready | KeyState::LeasedDirty);
        self.queue.add_with(key, AddOptions { delay: ns(delay), mode, ..AddOptions::default() }).unwrap();
        let at = self.now() + delay;
        let most = match mode {
            DelayMode::Debounce { max_wait } => self.now() + max_wait.as_nanos() as u64,
            _ => at,
        };
        let own = Request { earliest: at.min(most), latest: most };
        *self.request(key) = Some(match (*self.request(key), mode) {
            (Some(request), _) if ready => request,
            (Some(request), DelayMode::Earliest | DelayMode::Debounce { .. }) => Request {
                earliest: request.earliest.min(own.earliest),
                latest: request.latest.min(own.latest),
            },
            _ => own,
        });
        self.check_state(key);
    }

    fn add_now(&mut self, key: u64) {
        self.queue.add(key).unwrap();
        let now = self.now();
        let request = self.request(key);
        let earliest = request.map_or(now, |request| request.earliest.min(now));
        *request = Some(Request { earliest, latest: request.map_or(now, |request| request.latest.min(now)) });
        self.check_state(key);
    }

    fn postpone(&mut self, key: u64, delay: u64) {
        let now = self.now();
        let pending = self.request(key).is_some();
        assert_eq!(self.queue.postpone(&key, ns(delay)), pending, "key {key} at {now}");
        if delay > 0 && pending {
            // The key waits at least for `delay`, or until a later deadline that it already had.
            let state = self.queue.state(&key);
            let (KeyState::Waiting(at) | KeyState::LeasedWaiting(at)) = state else { panic!("{state:?}") };
            let request = self.request(key);
            let longest = request.map_or(0, |request| request.latest).max(now + delay);
            assert!((now + delay..=longest).contains(&at.get()), "{at:?}, {request:?}");
            *request = Some(Request { earliest: at.get(), latest: at.get() });
        }
    }

    fn cancel(&mut self, key: u64) {
        let pending = self.request(key).take().is_some();
        assert_eq!(self.queue.cancel(&key), pending);
    }

    /// Asserts that the state of the key in the queue agrees with the request that this test has recorded for the key.
    fn check_state(&mut self, key: u64) {
        let (state, now) = (self.queue.state(&key), self.now());
        let record = &self.records[&key];
        match (state, record.request) {
            (KeyState::Absent | KeyState::Leased, None) => {}
            (KeyState::Waiting(at) | KeyState::LeasedWaiting(at), Some(request)) => {
                assert!(
                    (request.earliest..=request.latest).contains(&at.get()),
                    "{key}: {at:?}, {request:?}"
                );
                assert!(at.get() > now);
            }
            (KeyState::Ready | KeyState::LeasedDirty, Some(request)) => {
                assert!(request.earliest <= now, "{request:?}")
            }
            (state, request) => panic!("{key}: {state:?}, {request:?}"),
        }
    }

    fn end(&mut self, choice: u64) {
        let held: Vec<_> =
            self.records.iter().filter(|(_, record)| record.lease.is_some()).map(|(key, _)| *key).collect();
        let Some(index) = choice.checked_rem(held.len() as u64) else { return };
        let (key, now) = (held[index as usize], self.now());
        let record = self.records.get_mut(&key).expect("the key is leased");
        let lease = record.lease.take().expect("the key is leased");
        record.freed = now;
        let soonest = |request: Option<Request>, at: u64| Request {
            earliest: request.map_or(at, |request| request.earliest.min(at)),
            latest: request.map_or(at, |request| request.latest.min(at)),
        };
        match choice / 8 % 4 {
            0 => {
                // A key that is dirty when its lease ends becomes Ready immediately, with whatever outcome the lease ends.
                let marked = self.queue.state(&key) == KeyState::LeasedDirty;
                let after = choice % 17;
                if !marked {
                    record.request = Some(soonest(record.request, now + after));
                }
                lease.requeue_after(ns(after));
            }
            1 => {
                record.request = Some(soonest(record.request, now));
                lease.retry();
            }
            _ => lease.done(),
        }
    }

    /// Polls the getter as long as it is woken, and serves each key that it returns. Afterwards the getter waits again.
    fn take(&mut self) {
        let mut woken = self.getter.was_woken();
        while woken {
            woken = match self.getter.poll() {
                Poll::Ready(lease) => {
                    self.serve(lease.expect("the queue is open"));
                    self.getter = Task::new(self.queue.get());
                    true
                }
                Poll::Pending => self.getter.was_woken(),
            };
        }
    }

    fn serve(&mut self, lease: Lease<u64>) {
        let (key, now) = (*lease, self.now());
        let record = self.records.get_mut(&key).expect("all keys have a record");
        assert!(record.lease.is_none(), "{key} is leased twice");
        let request =
            record.request.take().unwrap_or_else(|| panic!("{key} is handed out at {now} without a request"));
        assert!(
            request.earliest.max(record.freed) <= now,
            "{key} is early: {now}, {request:?}, free at {}",
            record.freed
        );
        assert!(
            now <= request.latest.max(record.freed),
            "{key} is late: {now}, {request:?}, free at {}",
            record.freed
        );
        self.at_their_limit += usize::from(now == request.latest && request.earliest < request.latest);
        record.lease = Some(lease);
        self.served += 1;
    }

    /// Advances the clock by `by`, and stops at each alarm on the way to serve the keys that are due.
    fn advance(&mut self, by: u64) {
        let until = Nanos::new(self.now() + by);
        while let Some(alarm) = self.clock.next_alarm().filter(|alarm| *alarm <= until) {
            self.clock.set(alarm);
            self.take();
        }
        self.clock.set(until);
        self.take();
    }
}

#[test]
fn delayed_adds_are_neither_early_nor_late() {
    let (served, at_their_limit) = (Cell::new(0), Cell::new(0));
    cases("delayed_adds_are_neither_early_nor_late", 4_000, 300, |bytes| {
        let clock = ManualClock::new();
        let queue: TimedQueue<u64> = Queue::builder().timer(clock.timer()).build();
        let mut schedule = Schedule::new(&queue, &clock);
        for step in bytes.chunks_exact(3) {
            let [act, key, choice] = [step[0], step[1], step[2]].map(u64::from);
            let key = key % KEYS;
            match act % 16 {
                0..=2 => schedule.add(key, choice % 20, DelayMode::Earliest),
                3..=6 => {
                    let longest = ns(choice / 16 * 3);
                    schedule.add(key, choice % 16, DelayMode::Debounce { max_wait: longest });
                }
                7 | 8 => schedule.add(key, choice % 20, DelayMode::Replace),
                9 => schedule.add_now(key),
                10 => schedule.postpone(key, choice % 12),
                11 => schedule.cancel(key),
                12 | 13 => schedule.end(choice),
                _ => schedule.advance(choice % 12),
            }
            schedule.take();
            queue.check().unwrap();
        }
        // The loop ends all leases and advances the clock until every request has been served.
        for round in 0..100 {
            (0..KEYS).for_each(|_| schedule.end(16));
            schedule.take();
            schedule.advance(50);
            if schedule.records.values().all(|record| record.request.is_none() && record.lease.is_none()) {
                break;
            }
            assert!(round < 99, "a requested key is never handed out");
        }
        assert!(crate::support::holds_nothing(&queue.stats()));
        served.set(served.get() + schedule.served);
        at_their_limit.set(at_their_limit.get() + schedule.at_their_limit);
    });
    let few = served.get() < 20_000 || at_their_limit.get() < 500;
    assert!(!few || cases_are_chosen(), "{} {}", served.get(), at_their_limit.get());
}

/// A key is added again and again with `Debounce`, always before its deadline. For every delay and every interval between the adds, it still becomes
/// Ready exactly `max_wait` after the first add since its last run.
#[test]
fn a_debounce_fed_for_ever() {
    let mut random = Random::new(17);
    for _ in 0..300 {
        let clock = ManualClock::new();
        let queue: TimedQueue<u64> = Queue::builder().timer(clock.timer()).build();
        let (delay, longest) = (2 + random.below(30), 2 + random.below(100));
        let rhythm = 1 + random.below(delay - 1);
        let mut first = None;
        for _ in 0..400 {
            let now = clock.now().get();
            queue
                .add_with(
                    7,
                    AddOptions {
                        delay: ns(delay),
                        mode: DelayMode::Debounce { max_wait: ns(longest) },
                        ..AddOptions::default()
                    },
                )
                .unwrap();
            let due = *first.get_or_insert(now) + longest;
            let next = now + rhythm;
            if due <= next {
                clock.set(Nanos::new(due - 1));
                assert!(!queue.has_ready(), "due at {due}");
                clock.set(Nanos::new(due));
                queue.try_get().expect("it is due").done();
                first = None;
            }
            clock.set(Nanos::new(next));
        }
    }
}

/// A million keys wait, and half of them are cancelled. The others are handed out by deadline; keys with equal deadlines are handed out in the order
/// of their adds.
#[test]
fn a_million_waits() {
    const COUNT: u64 = 1_000_000;
    let clock = ManualClock::new();
    let queue: TimedQueue<u64> = Queue::builder().timer(clock.timer()).build();
    // Multiplying by an odd constant shuffles the deadlines.
    let delay = |key: u64| 1 + key.wrapping_mul(0x9E37_79B9) % 65_536;
    for key in 0..COUNT {
        queue.add_after(key, ns(delay(key))).unwrap();
    }
    for key in (0..COUNT).step_by(2) {
        assert!(queue.cancel(&key));
    }
    assert_eq!(queue.stats().waiting as u64, COUNT / 2);
    clock.advance(Duration::from_nanos(65_536));
    let mut last = (0, 0);
    let mut taken = 0;
    while let Ok(leases) = queue.try_get_many(1_000) {
        for lease in leases {
            let this = (delay(*lease), *lease);
            assert!(last < this && *lease % 2 == 1, "{last:?} before {this:?}");
            last = this;
            taken += 1;
            lease.done();
        }
    }
    assert_eq!(taken, COUNT / 2);
    assert!(crate::support::holds_nothing(&queue.stats()));
}
