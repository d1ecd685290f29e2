//! Runs a limiter of each kind whose callers wait, all on one clock that is moved by hand in both directions: a bucket with a wait queue, a limit on
//! concurrency, and buckets by key with more keys than fit.
//!
//! The futures stay: they are polled late, polled without a wake-up, polled with another waker, dropped, and forgotten. (The driver `bucket::wait_queue`
//! compares a bucket with an exact oracle; here, no token is predicted, but its futures live longer.) The simulation checks after every step:
//!
//! 1. **Invariants**: `check()` of each limiter; what is available is what can be taken.
//! 2. **Rate**: no window contains more tokens than `burst` + rate × its length, of the bucket and of each key, by a search of all windows. A change
//!    of the quota and a jump back start anew.
//! 3. **Liveness**: the futures that were not woken are those that the limiters count as waiters; no time limit has passed. The limit on concurrency
//!    has woken exactly the futures that its oracle, `slots`, gives a slot. At the end of the run, everything that waits is served.
//! 4. **No wake-up without cause**: a future that waits for tokens is woken once, and its next poll completes. A future that waits for a permit is
//!    woken once for each slot that it is given.
//! 5. **Alarms**: an alarm is armed if, and only if, a future waits in the bucket. It is not later than the first time limit. Of two alarms in a row,
//!    one serves a waiter.
//! 6. **Order**: no waiter for tokens overtakes another.
//! 7. **Steps under a lock**: an operation on a key hashes the key once, clones it at most once, and compares it with few others.

mod keys;
mod op;
mod slots;
mod uses;
mod waiter;

use std::num::NonZeroU32;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter, Permit, RateLimiter, Reservation, TryAcquireError};
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, block_on};
use testkit::wakers::poll_once;

use keys::Keys;
use op::{End, Op, SmallQuota, Wait};
use slots::Slots;
use uses::{UseId, Uses};
use waiter::{Answer, Waiter};

/// The maximum number of operations, and of futures at a time.
const MOST: usize = 200;
const WAITERS: usize = 12;

/// The fuzz target `limiter_simulation`. The first bytes select the quotas and the limits.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok((quota, by_key, choice)) = <(SmallQuota, SmallQuota, u8)>::arbitrary(&mut input) else { return };
    let clock = ManualClock::new();
    let most = NonZeroU32::new([1, 2, 8, 64][usize::from(choice % 4)]).expect("not zero");
    let bound = Duration::from_nanos(u64::from(choice / 4 % 4) * 3);
    let limits = AimdLimit::new(1..=4, bound).initial_limit(u32::from(choice / 16 % 4) + 1);
    let mut simulation = Simulation {
        bucket: RateLimiter::with_timer(quota.quota(), clock.timer()),
        slots: ConcurrencyLimiter::with_clock(limits, clock.clone()),
        keys: Keys::new(by_key, most, &clock),
        clock,
        uses: Uses::new(quota),
        expected: Slots::default(),
        waiters: Vec::new(),
        leaked: Vec::new(),
        permits: Vec::new(),
        held: Vec::new(),
        next_id: 0,
        was_early: false,
        jumps_back: choice / 64 % 2 == 1,
        latest: Nanos::ZERO,
    };
    for step in 1..=MOST {
        if input.is_empty() {
            break;
        }
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        if *TRACE {
            eprintln!("step {step}, at {}: {op:?}", simulation.clock.now().get());
        }
        simulation.step(op);
    }
    simulation.finish();
}

struct Simulation {
    bucket: RateLimiter<ManualTimer>,
    slots: ConcurrencyLimiter<ManualClock>,
    keys: Keys,
    clock: ManualClock,
    /// The uses of the bucket.
    uses: Uses,
    expected: Slots,
    waiters: Vec<Waiter>,
    /// Kept until the run is over, because a leak checker would report a leak.
    leaked: Vec<Waiter>,
    permits: Vec<Permit<ManualClock>>,
    held: Vec<(Reservation, UseId)>,
    next_id: u64,
    /// Whether the last operation moved the clock to an alarm that served no waiter.
    was_early: bool,
    jumps_back: bool,
    /// The latest time.
    latest: Nanos,
}

impl Simulation {
    fn step(&mut self, op: Op) {
        let was_early = std::mem::take(&mut self.was_early);
        match op {
            Op::Start(wait) => self.start(wait),
            Op::Poll(index, anew) => {
                if let Some(index) = self.index(index) {
                    if anew {
                        self.waiters[index].replace_waker(&self.clock);
                    }
                    self.poll(index);
                }
            }
            Op::Drop(index) => {
                if let Some(index) = self.index(index) {
                    let waiter = self.waiters.swap_remove(index);
                    if waiter.wait == Wait::Permit {
                        self.expected.leave(waiter.id, self.limit(), self.clock.now());
                    }
                }
            }
            Op::Leak(index) => {
                if let Some(index) = self.index(index) {
                    self.leaked.push(self.waiters.swap_remove(index));
                }
            }
            Op::PollWoken => self.poll_woken(),
            Op::Block(Some(count)) => {
                let answer = block_on(self.bucket.acquire_many_timeout(count, Duration::ZERO));
                self.took(count, answer.map_err(|error| matches!(error, TryAcquireError::NotYet(_))));
            }
            Op::Block(None) => {
                let (id, now) = (self.draw_id(), self.clock.now());
                let expected = self.expected.poll(id, self.limit(), now);
                // The first poll may only yield.
                let mut acquire = pin!(self.slots.acquire());
                let permit = (0..2).find_map(|_| match poll_once(acquire.as_mut()) {
                    Poll::Ready(permit) => Some(permit),
                    Poll::Pending => None,
                });
                if !expected {
                    self.expected.leave(id, self.limit(), now);
                }
                assert_eq!(permit.is_some(), expected, "a permit for a thread");
                self.permits.extend(permit);
            }
            Op::Try(count) => {
                let available = self.bucket.available_tokens();
                let answer = self.bucket.try_acquire_many(count);
                assert_eq!(answer.is_ok(), count.get() <= available, "{count} of {available}: {answer:?}");
                if let Err(TryAcquireError::NotYet(not_yet)) = &answer {
                    assert!(!not_yet.retry_after().is_zero(), "{not_yet}");
                }
                self.took(count, answer.map_err(|error| matches!(error, TryAcquireError::NotYet(_))));
            }
            Op::Reserve(count) => self.reserve(count),
            Op::Cancel(index) => {
                if !self.held.is_empty() {
                    let (reserved, id) = self.held.swap_remove(usize::from(index) % self.held.len());
                    if self.bucket.cancel(reserved) {
                        self.uses.remove(id);
                    }
                }
            }
            Op::SetQuota(quota) => {
                self.bucket.set_quota(quota.quota());
                self.uses.set_quota(quota);
            }
            Op::TryPermit => {
                let expected = self.expected.try_acquire(self.limit(), self.clock.now());
                let permit = self.slots.try_acquire();
                assert_eq!(permit.is_some(), expected, "a permit");
                self.permits.extend(permit);
            }
            Op::End(index, how) => {
                if !self.permits.is_empty() {
                    let permit = self.permits.swap_remove(usize::from(index) % self.permits.len());
                    self.end(permit, how);
                }
            }
            Op::KeyTry(key, count) => _ = self.keys.try_acquire(key, count),
            Op::KeyWait(key, count) => {
                if let Some(due) = self.keys.try_acquire(key, count) {
                    self.clock.set(due);
                    let again = self.keys.try_acquire(key, count);
                    assert_eq!(again, None, "{count} tokens were promised for {due:?}");
                }
            }
            Op::KeyReserve(key, count) => self.keys.reserve(key, count),
            Op::KeyCancel(index) => self.keys.cancel(index),
            Op::KeySetQuota(quota) => self.keys.set_quota(quota),
            Op::Advance(step) => self.clock.advance(step.0),
            Op::NextAlarm => {
                if let Some(at) = self.clock.next_alarm() {
                    let before = self.bucket.waiters();
                    self.clock.set(at);
                    self.was_early = self.bucket.waiters() == before;
                    assert!(
                        !was_early || !self.was_early,
                        "alarm: two alarms in a row have served no waiter"
                    );
                }
            }
            Op::Back(step) if self.jumps_back => {
                let back = Nanos::from_duration(step.0).get();
                self.clock.set(Nanos::new(self.clock.now().get().saturating_sub(back)));
                // A reservation that was due is due again, and the bucket cannot know that its token was used.
                self.held.clear();
                self.uses.new_era();
                self.keys.jumped_back();
            }
            Op::Back(_) => {}
        }
        self.check();
    }

    fn index(&self, index: u8) -> Option<usize> {
        (!self.waiters.is_empty()).then(|| usize::from(index) % self.waiters.len())
    }

    fn limit(&self) -> usize {
        self.slots.limit() as usize
    }

    fn draw_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Notes the tokens that were taken at once. An error is true if the request was not for more than the burst.
    fn took(&mut self, count: NonZeroU32, answer: Result<(), bool>) {
        let burst = self.uses.burst();
        match answer {
            Ok(()) => {
                assert_eq!(
                    self.bucket.waiters(),
                    0,
                    "order: {count} tokens were taken before those of a waiter"
                );
                let now = self.clock.now().get();
                self.uses.add(now, now, count.get());
            }
            Err(fits) => assert_eq!(fits, count.get() <= burst, "{count} tokens, with a burst of {burst}"),
        }
    }

    fn reserve(&mut self, count: NonZeroU32) {
        let (now, burst) = (self.clock.now(), self.uses.burst());
        let Ok(reserved) = self.bucket.reserve_many(count) else {
            assert!(count.get() > burst, "{count} tokens, with a burst of {burst}");
            return;
        };
        let due = reserved.due();
        assert!(due >= now, "{reserved:?}");
        // A reservation fixes the due times of the waiters. Their tokens count as used at these times, which are not known here.
        let era = self.uses.era();
        for waiter in self.waiters.iter_mut().chain(&mut self.leaked).filter(|waiter| !waiter.is_woken()) {
            waiter.promised = waiter.promised.or(Some((era, Nanos::new(now.get().saturating_sub(1)))));
        }
        let id = self.uses.reserve(due, count.get());
        self.held.push((reserved, id));
    }

    fn end(&mut self, permit: Permit<ManualClock>, how: End) {
        match how {
            End::Succeed => permit.succeed(),
            End::Fail => permit.fail(),
            End::Ignore => permit.ignore(),
            End::Drop => drop(permit),
        }
        self.expected.end(self.limit(), self.clock.now());
    }

    fn start(&mut self, wait: Wait) {
        if self.waiters.len() >= WAITERS {
            return;
        }
        let id = self.draw_id();
        self.waiters.push(Waiter::new(id, wait, &self.bucket, &self.slots, &self.clock));
        self.poll_at(self.waiters.len() - 1, true);
    }

    fn poll(&mut self, index: usize) {
        self.poll_at(index, false);
    }

    fn poll_at(&mut self, index: usize, is_first: bool) {
        let (limit, now) = (self.limit(), self.clock.now());
        let waiter = &mut self.waiters[index];
        let (was_woken, wakes) = (waiter.is_woken(), waiter.wakes());
        let polled = waiter.poll(is_first);
        if waiter.wait == Wait::Permit {
            let expected = self.expected.poll(waiter.id, limit, now);
            assert_eq!(polled.is_ready(), expected, "liveness: a future polled for its permit");
        } else if !is_first {
            assert_eq!(polled.is_ready(), was_woken, "cause: {:?} was woken: {was_woken}", waiter.wait);
        }
        waiter.used = wakes;
        let Poll::Ready(answer) = polled else { return };
        let waiter = self.waiters.swap_remove(index);
        match answer {
            Answer::Permit(permit) => self.permits.push(permit),
            Answer::Tokens(answer) => self.answered(&waiter, answer, is_first),
        }
    }

    fn answered(&mut self, waiter: &Waiter, answer: Result<(), TryAcquireError>, is_first: bool) {
        let (now, era) = (self.clock.now(), self.uses.era());
        let count = waiter.tokens().expect("it has waited for tokens");
        let at = if is_first { now } else { waiter.woken_at() };
        let this_era = is_first || waiter.woken_in == Some(era);
        match answer {
            Ok(()) => {
                let mut others = self.waiters.iter().chain(&self.leaked).filter(|other| !other.is_woken());
                let before = others.find(|other| other.tokens().is_some() && other.id < waiter.id);
                assert!(before.is_none(), "order: {:?} was overtaken", before.map(|before| before.wait));
                let from = match waiter.promised {
                    Some((promised_in, from)) => (promised_in == era).then_some(from.min(at)),
                    None => this_era.then_some(at),
                };
                if let Some(from) = from {
                    // A future whose limit had passed when it was woken may have taken its tokens at this late poll.
                    let is_late = waiter.until.is_some_and(|until| until <= at);
                    let to = if is_late { at.max(now) } else { at };
                    self.uses.add(from.get(), to.get(), count);
                }
            }
            // The tokens are due too late.
            Err(TryAcquireError::NotYet(not_yet)) if is_first => {
                let (due, until) = (now + not_yet.retry_after(), waiter.until);
                assert!(
                    until.is_some_and(|until| until < due || until == now),
                    "refused: {due:?}, {until:?}"
                );
            }
            Err(TryAcquireError::NotYet(_)) => {
                let until = waiter.until;
                assert!(
                    until.is_some_and(|until| until <= at),
                    "timed out at {at:?}, with the limit {until:?}"
                );
            }
            Err(TryAcquireError::InsufficientCapacity(error)) => {
                assert!(count > error.burst().get(), "{count} tokens: {error}");
            }
        }
    }

    /// Polls the woken futures until none is woken. A future that was given a slot in this step has not lost it yet, so none is polled three times.
    fn poll_woken(&mut self) {
        let mut left = 2 * self.waiters.len();
        while let Some(index) = self.waiters.iter().position(Waiter::is_woken) {
            assert!(left > 0, "cause: futures wake each other without end");
            left -= 1;
            self.poll(index);
            self.check();
        }
    }

    fn check(&mut self) {
        self.bucket.check().unwrap_or_else(|broken| panic!("{broken}"));
        self.slots.check().unwrap_or_else(|broken| panic!("{broken}"));
        self.keys.check();
        self.note_wakes();
        let waiting = |waiter: &&Waiter| waiter.tokens().is_some() && !waiter.is_woken();
        let for_tokens: Vec<_> = self.waiters.iter().chain(&self.leaked).filter(waiting).collect();
        assert_eq!(
            self.bucket.waiters(),
            for_tokens.len(),
            "liveness: waiters for tokens that were not woken"
        );
        let counted = (self.slots.in_flight() as usize, self.slots.waiters());
        assert_eq!(counted, (self.expected.in_flight(), self.expected.waiting()), "in flight, waiting");
        let (now, alarm) = (self.clock.now(), self.clock.next_alarm());
        self.latest = self.latest.max(now);
        assert_eq!(
            alarm.is_some(),
            !for_tokens.is_empty(),
            "alarm: {alarm:?}, for {} waiters",
            for_tokens.len()
        );
        assert!(alarm.is_none_or(|alarm| alarm > now), "liveness: an alarm is armed for the past");
        for until in for_tokens.iter().filter_map(|waiter| waiter.until) {
            assert!(until > now, "liveness: the limit {until:?} has passed at {now:?}");
            assert!(alarm <= Some(until), "liveness: no alarm is armed for {until:?}, but for {alarm:?}");
        }
    }

    /// Checks how often each future was woken.
    fn note_wakes(&mut self) {
        let era = self.uses.era();
        for waiter in self.waiters.iter_mut().chain(&mut self.leaked) {
            waiter.check_replaced();
            if waiter.wait == Wait::Permit {
                let given = self.expected.woken.iter().filter(|id| **id == waiter.id).count();
                assert_eq!(waiter.wakes(), given, "liveness, cause: wake-ups and slots of a future");
            } else {
                assert!(waiter.wakes() <= 1, "cause: {:?} was woken twice", waiter.wait);
                if waiter.is_woken() {
                    waiter.woken_in.get_or_insert(era);
                }
            }
        }
    }

    /// Serves everything that waits. No slot and no alarm is left.
    fn finish(&mut self) {
        // A slot is reserved by the latest time that the limit on concurrency has read, and is taken back only after that time.
        self.clock.set(self.latest);
        for _ in 0..=2 * self.bucket.waiters() {
            self.step(Op::NextAlarm);
        }
        assert_eq!(self.bucket.waiters(), 0, "liveness: alarms do not serve the waiters");
        for _ in 0..=self.waiters.len() + self.leaked.len() {
            while let Some(permit) = self.permits.pop() {
                self.end(permit, End::Ignore);
                self.check();
            }
            self.step(Op::PollWoken);
            self.clock.advance(Duration::from_millis(100));
            self.step(Op::TryPermit);
        }
        self.step(Op::PollWoken);
        assert!(self.waiters.is_empty(), "liveness: {} futures wait for ever", self.waiters.len());
        self.permits.clear();
        self.leaked.clear();
        assert_eq!((self.slots.in_flight(), self.slots.waiters()), (0, 0), "slots are lost");
        assert_eq!(self.clock.next_alarm(), None, "alarm: no waiter is left");
    }
}

static TRACE: std::sync::LazyLock<bool> =
    std::sync::LazyLock::new(|| std::env::var_os("FLYBALL_TRACE").is_some());
