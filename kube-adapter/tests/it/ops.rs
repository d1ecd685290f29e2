//! What a process in production is asked, over a real socket.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flyball_informer_cache::{Informer, Page, Schema, ScriptedSource, Version};
use flyball_kube::leader::{Election, Ended};
use flyball_kube::ops::Server;
use flyball_kube::{Controller, Throttle};
use flyball_ops::PrometheusQueues;
use flyball_workqueue::Queue;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::watcher;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::lease_server::LeaseServer;
use crate::script::{Answer, Script};
use crate::world::{Runs, noting};

struct Served {
    address: std::net::SocketAddr,
    shutdown: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

async fn serve(server: Server) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, shut) = oneshot::channel();
    let server = tokio::spawn(server.serve(listener, async { drop(shut.await) }));
    Served { address, shutdown, server }
}

async fn write(stream: &TcpStream, request: &str) {
    stream.writable().await.unwrap();
    assert_eq!(stream.try_write(request.as_bytes()).unwrap(), request.len());
}

/// What has come; empty at the end.
async fn read(stream: &TcpStream) -> String {
    let mut part = vec![0; 4096];
    loop {
        stream.readable().await.unwrap();
        match stream.try_read(&mut part) {
            Ok(len) => return String::from_utf8(part[..len].to_vec()).unwrap(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Status, head and body of an answer.
    async fn ask(&self, request: &str) -> (u16, String, String) {
        let stream = self.connect().await;
        let request = format!("{request} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        write(&stream, &request).await;
        let mut answer = String::new();
        loop {
            match read(&stream).await {
                part if part.is_empty() => break,
                part => answer.push_str(&part),
            }
        }
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.ask(&format!("GET {path}")).await;
        (status, body)
    }

    async fn end(self) {
        self.shutdown.send(()).unwrap();
        self.server.await.unwrap().unwrap();
        assert!(TcpStream::connect(self.address).await.is_err(), "nobody listens any more");
    }
}

#[tokio::test]
async fn probes_tell_what_fails_and_a_check_that_panics_has_failed() {
    let broken = Arc::new(AtomicBool::new(false));
    let look = broken.clone();
    let server = Server::new()
        .live("disk", || Ok::<_, &str>(()))
        .live("clock", move || if look.load(Ordering::SeqCst) { Err("it\nstands still") } else { Ok(()) })
        .ready("warm", || -> Result<(), &str> { panic!("cold") });
    let served = serve(server).await;
    assert_eq!(served.get("/healthz").await, (200, "ok".into()));
    assert_eq!(
        served.get("/livez?verbose").await,
        (200, "[+]disk ok\n[+]clock ok\nlivez check passed\n".into())
    );
    broken.store(true, Ordering::SeqCst);
    assert_eq!(
        served.get("/healthz").await,
        (503, "[-]clock failed: it stands still\nhealthz check failed\n".into())
    );
    let all = "[+]disk ok\n[-]clock failed: it stands still\nhealthz check failed\n";
    assert_eq!(served.get("/healthz?a=b&verbose=1").await, (503, all.into()));
    assert_eq!(
        served.get("/readyz").await,
        (503, "[-]warm failed: the check has panicked\nreadyz check failed\n".into())
    );
    served.end().await;
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_and_a_head_has_no_body() {
    let served = serve(Server::new().live("disk", || Ok::<_, &str>(()))).await;
    assert_eq!(served.get("/").await.0, 404);
    assert_eq!(served.get("/healthz/").await.0, 404);
    assert_eq!(served.ask("POST /nowhere").await.0, 404);
    let (status, head, _) = served.ask("POST /healthz").await;
    assert_eq!(status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    let (status, head, body) = served.ask("HEAD /healthz").await;
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: 2"), "{head}");
    assert!(head.contains("text/plain"), "{head}");
    served.end().await;
}

#[tokio::test]
async fn what_is_registered_is_ready_alive_counted_and_shown() {
    let source = ScriptedSource::new();
    let script = source.clone();
    let schema = Schema::new(|n: &u32| *n, |_| Version::ZERO);
    let (numbers, run) =
        Informer::builder(schema, source).timer(flyball_sync::TokioTimer::current()).build().unwrap();
    let running = tokio::spawn(run);
    let prometheus = PrometheusQueues::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(prometheus.clone()));
    let queue = Queue::<&str>::builder().metrics(prometheus.queue("q")).build();
    queue.track_ages();
    queue.add("a").unwrap();
    let throttle = Throttle::new(Throttle::CLIENT_GO);
    let lease = LeaseServer::new();
    let mut election = Election::builder(lease.client(), "ns", "l", "me").build().unwrap();
    let standing = election.standing();
    let looked = queue.clone();
    let server = Server::new()
        .registry(registry)
        .informer("numbers", &numbers)
        .queue("q", move || (looked.counts(), looked.ages()))
        .throttle("client", &throttle)
        .election("l", &standing)
        .debug("answer", || json!(42))
        .debug("broken", || panic!("no"));
    let served = serve(server).await;

    assert_eq!(
        served.get("/readyz").await,
        (503, "[-]numbers failed: the cache has not synced\nreadyz check failed\n".into())
    );
    script.list(Ok(Page { items: vec![1, 2, 3], version: Version::new(7), continuation: None }));
    script.watch(Ok(()));
    numbers.synced().await.unwrap();
    assert_eq!(served.get("/readyz").await.0, 200);

    let ended = election.run(|_| async {
        let (status, metrics) = served.get("/metrics").await;
        assert_eq!(status, 200);
        for line in [
            "informer_objects{name=\"numbers\"} 3",
            "informer_synced{name=\"numbers\"} 1",
            "informer_version{name=\"numbers\"} 7",
            "informer_relists_total{name=\"numbers\"} 0",
            "workqueue_depth{name=\"q\"} 1",
            "client_throttle_requests_total{name=\"client\"} 0",
            "client_throttle_wait_seconds_total{name=\"client\"} 0.0",
            "leader_election_master_status{name=\"l\"} 1",
            "leader_election_terms_total{name=\"l\"} 1",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
        }
        assert!(metrics.ends_with("# EOF\n"));

        let debug: Value = serde_json::from_str(&served.get("/debug").await.1).unwrap();
        assert_eq!(debug["caches"]["numbers"]["objects"], 3);
        assert_eq!(debug["caches"]["numbers"]["state"], "watching");
        assert_eq!(debug["queues"]["q"]["ready"], 1);
        assert!(debug["queues"]["q"]["oldestReadySeconds"].is_f64());
        assert_eq!(debug["throttles"]["client"]["burst"], 10);
        assert_eq!(debug["elections"]["l"]["leader"], "me");
        assert_eq!(debug["custom"], json!({"answer": 42, "broken": {"panicked": true}}));
    });
    assert_eq!(ended.await, Ended::Done(()));

    numbers.shut_down();
    running.await.unwrap();
    assert_eq!(
        served.get("/healthz").await,
        (503, "[-]numbers failed: the cache has ended\nhealthz check failed\n".into())
    );
    served.end().await;
}

#[tokio::test]
async fn connections_are_bounded_and_kept_alive() {
    let served = serve(Server::new().connections(1)).await;
    let first = served.connect().await;
    let request = "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n";
    for _ in 0..2 {
        write(&first, request).await;
        assert!(read(&first).await.starts_with("HTTP/1.1 200"));
    }
    // The second takes the place of the first, which is idle.
    let second = served.connect().await;
    write(&second, request).await;
    assert!(read(&second).await.starts_with("HTTP/1.1 200"));
    assert_eq!(read(&first).await, "");
    // It is open, and idle: a shutdown ends it, too.
    served.end().await;
    assert_eq!(read(&second).await, "");
}

#[tokio::test]
async fn a_probe_is_answered_within_a_second_beside_idle_and_slow_connections() {
    let served = serve(Server::new()).await;
    let kept = served.connect().await;
    let mut others = Vec::new();
    for n in 0..300 {
        let other = served.connect().await;
        match n % 3 {
            0 => {}
            1 => write(&other, "GET /healthz HTTP/1.1\r\nHost").await,
            _ => {
                write(&other, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").await;
                assert!(read(&other).await.starts_with("HTTP/1.1 200"));
            }
        }
        others.push(other);
        if n % 20 == 0 {
            // Of which nobody has so many: one that is in use is kept.
            write(&kept, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n").await;
            assert!(read(&kept).await.starts_with("HTTP/1.1 200"));
            let start = Instant::now();
            assert_eq!(served.get("/healthz").await.0, 200);
            assert!(start.elapsed() < Duration::from_secs(1), "{:?} beside {n} others", start.elapsed());
        }
    }
    // The oldest have been closed.
    assert_eq!(read(&others[0]).await, "");
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_ask_in_time_is_hung_up_on() {
    let served = serve(Server::new().head_timeout(Duration::from_secs(3))).await;
    let slow = served.connect().await;
    let start = Instant::now();
    write(&slow, "GET /healthz HTTP/1.1\r\nHost").await;
    let answer = read(&slow).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    served.end().await;
}

#[tokio::test]
async fn what_a_controller_could_not_read_is_a_figure() {
    let meta = |name| json!({"name": name, "namespace": "x", "resourceVersion": "1"});
    let items = json!([{"metadata": meta("a")}, {"metadata": meta("b"), "data": 3}]);
    let list = json!({"metadata": {"resourceVersion": "7"}, "items": items});
    let client = Script::of([Answer::json(&list)]).client();
    let controller = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default());
    let server = Server::new().controller("maps", &controller.monitor(), Duration::from_secs(60));
    let mut reconciles = noting(controller, &Runs::new());
    reconciles.next().await.unwrap().unwrap();
    let (_, metrics) = serve(server).await.get("/metrics").await;
    let line = "controller_reconciles_in_flight{name=\"maps\"} 0";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
    let line = "controller_objects_skipped_total{name=\"maps\"} 1";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}
