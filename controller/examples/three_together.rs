//! The three crates together, without Kubernetes. The example has a warehouse whose items change, and a sign on each
//! shelf that shows the number of items on that shelf.
//!
//! - informer-cache mirrors the items of the warehouse, indexed by shelf;
//! - every change adds a key to the workqueue: the name of the shelf;
//! - the controller reconciles each shelf whose sign may be wrong. If a sign cannot be written, its shelf is retried with the exponential
//!   backoff of ratelimit.
//!
//! Run it with `cargo run -p flyball-controller --example three_together`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer};
use flyball_informer_cache::{
    Index, Informer, ListRequest, Page, Schema, Source, SourceError, Version, WatchEvent, WatchRequest,
    WatchStream,
};
use flyball_ratelimit::Exponential;
use flyball_workqueue::Queue;
use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Clone, Debug)]
struct Item {
    name: Arc<str>,
    shelf: Arc<str>,
    count: u32,
    version: u64,
}

/// The schema: how to get the key and the version of an item.
const ITEMS: Schema<Arc<str>, Item> =
    Schema::new(|item: &Item| item.name.clone(), |item| Version::new(item.version));

static BY_SHELF: Index<Item, Arc<str>> = Index::new("shelf", |item| item.shelf.clone());

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let warehouse = Warehouse::default();
    warehouse.put("bolts", "A", 100);
    warehouse.put("nuts", "A", 80);
    warehouse.put("lamps", "B", 5);

    // The cache has the items of the warehouse, by name and by shelf.
    let items = Informer::builder(ITEMS, warehouse.clone()).index(&BY_SHELF).start()?;

    // The keys of the queue are shelves. A shelf whose reconcile fails waits 10 ms, then 20 ms, and so on up to a second.
    let backoff = Exponential::new(Duration::from_millis(10)..=Duration::from_secs(1));
    let shelves = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();

    // The controller: a shelf is reconciled when one of its items is added, changed or removed, and when an item moves to or from the shelf.
    let signs = Arc::new(Signs::default());
    let controller = Controller::new(shelves)
        .watches(&items, |change| {
            let shelf_of = |item: &Arc<Item>| item.shelf.clone();
            change.old().map(shelf_of).into_iter().chain(change.new().map(shelf_of))
        })
        .with_config(ControllerConfig {
            workers: 2.into(),
            reconcile_timeout: Some(Duration::from_secs(5)),
            max_attempts: Some(10),
            stop_when_idle: true, // a service uses `.graceful_shutdown_on(a signal)` instead
            ..ControllerConfig::default()
        })
        .on_give_up(|shelf, failure| eprintln!("giving shelf {shelf} up: {failure}"));
    let (cache, wall) = (items.clone(), signs.clone());
    let running = tokio::spawn(controller.run(move |shelf: Arc<str>, _context| {
        let (cache, wall) = (cache.clone(), wall.clone());
        async move {
            // A snapshot is one consistent view. It does not change, and it does not block the writer.
            let count = cache.snapshot().by_index(&BY_SHELF, &shelf)?.map(|item| item.count).sum();
            wall.write(&shelf, count)?;
            Ok::<_, Box<dyn Error + Send + Sync>>(Action::await_change())
        }
    }));

    items.synced().await?;
    warehouse.put("lamps", "A", 5); // the item moves: both shelves must be reconciled
    let last = warehouse.take("nuts");

    // Wait until the cache has the last change, shut the informer down, and wait until the controller has reconciled the remaining keys.
    items.store().wait_for_version(last).await?;
    items.shut_down();
    let report = running.await??;

    println!("{} reconciles, {} of them failed and were retried", report.reconciles, report.retries());
    println!("signs: {:?}", signs.counts.lock());
    let expected = BTreeMap::from([("A".into(), 105), ("B".into(), 0)]);
    assert_eq!(*signs.counts.lock(), expected);
    Ok(())
}

/// The signs on the shelves, which are the external state that a reconcile changes. Every third attempt to write a sign fails.
#[derive(Default)]
struct Signs {
    counts: Mutex<BTreeMap<Arc<str>, u32>>,
    tries: AtomicU32,
}

impl Signs {
    fn write(&self, shelf: &Arc<str>, count: u32) -> Result<(), String> {
        if self.tries.fetch_add(1, Ordering::Relaxed) % 3 == 0 {
            return Err("the ladder is in use".into());
        }
        println!("shelf {shelf}: {count}");
        self.counts.lock().insert(shelf.clone(), count);
        Ok(())
    }
}

/// The source. A source is anything that can be listed, and watched from a given version on. This source keeps all its history in
/// memory; version n is the state after n events.
#[derive(Clone, Default)]
struct Warehouse {
    history: Arc<watch::Sender<Vec<WatchEvent<Item>>>>,
}

impl Warehouse {
    fn put(&self, name: &str, shelf: &str, count: u32) {
        self.history.send_modify(|history| {
            let version = history.len() as u64 + 1;
            // The event is `Added` even if the item exists, because a cache treats the addition of a known object as an update.
            history.push(WatchEvent::Added(Item { name: name.into(), shelf: shelf.into(), count, version }));
        });
    }

    fn take(&self, name: &str) -> Version {
        self.history.send_modify(|history| {
            let version = history.len() as u64 + 1;
            let last = history.iter().rev().filter_map(WatchEvent::object).find(|item| &*item.name == name);
            let gone = Item { version, ..last.expect("the item exists").clone() };
            history.push(WatchEvent::Deleted(gone));
        });
        Version::new(self.history.borrow().len() as u64)
    }
}

impl Source for Warehouse {
    type Object = Item;
    type Watch = Shift;

    async fn list(&self, _: ListRequest) -> Result<Page<Item>, SourceError> {
        let history = self.history.borrow();
        let mut items = BTreeMap::new();
        for event in history.iter() {
            match event {
                WatchEvent::Deleted(item) => drop(items.remove(&item.name)),
                event => drop(event.object().map(|item| items.insert(item.name.clone(), item.clone()))),
            }
        }
        let version = Version::new(history.len() as u64);
        Ok(Page { items: items.into_values().collect(), version, continuation: None })
    }

    async fn watch(&self, request: WatchRequest) -> Result<Shift, SourceError> {
        Ok(Shift { history: self.history.subscribe(), told: request.from_version.get() as usize })
    }
}

struct Shift {
    history: watch::Receiver<Vec<WatchEvent<Item>>>,
    told: usize,
}

impl WatchStream for Shift {
    type Object = Item;

    async fn next(&mut self) -> Option<Result<WatchEvent<Item>, SourceError>> {
        let told = self.told;
        let history = self.history.wait_for(|history| history.len() > told).await.ok()?;
        self.told += 1;
        Some(Ok(history[told].clone()))
    }
}
