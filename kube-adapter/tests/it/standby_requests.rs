//! Requests of streams that arrive in standby, during the election, and later. Changes of the objects are filtered, so only the requests cause
//! reconciles.

use std::iter::repeat;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::NamespacedName;
use flyball_kube::{Controller, QueueOrder};
use flyball_kube_lease::Election;
use flyball_kube_testing::{ApiServer, RequestMatcher};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use testkit::random::cases;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::world::{Refused, Runs, SECOND, World, fifo_config, logging, map, pod};

/// Returns a sender, and a stream of the items that the test sends.
fn fed<T: Send + 'static>() -> (UnboundedSender<T>, BoxStream<'static, T>) {
    let (sender, receiver) = unbounded_channel();
    (sender, stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))).boxed())
}

/// Returns a server that refuses the first `refused` requests for the Lease.
fn lease_server(refused: u32) -> ApiServer {
    let server = ApiServer::new();
    server.register::<Lease>();
    let forbidden = Status::failure("leases", "Forbidden").with_code(403);
    server.fail_next(RequestMatcher::any().resource::<Lease>(), refused, forbidden);
    server
}

fn request(name: &str) -> ObjectRef<ConfigMap> {
    ObjectRef::new(name).within("default")
}

#[tokio::test(start_paused = true)]
async fn a_request_in_standby_is_reconciled_after_the_election_if_the_filter_rejects_its_object() {
    let world = World::of(["a", "b", "c", "d"].map(|name| map(&format!("default/{name}"))));
    let (server, runs) = (lease_server(10), Runs::new());
    let (requests, requested) = fed();
    let (all, all_requested) = fed();
    let (pods, changed) = fed();
    let mut election =
        Election::builder(server.client(), "default", "l", "a").seed(7).standby(true).build().unwrap();
    let controller = Controller::for_shared(&world.informer)
        .with_config(fifo_config())
        .filter_changes(|_| false)
        .reconcile_on(requested)
        .reconcile_all_on(all_requested)
        .owns_stream(changed);
    let (noted, status) = (runs.clone(), election.status());
    let running = tokio::spawn(async move {
        let work =
            |leadership| logging(controller.with_leadership(&leadership), &noted).for_each(async |_| {});
        election.run(std::future::pending(), work).await
    });
    sleep(SECOND).await;
    requests.send(request("b")).unwrap();
    requests.send(request("b")).unwrap();
    pods.send(Ok::<Pod, _>(pod("default/p", &["c"]))).unwrap();
    sleep(SECOND).await;
    assert!(!status.is_leader() && runs.all().is_empty());
    sleep(120 * SECOND).await;
    assert!(status.is_leader());
    let mut names = runs.names();
    names.sort();
    assert_eq!(names, ["b", "c"], "each requested object is reconciled once");

    all.send(()).unwrap();
    sleep(SECOND).await;
    assert_eq!(runs.names().len(), 6);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_in_standby_loses_no_request() {
    let world = World::of([map("default/a")]);
    let (server, runs) = (lease_server(10), Runs::new());
    let mut election =
        Election::builder(server.client(), "default", "l", "a").seed(7).standby(true).build().unwrap();
    let controller = Controller::for_shared(&world.informer)
        .filter_changes(|_| false)
        .reconcile_on(stream::iter([request("a")]));
    let noted = runs.clone();
    let running = tokio::spawn(async move {
        let work =
            |leadership| logging(controller.with_leadership(&leadership), &noted).for_each(async |_| {});
        election.run(std::future::pending(), work).await
    });
    sleep(SECOND).await;
    assert!(runs.all().is_empty());
    sleep(120 * SECOND).await;
    assert_eq!(runs.names(), ["a"]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_ended_in_standby_is_not_polled_again() {
    let world = World::of([map("default/a")]);
    let (server, runs) = (lease_server(10), Runs::new());
    // Polling an `unfold` that has ended panics, so the controller would panic at its election.
    let (requests, requested) = fed();
    let mut election =
        Election::builder(server.client(), "default", "l", "a").seed(7).standby(true).build().unwrap();
    let controller =
        Controller::for_shared(&world.informer).filter_changes(|_| false).reconcile_on(requested);
    let noted = runs.clone();
    let running = tokio::spawn(async move {
        let work =
            |leadership| logging(controller.with_leadership(&leadership), &noted).for_each(async |_| {});
        election.run(std::future::pending(), work).await
    });
    sleep(SECOND).await;
    requests.send(request("a")).unwrap();
    drop(requests);
    sleep(120 * SECOND).await;
    assert!(!running.is_finished());
    assert_eq!(runs.names(), ["a"]);
    running.abort();
}

/// A reconcile: its object, its start, and whether this process was the leader then.
type Begun = (String, Instant, bool);

/// Requests arrive at random times while objects change, through every kind of stream. Each request is followed by a reconcile of its object that
/// starts later, although the filter of changes rejects objects, and no reconcile starts before the election.
#[test]
fn each_request_is_followed_by_a_reconcile_of_a_leader() {
    cases("standby requests", 60, 60, |bytes| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(random_requests(bytes));
    });
}

async fn random_requests(bytes: &[u8]) {
    let len = bytes.len();
    let mut bytes = bytes.iter().copied().chain(repeat(0));
    let mut below = |bound: u8| bytes.next().unwrap_or(0) % bound;
    let names = ["a", "b", "c", "d"];
    let world = World::of(names.map(|name| map(&format!("default/{name}"))));
    let server = lease_server(u32::from(below(12)));
    let (filter, concurrency, order) = (below(3), below(3), below(3));
    let (requests, requested) = fed();
    let (all, all_requested) = fed();
    let (pods, changed) = fed();
    let config = fifo_config().concurrency(concurrency.into()).queue_order(match order {
        0 => QueueOrder::Fifo,
        1 => QueueOrder::Priority { initial_priority: -10 },
        _ => QueueOrder::FairByNamespace { max_in_flight: Some(2) },
    });
    let mut controller = Controller::for_shared(&world.informer)
        .with_config(config)
        .reconcile_on(requested)
        .reconcile_all_on(all_requested)
        .owns_stream(changed);
    controller = match filter {
        0 => controller,
        1 => controller.filter_changes(|_| false),
        _ => controller.filter_changes(|change| !change.is_initial()),
    };
    let mut election =
        Election::builder(server.client(), "default", "l", "a").seed(7).standby(true).build().unwrap();
    let (log, status) = (Arc::new(Mutex::new(Vec::<Begun>::new())), election.status());
    let (stop, stopped) = oneshot::channel::<()>();
    let (noted, leads) = (log.clone(), status.clone());
    let slow = Duration::from_millis(u64::from(below(4)) * 400);
    let running = tokio::spawn(async move {
        let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
            noted.lock().push((map.name_any(), Instant::now(), leads.is_leader()));
            async move {
                sleep(slow).await;
                Ok::<_, Refused>(Action::await_change())
            }
        };
        let work = |leadership| {
            let controller = controller.with_leadership(&leadership);
            controller.run(reconcile, |_, _, _| Action::await_change(), Arc::new(())).for_each(async |_| {})
        };
        election.run(async { drop(stopped.await) }, work).await
    });
    let mut due: Vec<(String, Instant)> = Vec::new();
    for _ in 0..len / 3 {
        sleep(Duration::from_millis(u64::from(below(255)) * 8)).await;
        let name = names[usize::from(below(4))];
        let key: NamespacedName = format!("default/{name}").parse().unwrap();
        let now = Instant::now();
        match below(6) {
            0 | 1 => {
                requests.send(request(name)).unwrap();
                due.push((name.to_owned(), now));
            }
            2 => {
                pods.send(Ok::<Pod, _>(pod("default/p", &[name]))).unwrap();
                due.push((name.to_owned(), now));
            }
            3 => {
                all.send(()).unwrap();
                // The first list has been published at the start.
                due.extend(
                    world
                        .informer
                        .is_synced()
                        .then_some(())
                        .into_iter()
                        .flat_map(|()| names.map(|name| (name.to_owned(), now))),
                );
            }
            4 => _ = world.server.put(map(key.as_ref())),
            _ => {}
        }
    }
    sleep(200 * SECOND).await;
    assert!(status.is_leader());
    let begun = log.lock().clone();
    for (name, at, leader) in &begun {
        assert!(leader, "{name} starts at {at:?}, but this process is not the leader");
    }
    for (name, at) in due {
        let later = begun.iter().any(|(other, begun, _)| *other == name && *begun >= at);
        assert!(later, "filter {filter}: the request of {name} at {at:?} is lost: {begun:?}");
    }
    drop(stop);
    running.await.unwrap();
}
