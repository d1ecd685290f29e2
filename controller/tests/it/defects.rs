//! Tests that this controller does not have the defects of the controller in kube-runtime 5.0.0. Each test runs the whole path from the source to the
//! reconcile, on virtual time, in many orders of events. D1 to D16 are the numbers of these defects in `docs/comparison.md`.
//!
//! The remaining defects are tested elsewhere: D8 (a panic ends the controller) in `isolation`; D11 (an endless debounce) and D12 (the cost of keys
//! in flight) in `workqueue/tests/it/defects.rs`, because they concern the queue; D13 to D16 concern the cache.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use flyball_controller::testing::Simulation;
use flyball_controller::{Action, Controller, ControllerConfig};
use flyball_informer_cache::testing::{TestServer, TestServerWatch};
use flyball_informer_cache::{
    Change, Informer, ListRequest, Page, Schema, Source, SourceError, SourceErrorKind, Version, WatchRequest,
};
use flyball_ratelimit::Exponential;
use flyball_sync::{Clock, ManualTimer, Nanos};
use flyball_workqueue::{Fifo, Queue};

use crate::support::{Log, SECOND, sorted};

const SEEDS: u64 = 50;

/// An object with an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child {
    key: u32,
    owner: u32,
    version: Version,
}

const CHILDREN: Schema<u32, Child> = Schema::new(|child: &Child| child.key, |child| child.version);

type Cluster = TestServer<u32, Child>;
type Children = Informer<u32, Child>;
type Keys = Queue<u32, Fifo, Exponential<u32>, ManualTimer>;

fn cluster() -> Cluster {
    TestServer::new(CHILDREN, |child, _, version| child.version = version)
}

/// Returns a child of owner `key / 10`.
fn child(key: u32) -> Child {
    Child { key, owner: key / 10, version: Version::ZERO }
}

/// A server that logs the requests it receives.
struct Asked {
    server: Cluster,
    asked: Log<&'static str>,
}

impl Source for Asked {
    type Object = Child;
    type Watch = TestServerWatch<u32, Child>;

    async fn list(&self, request: ListRequest) -> Result<Page<Child>, SourceError> {
        self.asked.note(if request.continuation.is_some() { "another page" } else { "a page" });
        self.server.list(request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<Self::Watch, SourceError> {
        self.asked.note(if request.streaming_list { "a stream" } else { "a watch" });
        self.server.watch(request).await
    }
}

fn queue(sim: &Simulation) -> Keys {
    let backoff = Exponential::new(SECOND..=60 * SECOND);
    Queue::builder().limiter(backoff).timer(sim.timer()).seed(sim.next_random()).build()
}

/// A key, the time of its reconcile, and the versions of its objects at that time.
type Seen = (u32, Nanos, Vec<u64>);

/// Runs a controller that maps each object to a key by `key_of`, which returns the key of the object or of its owner. Its reconciles log the state
/// that they read.
fn run(sim: &Simulation, children: &Children, key_of: fn(&Child) -> u32) -> Log<Seen> {
    let log = Log::new();
    let (own_log, cache, time) = (log.clone(), children.clone(), sim.time());
    let controller = Controller::new(queue(sim))
        .watches(children, move |change: &Change<u32, Child>| key_of(change.object()))
        .with_config(ControllerConfig { workers: 2.into(), ..ControllerConfig::default() });
    sim.run(controller, move |key, _| {
        let all = cache.snapshot();
        let own = all.iter().map(|(_, child)| child).filter(|child| key_of(child) == key);
        own_log.note((key, time.now(), sorted(own.map(|child| child.version.get()).collect())));
        async { Ok::<_, String>(Action::await_change()) }
    });
    log
}

/// Breaks the watch, runs `gap`, and drops the server's history, so that the cache receives the changes only by a relist.
fn in_a_gap(cluster: &Cluster, gap: impl FnOnce(&Cluster)) {
    cluster.break_watches(SourceErrorKind::Other);
    gap(cluster);
    cluster.compact();
}

/// D2: with kube-runtime, a reconcile that is triggered by a relist reads the state before the relist if the list has more than one page, or is a
/// stream.
#[test]
fn d2_a_relist_of_pages_or_a_stream_loses_no_update() {
    for streaming in [false, true] {
        Simulation::explore(SEEDS, |sim| {
            let (server, asked) = (cluster(), Log::new());
            server.set_latency(sim.clock(), Duration::from_millis(20));
            (1..=4).for_each(|key| _ = server.put(child(key)));
            let builder = Informer::builder(CHILDREN, Asked { server: server.clone(), asked: asked.clone() })
                .page_size(NonZeroU32::new(2).expect("2 is not zero"));
            let builder = if streaming { builder.streaming_lists() } else { builder };
            let children = sim.informer(builder).expect("the configuration is valid");
            let log = run(sim, &children, |child| child.key);
            sim.advance(SECOND);
            assert_eq!(sorted(log.take().into_iter().map(|(key, ..)| key).collect()), [1, 2, 3, 4]);
            asked.take();

            let mut versions = BTreeMap::new();
            in_a_gap(&server, |server| {
                versions.insert(2, server.put(child(2)).get());
                versions.insert(5, server.put(child(5)).get());
            });
            // Object 3 changes during the relist: after the cache has requested the second page or the stream.
            while !asked.take().iter().any(|asked| matches!(*asked, "another page" | "a stream")) {
                sim.advance(Duration::from_millis(5));
            }
            versions.insert(3, server.put(child(3)).get());
            sim.advance(60 * SECOND);
            assert_eq!(children.status().relists, 1);
            let seen: Vec<_> = log.take().into_iter().map(|(key, _, seen)| (key, seen)).collect();
            let expected: Vec<_> = versions.into_iter().map(|(key, version)| (key, vec![version])).collect();
            assert_eq!(
                sorted(seen),
                expected,
                "each changed object once, in its newest version, and no unchanged object"
            );
        });
    }
}

/// D3: with kube-runtime, no event reports an object that was deleted while the watch was broken, so an owner is not reconciled after the loss of its
/// only child.
#[test]
fn d3_a_missed_deletion_adds_the_owner() {
    for streaming in [false, true] {
        Simulation::explore(SEEDS, |sim| {
            let server = cluster();
            [11, 12, 21].into_iter().for_each(|key| _ = server.put(child(key)));
            let builder = Informer::builder(CHILDREN, server.clone());
            let builder = if streaming { builder.streaming_lists() } else { builder };
            let children = sim.informer(builder).expect("the configuration is valid");
            let log = run(sim, &children, |child| child.owner);
            sim.advance(SECOND);
            log.take();

            in_a_gap(&server, |server| _ = server.delete(&21));
            sim.advance(60 * SECOND);
            assert_eq!(children.status().relists, 1);
            let seen: Vec<_> = log.take().into_iter().map(|(key, _, seen)| (key, seen)).collect();
            assert_eq!(seen, [(2, vec![])], "the owner sees that it has no child any more");
        });
    }
}

/// D4: with kube-runtime, a subscriber that receives an object hangs if the object has been deleted before the delivery, even if more events follow.
#[test]
fn d4_a_quick_deletion_blocks_no_subscriber() {
    Simulation::explore(SEEDS, |sim| {
        let server = cluster();
        server.put(child(1));
        let children =
            sim.informer(Informer::builder(CHILDREN, server.clone())).expect("the configuration is valid");
        let mut subscription = children.store().subscribe();
        let log = run(sim, &children, |child| child.key);
        sim.advance(SECOND);
        log.take();

        // The subscriber does not read changes until all of these writes are done. Object 9 is added and deleted in one burst; object 8 is deleted
        // after the cache has stored it.
        server.put(child(9));
        server.delete(&9);
        sim.advance(SECOND);
        server.put(child(8));
        sim.advance(SECOND);
        server.delete(&8);
        let received = Log::new();
        let own_log = received.clone();
        sim.spawn(async move {
            while let Some(change) = subscription.next().await {
                own_log.note(*change.key());
            }
        });
        sim.advance(SECOND);
        let (seen, last) = (log.take(), |seen: &[Seen], key| {
            seen.iter().rev().find(|(of, ..)| *of == key).map(|(.., seen)| seen.clone())
        });
        assert_eq!((last(&seen, 8), last(&seen, 9)), (Some(vec![]), Some(vec![])), "both are gone");
        received.take();

        let version = server.put(child(9)).get();
        sim.advance(SECOND);
        assert_eq!(last(&log.take(), 9), Some(vec![version]));
        assert_eq!(received.take(), [9]);
    });
}

/// D5: with kube-runtime, a subscriber that does not poll stops the cache and all other subscribers, once its buffer is full.
#[test]
fn d5_an_idle_subscriber_blocks_no_other() {
    const OBJECTS: u32 = 1_000;
    Simulation::explore(5, |sim| {
        let server = cluster();
        let children =
            sim.informer(Informer::builder(CHILDREN, server.clone())).expect("the configuration is valid");
        let mut idle = [children.store().subscribe(), children.store().subscribe()];
        let log = run(sim, &children, |child| child.key);
        sim.advance(SECOND);
        for _ in 0..3 {
            (0..OBJECTS).for_each(|key| _ = server.put(child(key)));
            sim.advance(SECOND);
        }
        assert_eq!(children.store().len(), OBJECTS as usize);
        let newest: BTreeMap<u32, u64> =
            server.objects().iter().map(|child| (child.key, child.version.get())).collect();
        let seen: BTreeMap<u32, u64> =
            log.take().into_iter().filter_map(|(key, _, seen)| Some((key, *seen.last()?))).collect();
        assert_eq!(seen, newest, "the last reconcile of each object must read its newest version");
        for idle in &mut idle {
            assert_eq!(idle.pending(), OBJECTS as usize, "bounded by objects, not by events");
            let delivered: BTreeMap<u32, u64> = std::iter::from_fn(|| idle.try_next())
                .map(|change| (*change.key(), change.object().version.get()))
                .collect();
            assert_eq!(delivered, newest);
        }
    });
}

/// D6: with kube-runtime, only one of the tasks that wait for the first list is woken.
#[test]
fn d6_wakes_all_waiters_of_the_first_list() {
    Simulation::explore(SEEDS, |sim| {
        let server = cluster();
        server.set_faults(|faults| faults.unresponsive = true);
        server.put(child(1));
        let children =
            sim.informer(Informer::builder(CHILDREN, server.clone())).expect("the configuration is valid");
        let woken = Log::new();
        for _ in 0..8 {
            let (children, woken) = (children.clone(), woken.clone());
            sim.spawn(async move { woken.note(children.synced().await) });
        }
        // Controllers wait for a first list, too. Some of them wait for the cache that they watch, the others for a cache that another controller
        // watches.
        let logs: Vec<_> = (0..4).map(|_| run(sim, &children, |child| child.key)).collect();
        for _ in 0..4 {
            let (queue, children, own_log) = (queue(sim), children.clone(), woken.clone());
            queue.add(7).expect("the queue is open");
            let controller = Controller::new(queue).start_when(async move { children.synced().await });
            sim.run(controller, move |_, _| {
                own_log.note(Ok(()));
                async { Ok::<_, String>(Action::await_change()) }
            });
        }
        sim.advance(5 * SECOND);
        assert_eq!(woken.take(), []);
        server.set_faults(|faults| faults.unresponsive = false);
        sim.run_until_stalled();
        assert_eq!(woken.take(), [Ok(()); 12], "all waiters must be woken at once");
        assert!(logs.iter().all(|log| log.take().len() == 1));
    });
}

/// D7: with kube-runtime, while one watch of a controller fails and backs off, the controller does not poll its other watches.
#[test]
fn d7_a_watch_that_fails_delays_no_other_one() {
    Simulation::explore(SEEDS, |sim| {
        let (good, bad) = (cluster(), cluster());
        let informer = |server: &Cluster| sim.informer(Informer::builder(CHILDREN, server.clone()));
        let (main, owned) = (
            informer(&good).expect("the configuration is valid"),
            informer(&bad).expect("the configuration is valid"),
        );
        let log = Log::new();
        let (own_log, cache, time) = (log.clone(), main.clone(), sim.time());
        let controller = Controller::new(queue(sim))
            .watches(&main, |change| *change.key())
            .watches(&owned, |change| *change.key());
        sim.run(controller, move |key, _| {
            let seen = cache.store().get(&key).map(|child| child.version);
            own_log.note((key, time.now(), seen));
            async { Ok::<_, String>(Action::await_change()) }
        });
        sim.advance(SECOND);
        for _ in 0..100_000 {
            bad.fail_watch(SourceErrorKind::Other);
            bad.fail_list(SourceErrorKind::Other);
        }
        bad.break_watches(SourceErrorKind::Other);
        let failing = owned.status().last_success;
        for event in 0..600 {
            sim.advance(Duration::from_millis(500 + event % 7 * 100));
            let version = good.put(child(1));
            sim.run_until_stalled();
            assert_eq!(log.take(), [(1, sim.clock().now(), Some(version))], "without a delay");
        }
        assert!(owned.status().last_error.is_some());
        assert_eq!(owned.status().last_success, failing, "the bad watch must fail throughout the test");

        bad.clear_faults();
        bad.put(child(2));
        sim.advance(120 * SECOND);
        let after = log.take();
        assert!(matches!(after[..], [(2, _, None)]), "the watch must recover: {after:?}");
    });
}

/// D1: kube-runtime keeps keys that wait for a free slot in a hash table, and takes them in arbitrary order, so some keys never run under overload.
#[test]
fn d1_serves_all_keys_under_overload() {
    const KEYS: u32 = 2_000;
    let mut sim = Simulation::new(1);
    let (queue, log) = (queue(&sim), Log::new());
    (0..KEYS).for_each(|key| _ = queue.add(key));
    let (own_log, time) = (log.clone(), sim.time());
    sim.run(
        Controller::new(queue)
            .with_config(ControllerConfig { workers: 10.into(), ..ControllerConfig::default() }),
        move |key, _| {
            own_log.note(key);
            let time = time.clone();
            async move {
                time.sleep(Duration::from_millis(49)).await;
                Ok::<_, String>(Action::requeue_after(5 * SECOND))
            }
        },
    );
    sim.advance(60 * SECOND);
    let mut runs = BTreeMap::<u32, u32>::new();
    log.take().into_iter().for_each(|key| *runs.entry(key).or_default() += 1);
    // Ten workers run for a minute, and a reconcile takes 49 ms, so each key runs six or seven times.
    assert_eq!(runs.len(), KEYS as usize);
    assert!(runs.values().all(|runs| (6..=7).contains(runs)), "{runs:?}");
}

/// With kube-runtime, a key that may run immediately waits for a timer (D9), and keys that are added within one millisecond run in reverse order
/// (D10).
#[test]
fn d9_d10_ready_keys_run_immediately_and_in_order() {
    Simulation::explore(SEEDS, |sim| {
        let (queue, log) = (queue(sim), Log::new());
        let (own_log, time) = (log.clone(), sim.time());
        sim.run(Controller::new(queue.clone()), move |key, _| {
            own_log.note((key, time.now()));
            async { Ok::<_, String>(Action::await_change()) }
        });
        sim.advance(SECOND);
        let now = sim.clock().now();
        (0..10).for_each(|key| _ = queue.add(key));
        sim.run_until_stalled();
        assert_eq!(log.take(), (0..10).map(|key| (key, now)).collect::<Vec<_>>());
        (0..10).for_each(|key| _ = queue.add_after(key, SECOND));
        sim.advance(SECOND);
        assert_eq!(log.take(), (0..10).map(|key| (key, now + SECOND)).collect::<Vec<_>>());
    });
}
