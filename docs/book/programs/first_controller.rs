//! A controller: changes of objects become keys, and a reconcile function is called for each key.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use flyball_controller::{Action, Controller, TokioTimer};
use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Informer, Schema, Version};
use flyball_ratelimit::Exponential;
use flyball_workqueue::Queue;
use tokio::sync::{mpsc, oneshot};

type Site = (&'static str, Version); // its name, and the version of its last change
const SITES: Schema<&str, Site> = Schema::new(|site: &Site| site.0, |site| site.1);
static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// Real code would update the world here to match the newest state of the site. The first call for `shop` fails.
fn reconcile(name: &str, exists: bool) -> Result<Action, &'static str> {
    if name == "shop" && ATTEMPTS.fetch_add(1, Relaxed) == 0 {
        println!("{name}: failed");
        return Err("no address is free");
    }
    println!("{name}: {}", if exists { "served" } else { "removed" });
    Ok(Action::await_change())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::new(SITES, |site, _, version| site.1 = version); // a source in memory
    server.put(("blog", Version::ZERO));
    server.put(("shop", Version::ZERO));
    let sites = Informer::builder(SITES, server.clone()).start()?;

    let backoff = Exponential::new(Duration::from_millis(10)..=Duration::from_secs(60));
    let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    let (stop, stopped) = oneshot::channel::<()>();
    let (done, mut finished) = mpsc::unbounded_channel::<()>();
    let store = sites.store().clone();
    let controller = Controller::new(queue)
        .watches(&sites, |change| *change.key())
        .graceful_shutdown_on(async { drop(stopped.await) }) // in a service, the future of a signal
        .run(move |name, _context| {
            let result = reconcile(name, store.get(&name).is_some());
            let _ = result.map(|_| done.send(()));
            async move { result }
        });
    let running = tokio::spawn(controller);

    finished.recv().await;
    finished.recv().await; // now both sites are served
    server.delete(&"shop");
    finished.recv().await;
    let _ = stop.send(());
    let report = running.await??;
    println!("{} reconciles, {} of them failed", report.reconciles, report.errors);
    Ok(())
}
