//! Counts the requests that both engines send to an API server with their default settings: when they start with ten thousand objects, and during an
//! hour in which nothing changes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use futures::StreamExt;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{from_value, json};
use tokio::time::sleep;
use tower::ServiceExt;

const OBJECTS: usize = 10_000;
/// An hour in seconds.
const HOUR: usize = 3600;

/// The number of requests of each kind, and the number of bytes in the responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    lists: usize,
    watches: usize,
    others: usize,
    bytes: u64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {}", self.lists, self.watches, self.bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    New,
    Owns,
    Watches,
}

/// A server, and the number of bytes in its responses.
struct Counted {
    server: ApiServer,
    bytes: Arc<AtomicU64>,
}

impl Counted {
    /// Creates a server with [`OBJECTS`] objects of one kibibyte each. For `New` the objects are of the main kind of the controller. Otherwise they
    /// are of the owned or watched kind, and all of them belong to one object of the main kind.
    fn with_objects(call: Call) -> Self {
        let server = ApiServer::new();
        server.register::<ConfigMap>().register::<Secret>();
        let map = |name: String| -> ConfigMap {
            let metadata = json!({"namespace": "default", "name": name});
            from_value(json!({"metadata": metadata, "data": {"content": "x".repeat(1024)}})).unwrap()
        };
        if call == Call::New {
            (0..OBJECTS).for_each(|number| drop(server.put(&map(format!("map-{number}")))));
        } else {
            let owner = server.put(&map("owner".to_owned())).controller_owner_ref(&());
            for number in 0..OBJECTS {
                let name = format!("secret-{number}");
                let metadata = json!({"namespace": "default", "name": name, "ownerReferences": [owner]});
                let data = json!({"content": "eHh4".repeat(256)});
                server.put::<Secret>(&from_value(json!({"metadata": metadata, "data": data})).unwrap());
            }
        }
        Self { server, bytes: Arc::default() }
    }

    fn client(&self) -> Client {
        let bytes = self.bytes.clone();
        let counted = self.server.clone().map_response(move |response| {
            let bytes = bytes.clone();
            response.map(|body| {
                body.map_frame(move |frame| {
                    let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                    bytes.fetch_add(length, Ordering::Relaxed);
                    frame
                })
            })
        });
        Client::new(counted, "default")
    }

    /// Returns the cost since the previous call.
    fn cost(&self) -> Cost {
        let count = |verb| self.server.requests_matching(&RequestMatcher::verb(verb)).len();
        let (lists, watches) = (count(Verb::List), count(Verb::Watch));
        let others = self.server.requests().len() - lists - watches;
        self.server.clear_requests();
        Cost { lists, watches, others, bytes: self.bytes.swap(0, Ordering::Relaxed) }
    }
}

macro_rules! engine {
    ($name:ident, $controller:path) => {
        fn $name(call: Call, client: Client) -> BoxFuture<'static, ()> {
            use $controller as Controller;
            let maps = Api::<ConfigMap>::all(client.clone());
            let secrets = Api::<Secret>::all(client);
            let config = watcher::Config::default;
            let controller = Controller::new(maps, config());
            let controller = match call {
                Call::New => controller,
                Call::Owns => controller.owns(secrets, config()),
                Call::Watches => controller.watches(secrets, config(), |secret: Secret| {
                    Some(ObjectRef::new("owner").within(&secret.namespace().unwrap_or_default()))
                }),
            };
            let reconcile =
                async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, kube::Error>(Action::await_change());
            Box::pin(controller.run(reconcile, |_, _, _| unreachable!(), Arc::new(())).for_each(|_| async {}))
        }
    };
}

engine!(kube_runtime, kube::runtime::Controller);
engine!(flyball, flyball_kube::Controller);

/// Runs a controller. Returns its cost in the first minute, and its cost in the hour after that minute.
async fn measure(call: Call, run: fn(Call, Client) -> BoxFuture<'static, ()>) -> [Cost; 2] {
    let counted = Counted::with_objects(call);
    let running = tokio::spawn(run(call, counted.client()));
    sleep(Duration::from_secs(60)).await;
    let start = counted.cost();
    sleep(Duration::from_secs(HOUR as u64)).await;
    let hour = counted.cost();
    running.abort();
    [start, hour]
}

/// Returns the minimum and the maximum number of watches that flyball starts in an hour if it watches `kinds` kinds. Each watch lasts for a random
/// time between half of kube-runtime's timeout and the whole timeout. The maximum is one higher per kind, because the first of these watches may
/// start at any time in the hour.
fn watches_of_flyball(kinds: usize) -> [usize; 2] {
    const TIMEOUT: usize = 290;
    [kinds * (HOUR / TIMEOUT), kinds * (HOUR / (TIMEOUT / 2) + 1)]
}

/// `cargo test -p example-programs --test e2e cost -- --nocapture` prints the table of the README.
#[tokio::test(start_paused = true)]
async fn the_defaults_list_no_more_than_kube_runtimes_and_watch_at_most_twice_as_often() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let mut missing = Vec::new();
    for call in [Call::New, Call::Owns, Call::Watches] {
        let kube = measure(call, kube_runtime).await;
        let ours = measure(call, flyball).await;
        for (engine, [start, hour]) in [("kube-runtime", kube), ("flyball", ours)] {
            let name = format!("{call:?}").to_lowercase();
            let watches = if engine == "flyball" {
                let [least, most] = watches_of_flyball(start.watches);
                assert!((least..=most).contains(&hour.watches), "{call:?}: {hour:?}");
                format!("{least} to {most}")
            } else {
                hour.watches.to_string()
            };
            let row = format!("| `{name}` | {engine} | {start} | {} | {watches} |", hour.lists);
            println!("{row} measured: {} watches, {} bytes", hour.watches, hour.bytes);
            if !readme.contains(&row) {
                missing.push(row);
            }
        }
        let ([kube, kube_hour], [ours, ours_hour]) = (kube, ours);
        assert!(ours.lists <= kube.lists && ours.watches <= kube.watches, "{call:?}: {ours:?}, {kube:?}");
        assert!(ours.bytes <= kube.bytes, "{call:?}: {ours:?}, {kube:?}");
        assert_eq!([ours_hour.lists, kube_hour.lists], [0, 0], "{call:?}: nothing is listed again");
        assert!(ours_hour.bytes <= 2 * kube_hour.bytes + 500, "{call:?}: {ours_hour:?}, {kube_hour:?}");
        for cost in [kube, kube_hour, ours, ours_hour] {
            assert_eq!(cost.others, 0, "reconciles do nothing");
        }
    }
    assert!(missing.is_empty(), "the README does not have\n{}", missing.join("\n"));
}
