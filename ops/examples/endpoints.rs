//! A controller without Kubernetes, with probes, metrics and a debug view.
//! Run it with `cargo run -p flyball-ops --features http --example endpoints`.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flyball_controller::{Action, Controller};
use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{Informer, Page, Schema, Version};
use flyball_ops::prometheus_client::registry::Registry;
use flyball_ops::{OpsServer, PrometheusControllers, PrometheusQueues};
use flyball_ratelimit::Exponential;
use flyball_workqueue::{Queue, TokioTimer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};

const NUMBERS: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::ZERO);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The metrics of all queues and all controllers, in one registry.
    let (queues, controllers) = (PrometheusQueues::new(), PrometheusControllers::new());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(queues.clone()));
    registry.register_collector(Box::new(controllers.clone()));

    // A cache of numbers, a queue of their keys, and a controller over both. A real program uses its own source instead of the scripted source.
    let source = ScriptedSource::new();
    source.answer_list(Ok(Page { items: vec![1, 2, 3], version: Version::new(7), continuation: None }));
    source.answer_watch(Ok(()));
    let numbers = Informer::builder(NUMBERS, source).start()?;
    let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    let queue = Queue::builder()
        .limiter(backoff)
        .timer(TokioTimer::current())
        .metrics(queues.queue_with_labels("numbers", [("shard", "0")])?)
        .build();
    let (reconciled, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (done, stopped) = (reconciled.clone(), stop.clone());
    let controller = Controller::new(queue.clone())
        .watches(&numbers, |change| *change.key())
        .metrics(controllers.controller("numbers"))
        .graceful_shutdown_on(async move { stopped.notified().await });

    let config = Arc::new(OnceLock::new());
    let shown = config.clone();
    let server = OpsServer::new()
        .registry(registry)
        .informer("numbers", &numbers)
        .queue("numbers", &queue)
        .controller("numbers", &controller.health(), Duration::from_secs(600))
        .liveness_check("disk", || std::env::temp_dir().metadata().map(drop))
        .readiness_check("config", move || shown.get().map(drop).ok_or("not loaded yet"))
        .debug_section("build", || json!({"version": env!("CARGO_PKG_VERSION")}))
        .header_timeout(Duration::from_secs(2))
        .max_connections(16);
    let listener = TcpListener::bind("127.0.0.1:0").await?; // in a pod "[::]:8080"
    let address = listener.local_addr()?;
    let (end, ended) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(listener, async { drop(ended.await) }));

    let not_ready = get(address, "/readyz").await?;
    assert!(not_ready.contains("[-]numbers failed: the controller does not run yet"), "{not_ready}");
    assert!(not_ready.contains("[-]config failed: not loaded yet"), "{not_ready}");
    config.set("workers: 1").expect("it is loaded once");
    let running = tokio::spawn(controller.run(move |number, _| {
        if number == 3 {
            done.notify_one();
        }
        async { Ok::<_, String>(Action::await_change()) }
    }));
    reconciled.notified().await;
    queue.wait_idle().await;

    assert!(get(address, "/readyz?verbose").await?.ends_with("readyz check passed\n"));
    let metrics = get(address, "/metrics").await?;
    println!("{metrics}");
    for line in [
        "informer_objects{name=\"numbers\"} 3\n",
        "workqueue_adds_total{name=\"numbers\",shard=\"0\"} 3\n",
        "controller_runtime_reconcile_total{controller=\"numbers\",result=\"success\"} 3\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    let debug = get(address, "/debug").await?;
    let debug: Value = serde_json::from_str(debug.split_once("\r\n\r\n").map_or("", |(_, body)| body))?;
    println!("{debug:#}");
    assert_eq!(debug["caches"]["numbers"]["objects"], 3);
    assert_eq!(debug["queues"]["numbers"]["ready"], 0);
    assert!(debug["custom"]["build"]["version"].is_string());

    stop.notify_one();
    running.await??;
    assert!(get(address, "/healthz").await?.contains("[-]numbers failed: the controller has ended"));
    drop(end);
    serving.await??;
    Ok(())
}

/// Sends a request and returns the whole response, like curl.
async fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}
