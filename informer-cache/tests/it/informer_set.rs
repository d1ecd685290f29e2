//! Shared informers. Some of the tests correspond to tests of client-go: `TestWaitFor` (empty, some late, cancelled, all late), `TestSyncResult`, and
//! the tests of its factory that `Start` starts each informer once and that `Shutdown` waits. Other tests cover what that factory cannot do: stop a
//! single informer and start it again.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{
    ConfigDifference, Index, Informer, InformerBuilder, InformerSet, InformerStartError, InformerState,
    ListRequest, NotSynced, Page, ReflectorBackoff, ReflectorConfig, Schema, SharedInformer, Source,
    SourceError, Store, Version, WatchRequest,
};
use flyball_sync::{ManualClock, ManualTimer};
use parking_lot::Mutex;
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

type Builder = InformerBuilder<u64, u64, ScriptedSource<u64>, ManualTimer>;
type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

const NUMBERS: Schema<u64, u64> = Schema::new(|number| *number, |_| Version::ZERO);
const WORDS: Schema<&str, &str> = Schema::new(|word| *word, |_| Version::ZERO);

/// An informer set, and the run futures that it has started.
struct World {
    set: InformerSet,
    runs: Arc<Mutex<Vec<Run>>>,
    clock: ManualClock,
}

impl World {
    fn new() -> Self {
        let runs = Arc::new(Mutex::new(Vec::new()));
        let set = InformerSet::new({
            let runs = runs.clone();
            move |run| runs.lock().push(run)
        });
        Self { set, runs, clock: ManualClock::new() }
    }

    /// Polls the run futures a few times. A run future that panics is removed.
    fn settle(&self) {
        for _ in 0..5 {
            let runs = std::mem::take(&mut *self.runs.lock());
            for mut run in runs {
                let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    poll_once(run.as_mut()).is_pending()
                }));
                if polled.unwrap_or(false) {
                    self.runs.lock().push(run);
                }
            }
        }
    }

    fn get(&self, name: impl Into<Arc<str>>, source: &ScriptedSource<u64>) -> SharedInformer<u64, u64> {
        self.set.get_or_start(name, self.builder(source)).unwrap()
    }

    fn builder(&self, source: &ScriptedSource<u64>) -> Builder {
        Informer::builder(NUMBERS, source.clone()).timer(self.clock.timer())
    }
}

/// Returns a source that lists these numbers.
fn listing(numbers: &[u64]) -> ScriptedSource<u64> {
    let source = ScriptedSource::new();
    list(&source, numbers);
    source
}

fn list(source: &ScriptedSource<u64>, numbers: &[u64]) {
    source.answer_list(Ok(Page { items: numbers.to_vec(), version: Version::new(1), continuation: None }));
    source.answer_watch(Ok(()));
}

#[test]
fn a_second_request_shares_the_informer() {
    let world = World::new();
    let source = listing(&[1, 2]);
    let built = Arc::new(AtomicUsize::new(0));
    let get = |name: &str| {
        let count = built.clone();
        let builder = world.builder(&source).on_build(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        world.set.get_or_start(name, builder).unwrap()
    };
    let _first = get("numbers");
    world.settle();
    let second = get("numbers");
    let third = second.clone();
    assert_eq!(built.load(Ordering::Relaxed), 1);
    assert_eq!((second.snapshot().len(), third.snapshot().len()), (2, 2));
    // A different name or different types result in a different informer.
    let even = get("numbers (even)");
    assert_eq!((built.load(Ordering::Relaxed), even.is_synced()), (2, false));
    let words = ScriptedSource::<&str>::new();
    let words = world.set.get_or_start("numbers", Informer::builder(WORDS, words).timer(world.clock.timer()));
    assert!(!words.as_ref().unwrap().is_synced());
    let names: Vec<_> = world.set.statuses().into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["numbers", "numbers", "numbers (even)"]);
    assert_eq!(world.runs.lock().len(), 3);
}

#[test]
fn dropping_the_last_handle_stops_the_informer() {
    let world = World::new();
    let source = listing(&[1]);
    let first = world.get("numbers", &source);
    let second = first.clone();
    world.settle();
    let (store, informer) = (first.store().clone(), Informer::clone(&first));
    drop(first);
    world.settle();
    assert!(!informer.is_stopped());
    drop(second);
    let mut stopped = Box::pin(world.set.stopped());
    assert!(poll_once(stopped.as_mut()).is_pending(), "the set counts a running informer as stopped");
    world.settle();
    assert!(informer.is_stopped());
    assert!(poll_once(stopped.as_mut()).is_ready());
    assert_eq!(store.len(), 1, "the contents of the store have changed");
    assert!(world.set.statuses().is_empty());
    // This is a new informer, which begins with a list.
    list(&source, &[7, 8]);
    let again = world.get("numbers", &source);
    world.settle();
    assert_eq!((again.snapshot().len(), world.runs.lock().len()), (2, 1));
}

/// An informer set usually exists as long as the process, so it must not keep the objects of stopped informers.
#[test]
fn stopped_informers_keep_no_objects() {
    let world = World::new();
    let object = Arc::new(7);
    let start = |name: &str| {
        let source = ScriptedSource::new();
        source.answer_list(Ok(Page {
            items: vec![object.clone()],
            version: Version::new(1),
            continuation: None,
        }));
        source.answer_watch(Ok(()));
        let schema = Schema::new(|number: &Arc<u64>| **number, |_| Version::ZERO);
        let builder = Informer::builder(schema, source).timer(world.clock.timer());
        let informer = world.set.get_or_start(name, builder).unwrap();
        world.settle();
        informer
    };
    let (dropped, stopped) = (start("dropped"), start("stopped"));
    assert_eq!(Arc::strong_count(&object), 3);
    drop(dropped);
    world.settle();
    assert_eq!(Arc::strong_count(&object), 2, "the set keeps an object of an informer that was dropped");
    world.set.stop("stopped");
    world.settle();
    drop(stopped);
    assert_eq!(Arc::strong_count(&object), 1, "the set keeps an object of an informer that was stopped");
}

#[test]
fn a_stopped_informer_is_started_again_on_request() {
    let world = World::new();
    let source = listing(&[1]);
    let (old, other) = (world.get("numbers", &source), world.get("others", &ScriptedSource::new()));
    world.settle();
    world.set.stop("numbers");
    world.settle();
    assert_eq!((old.status().state, other.is_stopped()), (InformerState::Stopped, false));
    list(&source, &[1, 2]);
    let new = world.get("numbers", &source);
    world.settle();
    assert_eq!((old.snapshot().len(), new.snapshot().len()), (1, 2));
    // Cloning or dropping handles of the old informer does not change the number of users of the new informer.
    drop(old.clone());
    drop(old);
    world.settle();
    assert!(!new.is_stopped());
    drop(new);
    world.settle();
    assert_eq!(world.set.statuses().len(), 1);
}

#[test]
fn a_stopping_informer_is_not_shared() {
    let world = World::new();
    let source = listing(&[1]);
    let old = world.get("numbers", &source);
    world.settle();
    // Any handle can shut the informer down. The informer stops at the next poll of its run future, so it has not stopped immediately after this
    // call.
    old.shut_down();
    assert!(!old.is_stopped());
    list(&source, &[1, 2]);
    let new = world.get("numbers", &source);
    let mut stopped = Box::pin(world.set.stopped());
    world.settle();
    assert_eq!((old.is_stopped(), new.is_stopped(), new.snapshot().len()), (true, false, 2));
    world.set.shut_down();
    assert!(
        poll_once(stopped.as_mut()).is_pending(),
        "`stopped` did not wait for the informer that still runs"
    );
    world.settle();
    assert!(poll_once(stopped.as_mut()).is_ready());
}

/// `InformerSet::stopped` also waits for informers that were replaced before they had ended.
#[test]
fn the_end_of_one_that_was_replaced_is_awaited() {
    let world = World::new();
    let source = listing(&[1]);
    let old = world.get("numbers", &source);
    world.settle();
    old.shut_down();
    let old_run = std::mem::take(&mut *world.runs.lock());
    list(&source, &[1]);
    drop(world.get("numbers", &source));
    world.settle();
    let mut stopped = Box::pin(world.set.stopped());
    assert!(poll_once(stopped.as_mut()).is_pending());
    world.runs.lock().extend(old_run);
    world.settle();
    assert!(poll_once(stopped.as_mut()).is_ready());
}

#[test]
fn one_that_failed_is_replaced() {
    /// A source that returns lists, but panics if a list contains the object 13.
    struct PanickingSource(ScriptedSource<u64>);
    impl Source for PanickingSource {
        type Object = u64;
        type Watch = <ScriptedSource<u64> as Source>::Watch;
        async fn list(&self, request: ListRequest) -> Result<Page<u64>, SourceError> {
            let page = Source::list(&self.0, request).await?;
            assert!(!page.items.contains(&13), "unlucky");
            Ok(page)
        }
        async fn watch(&self, request: WatchRequest) -> Result<Self::Watch, SourceError> {
            Source::watch(&self.0, request).await
        }
    }
    let world = World::new();
    let source = listing(&[13]);
    let get = || {
        let builder = Informer::builder(NUMBERS, PanickingSource(source.clone())).timer(world.clock.timer());
        world.set.get_or_start("numbers", builder).unwrap()
    };
    let failed = get();
    let mut synced = Box::pin(world.set.synced());
    world.settle();
    assert_eq!(failed.status().state, InformerState::Failed);
    let error = NotSynced { ended: vec!["numbers".into()] };
    assert_eq!(poll_once(synced.as_mut()), std::task::Poll::Ready(Err(error)));
    list(&source, &[14]);
    let new = get();
    world.settle();
    assert_eq!((failed.is_stopped(), new.snapshot().len()), (true, 1));
    drop(failed);
    assert!(!new.is_stopped());
}

#[test]
fn synced_waits_for_the_slowest_and_wakes_all_waiters() {
    let world = World::new();
    assert!(poll_once(Box::pin(world.set.synced()).as_mut()).is_ready(), "an empty set waits");
    let (quick, late) = (listing(&[1]), ScriptedSource::new());
    let _informers = (world.get("quick", &quick), world.get("late", &late));
    let mut waits: Vec<_> = (0..3).map(|_| (Box::pin(world.set.synced()), Counting::waker())).collect();
    waits.iter_mut().for_each(|(wait, (_, waker))| assert!(poll_with(wait.as_mut(), waker).is_pending()));
    world.settle();
    waits.iter_mut().for_each(|(wait, (_, waker))| assert!(poll_with(wait.as_mut(), waker).is_pending()));
    drop(waits.remove(1));
    list(&late, &[2]);
    world.settle();
    for (wait, (wakes, waker)) in &mut waits {
        assert!(wakes.wakes() > 0);
        assert!(poll_with(wait.as_mut(), waker).is_ready());
    }
}

#[test]
fn the_error_names_informers_that_never_synced() {
    let world = World::new();
    let sources = [ScriptedSource::new(), ScriptedSource::new(), listing(&[1])];
    let names = ["pods", "nodes", "jobs"];
    let informers: Vec<_> =
        names.iter().zip(&sources).map(|(name, source)| world.get(*name, source)).collect();
    world.settle();
    let mut synced = Box::pin(world.set.synced());
    assert!(poll_once(synced.as_mut()).is_pending());
    informers.iter().for_each(|informer| informer.shut_down());
    world.settle();
    let std::task::Poll::Ready(Err(error)) = poll_once(synced.as_mut()) else {
        panic!("two informers ended before their first list")
    };
    assert_eq!(error.to_string(), "ended before the first list: nodes, pods");
}

#[test]
fn a_set_that_was_shut_down_starts_nothing() {
    let world = World::new();
    let (one, two) = (world.get("one", &listing(&[1])), world.get("two", &ScriptedSource::new()));
    world.settle();
    let mut stopped = Box::pin(world.set.stopped());
    assert!(poll_once(stopped.as_mut()).is_pending());
    world.set.shut_down();
    world.set.shut_down();
    let refused = world.set.get_or_start("one", world.builder(&listing(&[1])));
    assert_eq!(refused.unwrap_err(), InformerStartError::ShutDown);
    assert!(poll_once(stopped.as_mut()).is_pending());
    // A wait that begins now also waits for the informers that are shutting down.
    let mut later = Box::pin(world.set.stopped());
    assert!(poll_once(later.as_mut()).is_pending());
    world.settle();
    assert!(one.is_stopped() && two.is_stopped());
    assert!(poll_once(stopped.as_mut()).is_ready() && poll_once(later.as_mut()).is_ready());
    drop((one, two));
    assert!(world.runs.lock().is_empty());
}

#[test]
fn builders_and_runners_may_call_the_set() {
    let world = World::new();
    let source = listing(&[1]);
    let (set, quicker) = (world.set.clone(), world.builder(&source));
    let outer = world.builder(&source).on_build(move |_| {
        // This runs before the outer builder has finished.
        let inner = set.get_or_start("numbers", quicker).unwrap();
        assert_eq!(set.statuses().len(), 1);
        std::mem::forget(inner);
    });
    let outer = world.set.get_or_start("numbers", outer);
    assert_eq!(world.runs.lock().len(), 1, "not exactly one of the two informers runs");
    world.settle();
    assert_eq!(outer.unwrap().snapshot().len(), 1);

    let slot: Arc<Mutex<Option<InformerSet>>> = Arc::default();
    let set = InformerSet::new({
        let slot = slot.clone();
        move |run| {
            let set = slot.lock().clone().unwrap();
            assert_eq!(set.statuses().len(), 1);
            drop(run);
        }
    });
    *slot.lock() = Some(set.clone());
    let dropped = set.get_or_start("numbers", world.builder(&source)).unwrap();
    assert!(dropped.is_stopped(), "an informer without a run future is not stopped");
    slot.lock().take();
}

#[test]
fn a_panic_of_the_builder_or_runner_leaves_no_handle() {
    let world = World::new();
    let source = listing(&[1]);
    let panics =
        |deed: &dyn Fn()| assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(deed)).is_err());
    panics(&|| {
        let builder = world.builder(&source).on_build(|_| panic!("no builder"));
        drop(world.set.get_or_start("numbers", builder));
    });
    let set = InformerSet::new(|_| panic!("no runner"));
    panics(&|| drop(set.get_or_start("numbers", world.builder(&source))));
    assert!(world.set.statuses().is_empty() && set.statuses().is_empty());
    assert!(poll_once(Box::pin(set.stopped()).as_mut()).is_ready());
}

/// If the waker of one task panics during the shutdown of the set, the other tasks are still woken.
#[test]
fn a_panicking_waker_blocks_no_other_notification() {
    let world = World::new();
    let users = ["a", "b", "c"].map(|name| world.get(name, &listing(&[1])));
    for run in &mut *world.runs.lock() {
        assert!(poll_with(run.as_mut(), &Waker::from(Arc::new(Panicking))).is_pending());
    }
    world.set.shut_down();
    world.settle();
    assert!(users.iter().all(|user| user.is_stopped()));
}

static BY_HALF: Index<u64, u64> = Index::new("half", |number| number / 2);
static BY_HALF_ORDERED: Index<u64, u64> = Index::new("half", |number: &u64| number / 2).ordered();
static BY_HALF_AS_TEXT: Index<u64, String> = Index::new("half", |number| (number / 2).to_string());

#[test]
fn a_request_that_is_configured_differently_is_refused_and_the_difference_named() {
    let world = World::new();
    let source = listing(&[1, 2]);
    let first = world.set.get_or_start("numbers", world.builder(&source).index(&BY_HALF)).unwrap();
    world.settle();
    let refused = |builder: Builder| match world.set.get_or_start("numbers", builder) {
        Err(InformerStartError::ConfigMismatch(difference)) => difference,
        other => panic!("{other:?}"),
    };
    let builder = || world.builder(&source);
    assert_eq!(refused(builder().streaming_lists()), ConfigDifference::Reflector("streaming_lists"));
    assert_eq!(refused(builder().page_size(7.try_into().unwrap())), ConfigDifference::Reflector("page_size"));
    let backoff = ReflectorBackoff { factor: 3, ..ReflectorBackoff::default() };
    let config = ReflectorConfig { backoff, ..ReflectorConfig::default() };
    assert_eq!(refused(builder().reflector_config(config)), ConfigDifference::Reflector("backoff"));
    assert_eq!(refused(builder().transform(|number| number)), ConfigDifference::Transform);
    assert_eq!(refused(builder().index(&BY_HALF_AS_TEXT)), ConfigDifference::Index("half"));
    // A query with a handle of another kind would fail.
    assert_eq!(refused(builder().index(&BY_HALF_ORDERED)), ConfigDifference::Index("half"));
    assert_eq!(refused(builder().index(&BY_HALF.clone().unique())), ConfigDifference::Index("half"));
    // A request may have fewer indexes than the informer. Indexes that were added while the informer was running count as indexes of the informer,
    // too.
    let fewer = world.set.get_or_start("numbers", builder()).unwrap();
    first.writer().remove_index(&BY_HALF).unwrap();
    assert_eq!(refused(builder().index(&BY_HALF)), ConfigDifference::Index("half"));
    first.add_index(&BY_HALF).unwrap();
    drop(world.set.get_or_start("numbers", builder().index(&BY_HALF)).unwrap());
    // A request that was refused does not count as a user of the informer.
    drop(first);
    assert!(!fewer.is_stopped());
    drop(fewer);
    assert!(world.set.statuses().is_empty());
}

/// A request finds the index whose function it brought, and no index of the same name with another function.
#[test]
fn a_request_with_another_function_that_captures_is_refused() {
    let world = World::new();
    let source = listing(&[1, 2]);
    let by = |divisor| Index::capturing("quotient", move |number: &u64| vec![number / divisor]);
    let (by_two, by_three) = (by(2), by(3));
    let first = world.set.get_or_start("numbers", world.builder(&source).index(&by_two)).unwrap();
    world.settle();
    let refused = world.set.get_or_start("numbers", world.builder(&source).index(&by_three));
    let difference = ConfigDifference::Index("quotient");
    assert!(matches!(refused, Err(InformerStartError::ConfigMismatch(it)) if it == difference));
    let again = world.set.get_or_start("numbers", world.builder(&source).index(&by_two.clone())).unwrap();
    assert_eq!(again.snapshot().by_index(&by_two, &1).unwrap().len(), 1);
    assert!(first.snapshot().by_index(&by_three, &0).is_err());
}

#[test]
fn queries_of_another_kind_of_index_fail_instead_of_returning_nothing() {
    let kinds = || {
        let plain = Index::new("half", |number: &u64| number / 2);
        let many = Index::many("half", |number: &u64| vec![number / 2]);
        let capturing = Index::capturing("half", |number: &u64| vec![number / 2]);
        [plain, many, capturing].into_iter().flat_map(|index| {
            [index.clone(), index.clone().unique(), index.clone().ordered(), index.unique().ordered()]
        })
    };
    for (stored, index) in kinds().enumerate() {
        let mut store = Store::builder(NUMBERS).index(&index).build().unwrap();
        store.replace([2, 3], Version::new(1));
        let view = store.snapshot();
        assert_eq!(view.by_index(&index.clone(), &1).unwrap().len(), 2);
        // The handles of `kinds` have the same kinds, but those that capture are not clones of the stored one.
        for (asked, other) in kinds().enumerate() {
            let same = asked == stored && stored < 8;
            assert_eq!(view.by_index(&other, &1).is_ok(), same, "{asked} in a store with {stored}");
            assert_eq!(store.add_index(&other).unwrap_err().name(), "half");
            assert_eq!(store.store().subscription().by_index(&other, 1).is_ok(), same);
            if !same {
                assert_eq!(store.remove_index(&other).unwrap_err().name(), "half");
            }
        }
        assert_eq!(view.range(&index, ..).is_ok(), stored % 4 > 1);
        assert_eq!(view.unique_violations(&index).is_ok(), stored % 2 == 1);
        store.remove_index(&index).unwrap();
    }
    let plain = Store::builder(NUMBERS).index(&BY_HALF).build().unwrap().snapshot();
    assert_eq!(plain.range(&BY_HALF, ..).unwrap_err().to_string(), "the index \"half\" is not ordered");
    let error = plain.unique_violations(&BY_HALF).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "the index \"half\" is not unique");
}

/// Two requests for a new informer run concurrently. The second one requires an index that the informer of the first one does not have.
#[test]
fn of_two_first_requests_the_second_is_refused_an_informer_without_its_index() {
    let world = World::new();
    let source = listing(&[1]);
    let (set, quicker) = (world.set.clone(), world.builder(&source));
    let kept: Arc<Mutex<Option<SharedInformer<u64, u64>>>> = Arc::default();
    let keep = kept.clone();
    let outer = world.builder(&source).index(&BY_HALF).on_build(move |_| {
        *keep.lock() = Some(set.get_or_start("numbers", quicker).unwrap());
    });
    let refused = world.set.get_or_start("numbers", outer);
    assert!(matches!(refused, Err(InformerStartError::ConfigMismatch(ConfigDifference::Index("half")))));
    drop(kept.lock().take());
    assert!(world.set.statuses().is_empty(), "a refused request counts as a user");
}
