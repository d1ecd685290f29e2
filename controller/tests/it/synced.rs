//! Workers start when every cache has synced, and not before.

use std::any::type_name;
use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, NotReady, RunError, WatchStatus};
use flyball_informer_cache::{
    Informer, InformerState, ListRequest, Page, Source, SourceError, SourceErrorKind, Stopped, WatchEvent,
    WatchRequest, WatchStream,
};
use tokio::time::{Instant, sleep};

use crate::support::{
    HistorySource, HistoryWatch, Log, SECOND, THINGS, Thing, panic_quietly, queue, run_until_pending, sorted,
};

#[tokio::test(start_paused = true)]
async fn no_worker_starts_before_every_cache_has_synced() {
    let (early, late) = (HistorySource::new(), HistorySource::closed());
    early.put(1, 0);
    late.put(2, 0);
    let (one, other) = (early.informer(), late.informer());
    let (queue, log) = (queue(), Log::new());
    let own_log = log.clone();
    let running = tokio::spawn(
        Controller::new(queue.clone())
            .watches(&one, |change| *change.key())
            .watches(&other, |change| *change.key())
            .with_config(ControllerConfig { workers: 4.into(), ..ControllerConfig::default() })
            .run(move |key, _| {
                own_log.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    one.synced().await.unwrap();
    run_until_pending().await;
    assert_eq!(log.take(), [], "one of two caches is not enough");
    assert_eq!(queue.ready_len(), 1, "changes of the synced cache must already be keys");

    late.open();
    other.synced().await.unwrap();
    run_until_pending().await;
    assert_eq!(sorted(log.take()), [1, 2]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_ends_before_it_has_synced_ends_the_run() {
    let (world, never) = (HistorySource::new(), HistorySource::closed());
    world.put(1, 0);
    let (one, other) = (world.informer(), never.informer());
    let queue = queue();
    let running = tokio::spawn(
        Controller::new(queue.clone())
            .watches(&one, |change| *change.key())
            .watches(&other, |change| *change.key())
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    one.synced().await.unwrap();
    run_until_pending().await;
    other.shut_down();
    let error = running.await.unwrap().unwrap_err();
    let RunError::CacheEnded(WatchStatus { index, object_type, synced, state, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!((index, object_type, synced), (1, type_name::<Thing>(), false));
    assert_eq!(state, InformerState::Stopped);
    assert!(!queue.is_shutting_down());
    assert_eq!(queue.ready_len(), 1, "the key of the other cache is still there");
}

#[tokio::test(start_paused = true)]
async fn without_a_cache_the_workers_start_immediately() {
    let queue = queue();
    queue.add(7).unwrap();
    let log = Log::new();
    let own_log = log.clone();
    let running = tokio::spawn(Controller::new(queue).run(move |key, _| {
        own_log.note(key);
        async { Ok::<_, String>(Action::await_change()) }
    }));
    run_until_pending().await;
    assert_eq!(log.take(), [7]);
    running.abort();
}

/// Workers also wait for a future that is passed to `start_when`, such as a cache of another controller.
#[tokio::test(start_paused = true)]
async fn workers_wait_for_start_conditions() {
    let (own, others) = (HistorySource::new(), HistorySource::closed());
    own.put(1, 0);
    others.put(2, 0);
    let (one, other) = (own.informer(), others.informer());
    let (log, first) = (Log::new(), queue());
    let own_log = log.clone();
    let running = tokio::spawn(
        Controller::new(first)
            .watches(&one, |change| *change.key())
            .start_when(async move { other.synced().await })
            .run(move |key, _| {
                own_log.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    one.synced().await.unwrap();
    run_until_pending().await;
    assert_eq!(log.take(), []);
    others.open();
    run_until_pending().await;
    assert_eq!(log.take(), [1]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_failed_condition_ends_the_run_early() {
    let never = HistorySource::closed().informer();
    let late = HistorySource::closed().informer();
    let controller = || Controller::new(queue()).watches(&late, |change| *change.key());
    let reconcile = |_, _| async { Ok::<_, String>(Action::await_change()) };
    let refused = controller()
        .start_when(pending::<Result<(), String>>())
        .start_when(async { Err(std::io::Error::other("not elected")) })
        .run(reconcile)
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "a start condition failed: not elected");
    let RunError::StartFailed(error) = refused else { panic!("{refused}") };
    assert!(error.is::<std::io::Error>(), "the error itself, and not only its message");

    let awaited = never.clone();
    let running = tokio::spawn(controller().start_when(async move { awaited.synced().await }).run(reconcile));
    run_until_pending().await;
    never.shut_down();
    run_until_pending().await;
    assert!(running.is_finished());
    let failed = running.await.unwrap().unwrap_err();
    let RunError::StartFailed(error) = failed else { panic!("{failed}") };
    assert!(error.is::<Stopped>());
}

/// A source that answers every list request with an error.
struct Forbidden;

impl Source for Forbidden {
    type Object = Thing;
    type Watch = HistoryWatch;

    async fn list(&self, _: ListRequest) -> Result<Page<Thing>, SourceError> {
        Err(SourceError::new(SourceErrorKind::Other, "things are forbidden"))
    }

    async fn watch(&self, _: WatchRequest) -> Result<HistoryWatch, SourceError> {
        unreachable!("no list has succeeded")
    }
}

fn forbidden() -> Informer<u32, Thing> {
    Informer::builder(THINGS, Forbidden).seed(1).start().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_never_syncs_ends_the_run_and_is_named() {
    for limit in [None, Some(7 * SECOND)] {
        let (one, other) = (HistorySource::new().informer(), forbidden());
        let (queue, begin) = (queue(), Instant::now());
        queue.add(1).unwrap();
        let controller = Controller::new(queue.clone())
            .watches(&one, |change| *change.key())
            .watches(&other, |change| *change.key());
        let controller = match limit {
            Some(limit) => controller
                .with_config(ControllerConfig { start_timeout: limit, ..ControllerConfig::default() }),
            None => controller,
        };
        let health = controller.health();
        let error =
            controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await.unwrap_err();
        assert_eq!(begin.elapsed(), limit.unwrap_or(120 * SECOND), "2 minutes by default");
        let RunError::StartTimeout(missing) = &error else { panic!("{error}") };
        let [WatchStatus { index: 1, synced: false, last_error: Some(last), .. }] = &missing[..] else {
            panic!("{error:?}")
        };
        assert_eq!(&**last, "source failed: things are forbidden");
        let thing = type_name::<Thing>();
        let words =
            format!("the cache of `{thing}`, number 1 (last error: source failed: things are forbidden)");
        assert_eq!(
            error.to_string(),
            format!("the start conditions were not met in time; not synced: {words}")
        );
        assert_eq!(
            (queue.ready_len(), queue.is_shutting_down(), health.ready()),
            (1, false, Err(NotReady::Ended))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_wait_for_caches_whose_sync_is_no_condition_and_maps_their_first_list() {
    let (main, late, never) = (HistorySource::new(), HistorySource::closed(), forbidden());
    main.put(1, 0);
    late.put(2, 0);
    let (one, other) = (main.informer(), late.informer());
    let (queue, log) = (queue(), Log::new());
    let own_log = log.clone();
    let controller = Controller::new(queue)
        .watches(&one, |change| *change.key())
        .watches(&other, |change| *change.key())
        .watches(&never, |change| *change.key())
        .with_config(ControllerConfig { start_before_sync: true, ..ControllerConfig::default() })
        .start_when(async move { one.synced().await });
    let health = controller.health();
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note(key);
        async { Ok::<_, String>(Action::await_change()) }
    }));
    run_until_pending().await;
    assert_eq!((log.take(), health.ready()), (vec![1], Ok(())));
    let synced = || health.watches().iter().map(|watch| watch.synced).collect::<Vec<_>>();
    assert_eq!(synced(), [true, false, false]);
    assert_eq!(health.watches()[2].last_error.as_deref(), Some("source failed: things are forbidden"));
    sleep(1_000 * SECOND).await;
    late.open();
    run_until_pending().await;
    assert_eq!((log.take(), synced()), (vec![2], vec![true, true, false]));
    never.shut_down();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::CacheEnded(WatchStatus { index: 2, synced: false, .. })), "{error}");
}

/// A source whose watch panics at the value 13.
struct Fragile(HistorySource);

struct FragileWatch(HistoryWatch);

impl Source for Fragile {
    type Object = Thing;
    type Watch = FragileWatch;

    async fn list(&self, request: ListRequest) -> Result<Page<Thing>, SourceError> {
        self.0.list(request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<FragileWatch, SourceError> {
        self.0.watch(request).await.map(FragileWatch)
    }
}

impl WatchStream for FragileWatch {
    type Object = Thing;

    async fn next(&mut self) -> Option<Result<WatchEvent<Thing>, SourceError>> {
        let next = self.0.next().await;
        if let Some(Ok(WatchEvent::Modified(Thing { value: 13, .. }))) = next {
            panic_quietly("a bad object");
        }
        next
    }
}

/// A controller does not continue with data that is no longer updated: its run ends, and the queue stays open for the next controller.
#[tokio::test(start_paused = true)]
async fn a_cache_that_ends_ends_the_run_and_is_named() {
    for how in ["stopped", "panicked"] {
        let (one, other) = (HistorySource::new(), HistorySource::new());
        one.put(1, 0);
        let bad = other.clone();
        let other = Informer::builder(THINGS, Fragile(other)).seed(1).start().unwrap();
        let one = one.informer();
        let (queue, begin) = (queue(), Instant::now());
        let controller = Controller::new(queue.clone())
            .watches(&one, |change| *change.key())
            .watches(&other, |change| *change.key());
        let second = Controller::new(crate::support::queue()).watches(&other, |change| *change.key());
        let health = controller.health();
        let running = tokio::spawn(controller.run(|_, context| async move {
            sleep(2 * SECOND).await;
            assert!(context.is_shutting_down());
            Err::<Action, _>("the next controller retries this key")
        }));
        let second = tokio::spawn(second.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
        sleep(SECOND).await;
        if how == "stopped" {
            other.shut_down()
        } else {
            _ = bad.put(7, 13)
        }
        run_until_pending().await;
        let thing = type_name::<Thing>();
        assert_eq!(health.ready(), Err(NotReady::CacheEnded { index: 1, object_type: thing }));
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(begin.elapsed(), 2 * SECOND, "running reconciles must end");
        let RunError::CacheEnded(cache) = &error else { panic!("{error}") };
        let state = if how == "stopped" { InformerState::Stopped } else { InformerState::Failed };
        assert_eq!((cache.index, cache.state), (1, state));
        assert!(
            error.to_string().starts_with(&format!("the informer of the cache of `{thing}`, number 1")),
            "{error}"
        );
        let shared = second.await.unwrap().unwrap_err();
        assert!(matches!(shared, RunError::CacheEnded(WatchStatus { index: 0, .. })), "{shared}");
        assert_eq!((queue.stats().waiting, queue.is_shutting_down()), (1, false));
    }
}

#[tokio::test(start_paused = true)]
async fn stop_when_idle_fails_after_a_panic_of_a_cache() {
    let world = HistorySource::new();
    let things = Informer::builder(THINGS, Fragile(world.clone())).seed(1).start().unwrap();
    let controller = Controller::new(queue())
        .watches(&things, |change| *change.key())
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
    let running = tokio::spawn(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    run_until_pending().await;
    world.put(1, 13);
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::CacheEnded(_)), "{error}");
}

/// A future that is the start condition number `number`; it is woken alone, and counts its polls.
fn counting(
    number: u32,
    polls: &Arc<AtomicU64>,
) -> impl Future<Output = Result<(), String>> + Send + 'static {
    let (polls, mut wait) = (polls.clone(), Box::pin(sleep(Duration::from_millis(1) * number)));
    poll_fn(move |cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        wait.as_mut().poll(cx).map(Ok)
    })
}

#[tokio::test(start_paused = true)]
async fn the_polls_of_start_conditions_are_linear_in_their_number() {
    const CONDITIONS: u32 = 500;
    let polls = Arc::new(AtomicU64::new(0));
    let mut controller = Controller::new(queue());
    for number in 0..CONDITIONS {
        controller = controller.start_when(counting(number, &polls));
    }
    let health = controller.health();
    let running = tokio::spawn(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    sleep(SECOND).await;
    assert_eq!(health.ready(), Ok(()));
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 4 * u64::from(CONDITIONS), "{polls} polls of {CONDITIONS} conditions");
    running.abort();
}

/// The timeout applies to all conditions together, also to those of the user, and not to each wait anew.
#[tokio::test(start_paused = true)]
async fn one_timeout_applies_to_all_start_conditions() {
    let reconcile = |_, _| async { Ok::<_, String>(Action::await_change()) };
    let begin = Instant::now();
    let controller = Controller::new(queue()).start_when(pending::<Result<(), String>>());
    let error = controller.run(reconcile).await.unwrap_err();
    assert!(matches!(&error, RunError::StartTimeout(missing) if missing.is_empty()), "{error}");
    assert_eq!(error.to_string(), "the start conditions were not met in time");
    assert_eq!(begin.elapsed(), 120 * SECOND);

    // The cache is added when most of the time is over.
    let begin = Instant::now();
    let late = HistorySource::closed().informer();
    let controller = Controller::new(queue());
    let handle = controller.handle();
    let controller = controller.start_when(async move {
        sleep(100 * SECOND).await;
        handle.add_watch(&late, |change| *change.key()).map(drop)
    });
    let error = controller.run(reconcile).await.unwrap_err();
    assert!(matches!(&error, RunError::StartTimeout(missing) if missing.len() == 1), "{error}");
    assert_eq!(begin.elapsed(), 120 * SECOND);
}

/// The election of a leader may begin only when its future is polled. It must not wait for the caches.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_standby_is_awaited_while_the_caches_sync() {
    let world = HistorySource::closed();
    world.put(1, 0);
    let things = world.informer();
    let (polled, log) = (Arc::new(AtomicU64::new(0)), Log::new());
    let (campaigns, own_log) = (polled.clone(), log.clone());
    let controller =
        Controller::new(queue()).watches(&things, |change| *change.key()).standby_until(async move {
            campaigns.store(1, Ordering::Relaxed);
            sleep(SECOND).await;
        });
    let health = controller.health();
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note(key);
        async { Ok::<_, String>(Action::await_change()) }
    }));
    run_until_pending().await;
    assert_eq!((polled.load(Ordering::Relaxed), health.ready()), (1, Err(NotReady::Syncing)));
    // The standby ends before the caches have synced.
    sleep(2 * SECOND).await;
    assert_eq!((log.count(), health.ready()), (0, Err(NotReady::Syncing)));
    world.open();
    run_until_pending().await;
    assert_eq!((log.take(), health.ready()), (vec![1], Ok(())));
    running.abort();
}

/// Both futures are polled from the start.
#[tokio::test(start_paused = true)]
async fn a_standby_ends_when_all_its_futures_have_completed() {
    for (first, second) in [(1, 2), (2, 1)] {
        let (queue, begin) = (queue(), Instant::now());
        queue.add(1).unwrap();
        queue.shut_down();
        let controller = Controller::new(queue)
            .standby_until(sleep(first * SECOND))
            .standby_until(async move { sleep(second * SECOND).await });
        let report = controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await.unwrap();
        assert_eq!((report.reconciles, begin.elapsed()), (1, 2 * SECOND));
    }
}
