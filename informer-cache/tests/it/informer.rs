//! Tests of a source, a reflector and a store together: convergence, every way to end an informer, waits that are dropped after every possible poll,
//! and user code that panics.

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use drivers::cache::fixture::{self, Object, SCHEMA, World, object};
use drivers::cache::relist;
use drivers::cache::server::server;
use flyball_informer_cache::testing::{ScriptedSource, SourceRequest};
use flyball_informer_cache::{
    BackoffCause, Index, Informer, InformerBuildError, InformerState, ListRequest, Page, ReflectorBackoff,
    ReflectorConfig, Schema, Source, SourceError, Stopped, Version, WatchEvent, WatchRequest, WatchStream,
};
use flyball_sync::{Clock, ManualClock, Nanos, Timer};
use parking_lot::Mutex;
use testkit::coverage::pairs::PairCounts;
use testkit::random;
use testkit::wakers::{Counting, poll_once, poll_with};

fn first_page(items: Vec<Object>, version: u64) -> Result<Page<Object>, SourceError> {
    Ok(Page { items, version: Version::new(version), continuation: None })
}

fn watching(source: &ScriptedSource<Object>) -> World {
    source.answer_list(first_page(vec![object(1, 1)], 5));
    source.answer_watch(Ok(()));
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    world.settle();
    world
}

#[test]
fn converges_after_the_faults_have_ended() {
    let pairs = RefCell::new(PairCounts::new(relist::NAMES));
    random::cases("relist", 3_000, 300, |bytes| {
        let mut cases = relist::tally();
        relist::run(bytes, &mut cases);
        pairs.borrow_mut().count_sequence(&cases);
    });
    if random::cases_are_chosen() {
        return; // the floor is for the default number of cases
    }
    // Each pair of two settings or events must occur together in at least five operation sequences.
    let rare = pairs.into_inner().below(5, |_, _| false);
    assert!(rare.is_empty(), "rare in one operation sequence: {rare:?}");
}

#[test]
fn the_corpus_of_the_fuzz_target_converges() {
    drivers::corpus::replay("relist", |bytes| relist::run(bytes, &mut relist::tally()));
}

/// Decision 0037: indexes may be added and removed while a list is being received. To compare a list with the stored objects, the store uses the
/// indexes that exist when the list begins; to publish the list, it uses those that exist when the list ends.
#[test]
fn indexes_come_and_go_under_a_half_list() {
    thread_local! { static ASKED: RefCell<Vec<(u8, u64)>> = const { RefCell::new(Vec::new()) }; }
    static BY_VERSION: Index<Object, u64> = Index::new("version", |object| object.version);
    static LATE: Index<Object, u64> = Index::new("late", |object| {
        ASKED.with_borrow_mut(|asked| asked.push((object.key, object.version)));
        object.version
    });
    let source = ScriptedSource::new();
    source.answer_list(first_page(vec![object(1, 1), object(2, 1), object(3, 1)], 1));
    source.answer_watch(Ok(()));
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()).index(&BY_VERSION));
    world.settle();
    source.fail_watch(fixture::error(fixture::EXPIRED));
    let page = |items, continuation: Option<&str>| Page {
        items,
        version: Version::new(5),
        continuation: continuation.map(Into::into),
    };
    source.answer_list(Ok(page(vec![object(1, 1), object(2, 5), object(4, 5)], Some("more"))));
    world.settle();
    let mut lists = 0;
    loop {
        lists += source.requests().iter().filter(|asked| matches!(asked, SourceRequest::List(_))).count();
        if lists == 3 {
            break;
        }
        world.advance_to_alarm();
        world.settle();
    }
    world.informer.add_index(&LATE).unwrap();
    world.informer.writer().remove_index(&BY_VERSION).unwrap();
    let mut asked = ASKED.take();
    asked.sort_unstable();
    assert_eq!(
        asked,
        [(1, 1), (2, 1), (3, 1)],
        "the index function was not called once for each stored object"
    );
    source.answer_list(Ok(page(vec![object(5, 5)], None)));
    source.answer_watch(Ok(()));
    world.settle();
    let mut asked = ASKED.take();
    asked.sort_unstable();
    assert_eq!(asked, [(2, 5), (4, 5), (5, 5)], "the index function was not called once for each new object");
    let store = world.informer.store();
    let keys = |version: u64| {
        let mut keys: Vec<_> = store.by_index(&LATE, &version).unwrap().iter().map(|it| it.key).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!((keys(1), keys(5)), (vec![1], vec![2, 4, 5]));
    assert!(store.by_index(&BY_VERSION, &1).is_err());
    store.check().unwrap();
}

#[test]
fn every_waiter_for_the_first_list_is_woken() {
    let source = ScriptedSource::new();
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    let informer = world.informer.clone();
    let mut waits: Vec<_> = (0..8).map(|_| (Box::pin(informer.synced()), Counting::waker())).collect();
    for (wait, (_, waker)) in &mut waits {
        assert!(poll_with(wait.as_mut(), waker).is_pending());
    }
    world.settle();
    assert!(!informer.is_synced());
    source.answer_list(first_page(vec![], 1));
    world.settle();
    assert!(informer.is_synced());
    for (wait, (wakes, waker)) in &mut waits {
        assert!(wakes.wakes() >= 1);
        assert_eq!(poll_with(wait.as_mut(), waker), Poll::Ready(Ok(())));
    }
}

#[test]
fn synced_comes_with_the_list_and_not_before() {
    let source = ScriptedSource::new();
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    source.answer_list(Ok(Page {
        items: vec![object(1, 1)],
        version: Version::new(5),
        continuation: Some("c".into()),
    }));
    world.settle();
    assert!(!world.informer.is_synced());
    assert!(world.stored().is_empty(), "an incomplete list was published");
    source.answer_list(first_page(vec![object(2, 2)], 5));
    world.settle();
    assert!(world.informer.is_synced());
    assert_eq!(world.stored().len(), 2);
}

/// Runs a scenario in which the informer waits for pages, watches and events, and after failures, for at most `turns` polls. Returns whether the
/// scenario is complete.
fn scenario(source: &ScriptedSource<Object>, world: &mut World, turns: usize) -> bool {
    let half = Page { items: vec![object(1, 1)], version: Version::new(5), continuation: Some("c".into()) };
    let script: [&dyn Fn(); 10] = [
        &|| {},
        &|| source.answer_list(Ok(half.clone())),
        &|| source.answer_list(first_page(vec![object(2, 2)], 5)),
        &|| source.answer_watch(Err(fixture::error(fixture::BUSY))),
        &|| source.answer_watch(Ok(())),
        &|| source.send(WatchEvent::Added(object(3, 6))),
        &|| (0..600).for_each(|n| source.send(WatchEvent::Modified(object(3, 7 + n)))),
        &|| source.fail_watch(fixture::error(fixture::OTHER)),
        &|| source.answer_list(Ok(half.clone())),
        &|| source.answer_list(first_page(vec![], 900)),
    ];
    let mut left = turns;
    for step in script {
        step();
        loop {
            if left == 0 {
                return false;
            }
            left -= 1;
            if !world.poll() {
                break;
            }
        }
        // A wait after a failure ends when the clock advances. A wait for the source does not, so the clock is not advanced for it.
        if matches!(world.informer.status().state, InformerState::Waiting { .. }) {
            let alarm = world.clock.next_alarm().unwrap();
            world.clock.set(alarm);
        }
    }
    true
}

#[test]
fn the_run_future_may_be_dropped_at_every_poll() {
    let mut turns = 0;
    loop {
        let source = ScriptedSource::new();
        let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
        let informer = world.informer.clone();
        let mut changes = informer.subscribe();
        let (mut synced, mut stopped) = (Box::pin(informer.synced()), Box::pin(informer.stopped()));
        let (wakes, waker) = Counting::waker();
        assert!(poll_with(synced.as_mut(), &waker).is_pending());
        assert!(poll_with(stopped.as_mut(), &waker).is_pending());
        let finished = scenario(&source, &mut world, turns);
        let (stored, version) = (world.stored(), informer.status().version);
        let was_synced = informer.is_synced();
        let woken = wakes.wakes();

        world.cancel();
        assert_eq!(informer.status().state, InformerState::Stopped);
        assert_eq!((world.stored(), informer.status().version), (stored.clone(), version));
        informer.store().check().unwrap();
        assert_eq!(source.open_watches(), 0);
        assert!(wakes.wakes() > woken, "a waiter was not woken");
        assert_eq!(poll_once(stopped.as_mut()), Poll::Ready(()));
        let expected = if was_synced { Ok(()) } else { Err(Stopped) };
        assert_eq!(poll_once(synced.as_mut()), Poll::Ready(expected));
        let mut received = 0;
        while let Poll::Ready(change) = poll_once(pin!(changes.next())) {
            match change {
                Some(_) => received += 1,
                None => break,
            }
        }
        assert!(received >= stored.len(), "pending changes were not delivered before the end");
        assert!(matches!(poll_once(pin!(changes.next())), Poll::Ready(None)));
        assert_eq!(world.clock.next_alarm(), None, "an alarm is still set");
        if finished {
            break;
        }
        turns += 1;
    }
    assert!(turns > 20, "the scenario has {turns} polls only");
}

#[test]
fn shut_down_ends_it_in_order_at_every_poll() {
    let mut turns = 0;
    loop {
        let source = ScriptedSource::new();
        let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
        let finished = scenario(&source, &mut world, turns);
        world.informer.shut_down();
        world.settle();
        assert!(world.is_over(), "after {turns} polls");
        assert_eq!(world.informer.status().state, InformerState::Stopped);
        assert_eq!(source.open_watches(), 0);
        if finished {
            return;
        }
        turns += 1;
    }
}

#[test]
fn waits_may_be_dropped_at_every_poll() {
    let source = ScriptedSource::new();
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    let informer = world.informer.clone();
    let mut kept = Box::pin(informer.synced());
    let (wakes, waker) = Counting::waker();
    for polls in 0..3 {
        let mut synced = Box::pin(informer.synced());
        let mut stopped = Box::pin(informer.stopped());
        for _ in 0..polls {
            assert!(poll_once(synced.as_mut()).is_pending());
            assert!(poll_once(stopped.as_mut()).is_pending());
        }
        drop((synced, stopped));
        assert!(poll_with(kept.as_mut(), &waker).is_pending());
    }
    source.answer_list(first_page(vec![], 1));
    world.settle();
    assert!(wakes.wakes() >= 1, "the wait that was kept was not woken");
    assert_eq!(poll_with(kept.as_mut(), &waker), Poll::Ready(Ok(())));
}

#[test]
fn a_run_future_that_was_never_polled_ends_the_informer_too() {
    let source = ScriptedSource::<Object>::new();
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    world.cancel();
    assert_eq!(world.informer.status().state, InformerState::Stopped);
    assert_eq!(poll_once(pin!(world.informer.synced())), Poll::Ready(Err(Stopped)));
}

#[test]
fn an_informer_that_ended_holds_no_waker() {
    let source = ScriptedSource::new();
    let mut world = watching(&source);
    let mut run = world.take_run();
    let (wakes, waker) = Counting::waker();
    assert!(poll_with(run.as_mut(), &waker).is_pending());
    drop(waker);
    assert!(Arc::strong_count(&wakes) > 1);
    drop((run, source));
    assert_eq!(Arc::strong_count(&wakes), 1, "a handle keeps the waker of the task alive");
}

#[test]
fn the_informer_runs_without_handles_and_its_store_outlives_it() {
    let source = ScriptedSource::new();
    let clock = ManualClock::new();
    let (informer, run) = Informer::builder(SCHEMA, source.clone()).timer(clock.timer()).build().unwrap();
    let store = informer.store().clone();
    drop(informer);
    let mut run = Box::pin(run);
    source.answer_list(first_page(vec![object(1, 1)], 1));
    assert!(poll_once(run.as_mut()).is_pending());
    drop(run);
    assert_eq!(store.get(&1).as_deref(), Some(&object(1, 1)));
}

/// A source that panics in the call with the number `at`.
struct Fragile {
    calls: Arc<AtomicU64>,
    at: u64,
}

impl Fragile {
    fn step(calls: &AtomicU64, at: u64) {
        assert!(calls.fetch_add(1, Ordering::SeqCst) != at, "a fragile source breaks");
    }
}

struct FragileWatch {
    calls: Arc<AtomicU64>,
    at: u64,
    received: u64,
}

impl Source for Fragile {
    type Object = Object;
    type Watch = FragileWatch;

    async fn list(&self, _: ListRequest) -> Result<Page<Object>, SourceError> {
        Self::step(&self.calls, self.at);
        first_page(vec![object(1, 1)], 1)
    }

    async fn watch(&self, _: WatchRequest) -> Result<FragileWatch, SourceError> {
        Self::step(&self.calls, self.at);
        Ok(FragileWatch { calls: self.calls.clone(), at: self.at, received: 0 })
    }
}

impl WatchStream for FragileWatch {
    type Object = Object;

    async fn next(&mut self) -> Option<Result<WatchEvent<Object>, SourceError>> {
        Fragile::step(&self.calls, self.at);
        self.received += 1;
        Some(Ok(WatchEvent::Modified(object(1, 1 + self.received))))
    }
}

fn panics(run: Pin<&mut (dyn Future<Output = ()> + Send)>) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll_once(run))).is_err()
}

#[test]
fn a_panic_of_the_source_fails_the_informer_and_leaves_the_store_intact() {
    for at in [0, 1, 2, 100, 400] {
        let source = Fragile { calls: Arc::default(), at };
        let clock = ManualClock::new();
        let (informer, run) = Informer::builder(SCHEMA, source).timer(clock.timer()).build().unwrap();
        let mut run: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(run);
        let mut synced = Box::pin(informer.synced());
        let (wakes, waker) = Counting::waker();
        assert!(poll_with(synced.as_mut(), &waker).is_pending());
        let broke = (0..10).any(|_| panics(run.as_mut()));
        assert!(broke, "call {at}");
        // The status shows the failure, although the future that panicked has not been dropped.
        let status = informer.status();
        assert_eq!(status.state, InformerState::Failed);
        let error = status.last_error.unwrap();
        assert!(error.message.starts_with("a function panicked: "), "{error:?}");
        assert!(wakes.wakes() > 0);
        let expected = if at == 0 { Err(Stopped) } else { Ok(()) };
        assert_eq!(poll_once(synced.as_mut()), Poll::Ready(expected));
        assert_eq!(poll_once(pin!(informer.stopped())), Poll::Ready(()));
        informer.store().check().unwrap();
        assert_eq!(informer.snapshot().len(), usize::from(at > 0));
        drop(run);
        assert_eq!(informer.status().state, InformerState::Failed);
    }
}

/// A waker whose `wake` panics.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a hostile waker panics");
    }
}

#[test]
fn hostile_wakers_block_no_delivery() {
    let source = ScriptedSource::new();
    let mut world = watching(&source);
    let informer = world.informer.clone();
    let bomb: Waker = Arc::new(Bomb).into();
    let (wakes, waker) = Counting::waker();
    let mut waits = [Box::pin(informer.stopped()), Box::pin(informer.stopped())];
    assert!(poll_with(waits[0].as_mut(), &bomb).is_pending());
    assert!(poll_with(waits[1].as_mut(), &waker).is_pending());
    let mut changes = informer.subscribe();
    assert!(changes.try_next().is_some());
    {
        let mut next = pin!(changes.next());
        assert!(poll_with(next.as_mut(), &bomb).is_pending());
    }
    world.cancel();
    assert_eq!(wakes.wakes(), 1);
    assert_eq!(poll_once(waits[1].as_mut()), Poll::Ready(()));
    assert!(matches!(poll_once(pin!(changes.next())), Poll::Ready(None)));
}

#[test]
fn a_hostile_listener_does_not_break_shut_down() {
    let source = ScriptedSource::new();
    let mut world = watching(&source);
    let informer = world.informer.clone();
    let mut run = world.take_run();
    let bomb: Waker = Arc::new(Bomb).into();
    assert!(run.as_mut().poll(&mut Context::from_waker(&bomb)).is_pending());
    let received = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| informer.shut_down()));
    assert!(received.is_err(), "the panic did not propagate to the caller");
    assert_eq!(poll_once(run.as_mut()), Poll::Ready(()), "the shutdown was lost");
}

/// A source whose watch delivers events without end, all of which are ready immediately.
struct Flood;

struct FloodWatch(u64);

impl Source for Flood {
    type Object = Object;
    type Watch = FloodWatch;

    async fn list(&self, _: ListRequest) -> Result<Page<Object>, SourceError> {
        first_page(vec![], 1)
    }

    async fn watch(&self, request: WatchRequest) -> Result<FloodWatch, SourceError> {
        Ok(FloodWatch(request.from_version.get()))
    }
}

impl WatchStream for FloodWatch {
    type Object = Object;

    async fn next(&mut self) -> Option<Result<WatchEvent<Object>, SourceError>> {
        self.0 += 1;
        Some(Ok(WatchEvent::Modified(object(self.0 as u8, self.0))))
    }
}

#[test]
fn a_flood_of_events_leaves_turns_to_others_and_can_be_ended() {
    let mut world = World::new(Informer::builder(SCHEMA, Flood));
    let mut last = Version::ZERO;
    for _ in 0..50 {
        assert!(world.poll(), "the future yielded without waking itself");
        let version = world.informer.status().version;
        assert!(version.get() - last.get() <= 257, "one poll applied {last} to {version}");
        last = version;
    }
    assert!(last.get() > 5_000);
    // Now the watch reaches its maximum age. The informer must end it, although the watch always has an event ready.
    world.clock.advance(Duration::from_secs(3600));
    let restarts = world.informer.status().watch_restarts;
    world.poll();
    world.poll();
    assert_eq!(world.informer.status().watch_restarts, restarts + 1);
    world.informer.shut_down();
    for _ in 0..4 {
        world.poll();
    }
    assert!(world.is_over());
}

#[test]
fn events_that_are_ready_together_arm_no_timer_and_are_one_batch() {
    let source = ScriptedSource::new();
    let mut world = watching(&source);
    let polls = world.polls;
    (0..200).for_each(|n| source.send(WatchEvent::Modified(object(1, 10 + n))));
    world.settle();
    assert_eq!(world.stored(), [object(1, 209)]);
    assert_eq!(world.polls, polls + 1);
}

#[test]
fn an_alarm_that_comes_too_early_is_set_again() {
    let source = ScriptedSource::<Object>::new();
    let clock = ManualClock::new();
    let (informer, run) = Informer::builder(SCHEMA, source.clone()).timer(clock.timer()).build().unwrap();
    source.answer_list(Err(fixture::error(fixture::OTHER)));
    let mut run = Box::pin(run);
    assert!(poll_once(run.as_mut()).is_pending());
    let InformerState::Waiting { until, .. } = informer.status().state else { panic!() };
    // The clock is set to the time of the alarm, so that the alarm fires, and then back.
    clock.set(until);
    clock.set(Nanos::ZERO);
    assert_eq!(clock.next_alarm(), None);
    assert!(poll_once(run.as_mut()).is_pending());
    assert_eq!(clock.next_alarm(), Some(until));
}

#[test]
fn a_silent_source_is_given_up_after_its_time() {
    let source = ScriptedSource::<Object>::new();
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    assert_eq!(world.advance_to_alarm(), Duration::from_secs(120));
    let error = world.informer.status().last_error.unwrap();
    assert_eq!((&*error.message, error.at), ("no answer in time", world.now()));
}

/// The failure before a timeout may be its cause, for example if a client repeats the request until the time limit because the server is down.
#[test]
fn a_timeout_names_the_failure_before_it() {
    const OUTAGE: &str = "no answer in time; before that: source failed: etcd is down";
    let source = ScriptedSource::new();
    let received = Arc::new(Mutex::new(Vec::new()));
    let builder = Informer::builder(SCHEMA, source.clone()).on_error({
        let received = received.clone();
        move |failure| received.lock().push(failure.to_string())
    });
    source.answer_list(Err(SourceError::new(fixture::OTHER, "etcd is down")));
    let mut world = World::new(builder);
    world.settle();
    let last = |world: &World| world.informer.status().last_error.unwrap().message;
    for _ in 0..3 {
        world.advance_to_alarm(); // the end of the wait
        world.advance_to_alarm();
        assert_eq!(&*last(&world), OUTAGE);
    }
    assert_eq!(std::mem::take(&mut *received.lock())[1..], [OUTAGE; 3]);
    // An answer ends the series.
    source.answer_list(first_page(vec![object(1, 1)], 1));
    world.advance_to_alarm();
    assert_eq!(world.informer.status().last_error, None);
    world.advance_to_alarm();
    assert_eq!(&*last(&world), "no answer in time");
    assert_eq!(*received.lock(), ["no answer in time"]);
}

#[test]
fn a_silent_watch_is_given_up_after_its_time_and_watched_again() {
    let source = ScriptedSource::new();
    let mut world = watching(&source);
    let silent = world.advance_to_alarm();
    assert!((Duration::from_secs(330)..=Duration::from_secs(630)).contains(&silent), "{silent:?}");
    assert_eq!(world.informer.status().watch_restarts, 1);
    assert_eq!(world.informer.status().relists, 0);
}

/// If a streaming list times out, this is reported as an error, and an ordinary list is requested immediately. When a wait ends, or when the informer
/// ends a watch because of its age, no error is reported.
#[test]
fn a_timeout_with_an_immediate_retry_is_reported() {
    let source = ScriptedSource::new();
    let received = Arc::new(Mutex::new(Vec::new()));
    let builder = Informer::builder(SCHEMA, source.clone()).streaming_lists().on_error({
        let received = received.clone();
        move |failure| received.lock().push((failure.cause, failure.at, failure.retry_at.is_some()))
    });
    source.answer_watch(Err(fixture::error(fixture::REFUSED)));
    let mut world = World::new(builder);
    world.settle();
    let failed = (BackoffCause::Failed(fixture::REFUSED), world.now(), true);
    assert_eq!(std::mem::take(&mut *received.lock()), [failed]);
    source.answer_watch(Ok(()));
    world.advance_to_alarm();
    assert_eq!(*received.lock(), [], "the end of the wait was reported as a failure");
    source.answer_list(first_page(vec![object(1, 1)], 1));
    source.answer_watch(Ok(()));
    world.advance_to_alarm();
    assert_eq!(std::mem::take(&mut *received.lock()), [(BackoffCause::TimedOut, world.now(), false)]);
    assert_eq!(world.stored(), [object(1, 1)]);
    world.advance_to_alarm();
    assert_eq!(*received.lock(), []);
    let status = world.informer.status();
    assert_eq!((status.watch_restarts, status.last_error), (1, None));
}

/// The transformation of the first page and the observers of the list take longer than the timeout of a request.
#[test]
fn the_timeout_of_a_request_starts_when_it_is_sent() {
    let source = ScriptedSource::new();
    let slow: Arc<Mutex<Option<ManualClock>>> = Arc::default();
    let clock = slow.clone();
    let builder = Informer::builder(SCHEMA, source.clone()).transform(move |object| {
        clock.lock().as_ref().expect("the clock is set").advance(Duration::from_secs(200));
        object
    });
    let mut world = World::new(builder);
    *slow.lock() = Some(world.clock.clone());
    let clock = world.clock.clone();
    let _observer = world.informer.observe(move |_| clock.advance(Duration::from_secs(200)));
    let page = |key, continuation: Option<&str>| Page {
        items: vec![object(key, 1)],
        version: Version::new(5),
        continuation: continuation.map(Into::into),
    };
    source.answer_list(Ok(page(1, Some("c"))));
    world.settle();
    let state = |world: &World| (world.informer.status().state, world.informer.status().last_error);
    assert_eq!(state(&world), (InformerState::Listing, None));
    source.answer_list(Ok(page(2, None)));
    world.settle();
    assert_eq!(state(&world), (InformerState::Watching, None));
    assert_eq!(world.advance_to_alarm(), ReflectorConfig::default().request_timeout);
    assert_eq!(world.informer.status().last_error.unwrap().message.as_ref(), "no answer in time");
}

/// The timer panics when its time is read, once `broken` is set.
#[test]
fn a_panic_of_the_timer_is_the_last_error() {
    struct Broken(ManualClock, Arc<AtomicBool>);
    impl Clock for Broken {
        fn now(&self) -> Nanos {
            assert!(!self.1.load(Ordering::Relaxed), "a broken timer");
            self.0.now()
        }
    }
    impl Timer for Broken {
        fn wake_at(&self, _: Nanos, _: &Waker) {}
    }
    let broken = Arc::new(AtomicBool::new(false));
    let builder = Informer::builder(SCHEMA, ScriptedSource::new());
    let (informer, run) = builder.timer(Broken(ManualClock::new(), broken.clone())).build().unwrap();
    let mut run: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(run);
    assert!(!panics(run.as_mut()));
    broken.store(true, Ordering::Relaxed);
    assert!(panics(run.as_mut()));
    drop(run);
    let status = informer.status();
    assert_eq!(status.state, InformerState::Failed);
    assert_eq!(status.last_error.unwrap().message.as_ref(), "a function panicked: a broken timer");
}

#[test]
fn continuations_in_a_circle_are_reported() {
    let source = ScriptedSource::new();
    let received = Arc::new(Mutex::new(Vec::new()));
    let builder = Informer::builder(SCHEMA, source.clone()).on_error({
        let received = received.clone();
        move |failure| received.lock().push((failure.cause, failure.retry_at.is_some()))
    });
    let mut world = World::new(builder);
    for _ in 0..2 {
        let continuation = Some("c".into());
        source.answer_list(Ok(Page { items: vec![], version: Version::new(5), continuation }));
    }
    world.settle();
    assert_eq!(*received.lock(), [(BackoffCause::Failed(fixture::OTHER), true)]);
    let status = world.informer.status();
    assert!(matches!(status.state, InformerState::Waiting { .. }));
    assert_eq!(status.last_error.unwrap().message.as_ref(), "source failed: a list repeats a continuation");
}

#[test]
fn a_watch_that_reaches_its_maximum_age_too_soon_is_a_reported_failure() {
    let source = ScriptedSource::new();
    let received = Arc::new(Mutex::new(Vec::new()));
    let short = Duration::from_secs(1);
    let config = ReflectorConfig {
        min_watch_timeout: short,
        watch_timeout_grace: short,
        min_watch_interval: 10 * short,
        ..ReflectorConfig::default()
    };
    let builder = Informer::builder(SCHEMA, source.clone()).reflector_config(config).on_error({
        let received = received.clone();
        move |failure| received.lock().push((failure.cause, failure.retry_at.is_some()))
    });
    let mut world = World::new(builder);
    source.answer_list(Ok(Page { items: vec![], version: Version::new(5), continuation: None }));
    source.answer_watch(Ok(()));
    world.settle();
    assert!(received.lock().is_empty());
    world.advance(4 * short);
    assert_eq!(*received.lock(), [(BackoffCause::ShortWatch, true)]);
    assert!(world.informer.status().last_error.is_some());
}

#[test]
fn a_senseless_configuration_is_not_built() {
    let backoff = ReflectorBackoff { factor: 0, ..ReflectorBackoff::default() };
    let zero = Duration::ZERO;
    let default = ReflectorConfig::default();
    let broken = [
        ReflectorConfig { backoff, ..default },
        ReflectorConfig {
            backoff: ReflectorBackoff { initial: zero, ..ReflectorBackoff::default() },
            ..default
        },
        ReflectorConfig { backoff: ReflectorBackoff { max: zero, ..ReflectorBackoff::default() }, ..default },
        ReflectorConfig { min_watch_timeout: zero, ..default },
        ReflectorConfig { request_timeout: zero, ..default },
        ReflectorConfig { min_watch_interval: zero, ..default },
        ReflectorConfig { streaming_list_timeout: zero, ..default },
    ];
    let mut messages = Vec::new();
    for config in broken {
        let source = ScriptedSource::<Object>::new();
        let clock = ManualClock::new();
        let built = Informer::builder(SCHEMA, source).reflector_config(config).timer(clock.timer()).build();
        let Err(error) = built else { panic!("{config:?} was built") };
        assert!(matches!(error, InformerBuildError::Config(_)));
        messages.push(error.to_string());
    }
    messages.dedup();
    assert_eq!(messages.len(), 7, "two settings have the same message: {messages:?}");

    static A: Index<Object, u8> = Index::new("same", |object| object.key);
    static B: Index<Object, u64> = Index::new("same", |object| object.version);
    let source = ScriptedSource::<Object>::new();
    let clock = ManualClock::new();
    let built = Informer::builder(SCHEMA, source).index(&A).index(&B).timer(clock.timer()).build();
    assert!(matches!(built.err(), Some(InformerBuildError::Index(_))));
}

#[test]
fn a_source_without_versions_of_its_objects_works() {
    const PLAIN: Schema<u8, u8> = Schema::new(|number: &u8| *number % 4, |_| Version::ZERO);
    let source = ScriptedSource::new();
    source.answer_list(Ok(Page { items: vec![1, 2], version: Version::new(3), continuation: None }));
    source.answer_watch(Ok(()));
    source.send(WatchEvent::Modified(5));
    source.send(WatchEvent::Deleted(2));
    let clock = ManualClock::new();
    let (informer, run) = Informer::builder(PLAIN, source).timer(clock.timer()).build().unwrap();
    let mut run = pin!(run);
    assert!(poll_once(run.as_mut()).is_pending());
    assert_eq!(informer.snapshot().len(), 1);
    assert_eq!(informer.store().get(&1).as_deref(), Some(&5));
}

#[test]
fn handles_and_futures_can_be_sent_to_other_threads() {
    fn sendable<T: Send + Sync>(_: &T) {}
    fn movable<T: Send + 'static>(_: &T) {}
    let clock = ManualClock::new();
    let (informer, run) = Informer::builder(SCHEMA, server()).timer(clock.timer()).build().unwrap();
    sendable(&informer);
    movable(&run);
    movable(&informer.subscribe());
    assert!(format!("{informer:?}").starts_with("Informer"));
}

#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn runs_in_a_task_of_tokio_on_its_timer() {
    let source = ScriptedSource::new();
    source.answer_list(Err(fixture::error(fixture::OTHER)));
    source.answer_list(first_page(vec![object(1, 1)], 1));
    let informer = Informer::builder(SCHEMA, source.clone()).start().unwrap();
    informer.synced().await.unwrap();
    assert_eq!(informer.snapshot().len(), 1);
    assert_eq!(informer.status().relists, 0);
    informer.shut_down();
    informer.stopped().await;
    assert_eq!(informer.status().state, InformerState::Stopped);
}
