//! A program that uses streams and a store of kube-runtime. Its source text is the same for both engines.

use std::pin::Pin;
use std::sync::Arc;

use flyball_kube_testing::{ApiServer, RequestMatcher};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::Status;
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, predicates, watcher};
use kube::{Api, ResourceExt};
use tokio::time::sleep;

use super::engine::{BOTH, Engine, map, secret, server};
use super::{SECOND, assert_same_times};
use crate::world::{Refused, Runs, during, outcomes};

type Item = Result<(ObjectRef<ConfigMap>, Action), Outcome<Refused, watcher::Error>>;

/// The setup that most published programs have: a filtered reflector for the controller's own objects, a stream for the owned objects, and a shared
/// reflector for the related objects.
macro_rules! program {
    ($controller:ty, $server:expr, $runs:expr) => {{
        let client = $server.client();
        let (reader, writer) = reflector::store();
        let maps = watcher::watcher(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
            .default_backoff()
            .reflect(writer)
            .applied_objects()
            .predicate_filter(predicates::labels, Default::default());
        let owned = watcher::watcher(Api::<Secret>::all(client.clone()), watcher::Config::default())
            .default_backoff()
            .touched_objects();
        let (_, shared) = reflector::store_shared::<Secret>(64);
        let handle = shared.subscribe().expect("the store is shared");
        let reflect = watcher::watcher(Api::<Secret>::all(client), watcher::Config::default())
            .default_backoff()
            .reflect_shared(shared);
        let driver = tokio::spawn(reflect.for_each(async |_| {}));
        let mut calls = 0;
        let reconcile = move |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            calls += 1;
            runs.record(&*map);
            std::future::ready(if calls == 2 { Err(Refused(None)) } else { Ok(Action::await_change()) })
        };
        let results = <$controller>::for_stream(maps, reader)
            .owns_stream(owned)
            .watches_shared_stream(handle, |secret: Arc<Secret>| {
                let about = secret.annotations().get("about").cloned();
                about.map(|name| ObjectRef::<ConfigMap>::new(&name).within("default"))
            })
            .run(reconcile, |_, _, _| Action::requeue(5 * SECOND), $runs.clone());
        let results: Pin<Box<dyn Stream<Item = Item> + Send>> = results.boxed();
        (results, driver)
    }};
}

fn start(
    engine: Engine,
    server: &ApiServer,
    runs: &Arc<Runs>,
) -> (Pin<Box<dyn Stream<Item = Item> + Send>>, tokio::task::JoinHandle<()>) {
    match engine {
        Engine::KubeRuntime => program!(kube::runtime::Controller<ConfigMap>, server, runs),
        Engine::Flyball => program!(flyball_kube::Controller<ConfigMap>, server, runs),
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_over_streams_does_the_same_on_both() {
    let mut both = Vec::new();
    for engine in BOTH {
        let server = server(["a".to_owned()]);
        let runs = Runs::new();
        let (mut results, driver) = start(engine, &server, &runs);
        let mut all = outcomes(&during(&mut results, SECOND).await);
        // The filter rejects the first change, and accepts the second change.
        server.put(&map("a"));
        all.extend(outcomes(&during(&mut results, SECOND).await));
        let mut labelled = map("a");
        labelled.labels_mut().insert("new".to_owned(), String::new());
        let owner = server.put(&labelled);
        all.extend(outcomes(&during(&mut results, 10 * SECOND).await));
        // An owned Secret is created, then gets an annotation that relates it to an object, and is then deleted.
        let mut owned = secret("s", &owner);
        server.put(&owned);
        all.extend(outcomes(&during(&mut results, SECOND).await));
        owned.annotations_mut().insert("about".to_owned(), "unknown".to_owned());
        server.put(&owned);
        all.extend(outcomes(&during(&mut results, SECOND).await));
        assert!(server.delete::<Secret>("default", "s"));
        all.extend(outcomes(&during(&mut results, SECOND).await));
        driver.abort();
        both.push((all, runs.of("a")));
    }
    let [(kube, kube_times), (ours, our_times)] = &both[..] else { unreachable!() };
    let sorted = |items: &[String]| {
        let mut items = items.to_vec();
        items.sort();
        items
    };
    assert_eq!(sorted(kube), sorted(ours));
    assert!(ours.contains(&"?unknown".to_owned()) && ours.contains(&"!a".to_owned()), "{ours:?}");
    assert_same_times(kube_times, our_times);
}

/// D7: in kube-runtime a failing stream delays all other streams.
#[tokio::test(start_paused = true)]
async fn both_report_a_failing_stream_which_delays_no_other() {
    for engine in BOTH {
        let server = server(["a".to_owned()]);
        let forbidden = Status::failure("no", "Forbidden").with_code(403);
        server.fail_next(RequestMatcher::any().resource::<Secret>(), u32::MAX, forbidden);
        let runs = Runs::new();
        let (mut results, driver) = start(engine, &server, &runs);
        let mut items = during(&mut results, 120 * SECOND).await;
        let mut labelled = map("a");
        labelled.labels_mut().insert("new".to_owned(), String::new());
        server.put(&labelled);
        items.extend(during(&mut results, SECOND / 10).await);
        assert!(outcomes(&items).contains(&"!!".to_owned()), "{engine:?}");
        if engine == Engine::Flyball {
            assert_eq!(runs.of("a"), [0, 120_000]);
        }
        driver.abort();
        sleep(SECOND).await;
    }
}
