//! `OpsServer`, over a real socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flyball_controller::{Action, Controller};
use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{Informer, Page, Schema, Version};
use flyball_ops::{OpsServer, PrometheusQueues};
use flyball_sync::TokioTimer;
use flyball_workqueue::Queue;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::http_client::{assert_has_lines, read, serve, write};

#[tokio::test]
async fn probes_name_failed_checks_and_a_check_that_panics_has_failed() {
    let broken = Arc::new(AtomicBool::new(false));
    let look = broken.clone();
    let server = OpsServer::new()
        .liveness_check("disk", || Ok::<_, &str>(()))
        .liveness_check(
            "clock",
            move || if look.load(Ordering::SeqCst) { Err("it\nstands still") } else { Ok(()) },
        )
        .readiness_check("warm", || -> Result<(), &str> { panic!("cold") });
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
async fn other_paths_and_methods_are_refused_and_head_has_no_body() {
    let served = serve(OpsServer::new().liveness_check("disk", || Ok::<_, &str>(()))).await;
    assert_eq!(served.get("/").await.0, 404);
    assert_eq!(served.get("/healthz/").await.0, 404);
    assert_eq!(served.request("POST /nowhere").await.0, 404);
    let (status, head, _) = served.request("POST /healthz").await;
    assert_eq!(status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    let (status, head, body) = served.request("HEAD /healthz").await;
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: 2"), "{head}");
    assert!(head.contains("text/plain"), "{head}");
    served.end().await;
}

#[tokio::test]
async fn registered_items_are_checked_exported_and_shown() {
    let source = ScriptedSource::new();
    let script = source.clone();
    let schema = Schema::new(|n: &u32| *n, |_| Version::ZERO);
    let (numbers, run) = Informer::builder(schema, source).timer(TokioTimer::current()).build().unwrap();
    let running = tokio::spawn(run);
    let queues = PrometheusQueues::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(queues.clone()));
    let queue = Queue::<&str>::builder().metrics(queues.queue("q")).build();
    queue.track_ages();
    queue.add("a").unwrap();
    let server = OpsServer::new()
        .registry(registry)
        .informer("numbers", &numbers)
        .queue("q", &queue)
        .debug_section("answer", || json!(42))
        .debug_section("broken", || panic!("no"));
    let served = serve(server).await;

    assert_eq!(
        served.get("/readyz").await,
        (503, "[-]numbers failed: the cache has not synced\nreadyz check failed\n".into())
    );
    script.answer_list(Ok(Page { items: vec![1, 2, 3], version: Version::new(7), continuation: None }));
    script.answer_watch(Ok(()));
    numbers.synced().await.unwrap();
    assert_eq!(served.get("/readyz").await.0, 200);

    let (status, metrics) = served.get("/metrics").await;
    assert_eq!(status, 200);
    let lines = [
        "informer_objects{name=\"numbers\"} 3",
        "informer_synced{name=\"numbers\"} 1",
        "informer_version{name=\"numbers\"} 7",
        "informer_relists_total{name=\"numbers\"} 0",
        "informer_withheld_deletions{name=\"numbers\"} 0",
        "workqueue_depth{name=\"q\"} 1",
    ];
    assert_has_lines(&metrics, &lines);
    assert!(metrics.ends_with("# EOF\n"));

    let debug: Value = serde_json::from_str(&served.get("/debug").await.1).unwrap();
    assert_eq!(debug["caches"]["numbers"]["objects"], 3);
    assert_eq!(debug["caches"]["numbers"]["state"], "watching");
    assert_eq!(debug["queues"]["q"]["ready"], 1);
    assert!(debug["queues"]["q"]["oldestReadySeconds"].is_f64());
    assert_eq!(debug["custom"], json!({"answer": 42, "broken": {"panicked": true}}));

    // The server does not keep the queue alive.
    drop(queue);
    let debug: Value = serde_json::from_str(&served.get("/debug").await.1).unwrap();
    assert_eq!(debug["queues"], json!({"q": null}));

    numbers.shut_down();
    running.await.unwrap();
    assert_eq!(
        served.get("/healthz").await,
        (503, "[-]numbers failed: the cache has ended\nhealthz check failed\n".into())
    );
    served.end().await;
}

#[tokio::test]
async fn a_controller_is_ready_while_it_works_and_alive_until_it_ends() {
    let backoff = flyball_ratelimit::Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60));
    let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    queue.add(1).unwrap();
    let stop = Arc::new(Notify::new());
    let stopped = stop.clone();
    let controller = Controller::new(queue).graceful_shutdown_on(async move { stopped.notified().await });
    let server = OpsServer::new().controller("pods", &controller.health(), Duration::from_secs(60));
    let served = Arc::new(serve(server).await);
    let not_yet = "[-]pods failed: the controller does not run yet\nreadyz check failed\n";
    assert_eq!(served.get("/readyz").await, (503, not_yet.into()));
    assert_eq!(served.get("/healthz").await, (200, "ok".into()));
    let server = served.clone();
    controller
        .run(move |_, _| {
            let (server, stop) = (server.clone(), stop.clone());
            async move {
                assert_eq!(server.get("/readyz").await, (200, "ok".into()));
                assert_eq!(server.get("/livez").await, (200, "ok".into()));
                stop.notify_one();
                Ok::<_, String>(Action::await_change())
            }
        })
        .await
        .unwrap();
    let ended = "[-]pods failed: the controller has ended\nhealthz check failed\n";
    assert_eq!(served.get("/healthz").await, (503, ended.into()));
    Arc::into_inner(served).expect("the controller has dropped its handle").end().await;
}

#[tokio::test]
async fn connections_are_bounded_and_kept_alive() {
    let served = serve(OpsServer::new().max_connections(1)).await;
    let first = served.connect().await;
    let request = "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n";
    for _ in 0..2 {
        write(&first, request).await;
        assert!(read(&first).await.starts_with("HTTP/1.1 200"));
    }
    // When the second connection arrives, the server closes the first one, which is idle.
    let second = served.connect().await;
    write(&second, request).await;
    assert!(read(&second).await.starts_with("HTTP/1.1 200"));
    assert_eq!(read(&first).await, "");
    // The shutdown closes the second connection, which is open and idle.
    served.end().await;
    assert_eq!(read(&second).await, "");
}

#[tokio::test]
async fn a_probe_is_answered_within_a_second_beside_idle_and_slow_connections() {
    let served = serve(OpsServer::new()).await;
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
            // A connection that keeps sending requests stays open, because it is never the least recently used one.
            write(&kept, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n").await;
            assert!(read(&kept).await.starts_with("HTTP/1.1 200"));
            let start = Instant::now();
            assert_eq!(served.get("/healthz").await.0, 200);
            assert!(start.elapsed() < Duration::from_secs(1), "{:?} beside {n} others", start.elapsed());
        }
    }
    // The oldest connections were closed.
    assert_eq!(read(&others[0]).await, "");
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_request_header_closes_the_connection() {
    let served = serve(OpsServer::new().header_timeout(Duration::from_secs(3))).await;
    let slow = served.connect().await;
    let start = Instant::now();
    write(&slow, "GET /healthz HTTP/1.1\r\nHost").await;
    let answer = read(&slow).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    served.end().await;
}

#[tokio::test]
async fn the_longest_header_timeout_is_no_limit() {
    let served = serve(OpsServer::new().header_timeout(Duration::MAX)).await;
    assert_eq!(served.get("/healthz").await, (200, "ok".into()));
    served.end().await;
}
