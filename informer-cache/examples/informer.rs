//! An informer that needs no cluster: its source is a service registry in memory.
//!
//! Run it with `cargo run -p flyball-informer-cache --example informer --features tokio`.

use std::sync::Arc;

use flyball_informer_cache::{
    ChangeKind, Index, Informer, ListRequest, Page, Schema, Source, SourceError, SourceErrorKind, Version,
    WatchEvent, WatchRequest, WatchStream,
};
use tokio::sync::watch;

/// A registered object: an instance of a service.
#[derive(Clone)]
struct Instance {
    name: Arc<str>,
    service: Arc<str>,
    healthy: bool,
    version: u64,
}

const INSTANCES: Schema<Arc<str>, Instance> =
    Schema::new(|instance| instance.name.clone(), |instance| Version::new(instance.version));

static BY_SERVICE: Index<Instance, Arc<str>> = Index::new("service", |instance| instance.service.clone());

/// The registry, stored as a log of events. The version of the registry is the length of the log plus one, so that even an empty registry has a
/// version: an informer treats version 0 as "no version", and does not watch from it.
#[derive(Clone)]
struct Registry {
    log: watch::Sender<Vec<WatchEvent<Instance>>>,
}

impl Registry {
    fn write(&self, event: impl FnOnce(u64) -> WatchEvent<Instance>) {
        self.log.send_modify(|log| log.push(event(log.len() as u64 + 2)));
    }

    fn register(&self, name: &str, service: &str, healthy: bool) {
        self.write(|version| {
            WatchEvent::Modified(Instance { name: name.into(), service: service.into(), healthy, version })
        });
    }

    fn deregister(&self, name: &str, service: &str) {
        self.write(|version| {
            WatchEvent::Deleted(Instance {
                name: name.into(),
                service: service.into(),
                healthy: false,
                version,
            })
        });
    }
}

impl Source for Registry {
    type Object = Instance;
    type Watch = LogReader;

    async fn list(&self, _: ListRequest) -> Result<Page<Instance>, SourceError> {
        let log = self.log.borrow();
        let mut items: Vec<Instance> = Vec::new();
        for event in log.iter() {
            let Some(instance) = event.object() else { continue };
            items.retain(|known| known.name != instance.name);
            if !matches!(event, WatchEvent::Deleted(_)) {
                items.push(instance.clone());
            }
        }
        Ok(Page { items, version: Version::new(log.len() as u64 + 1), continuation: None })
    }

    async fn watch(&self, request: WatchRequest) -> Result<LogReader, SourceError> {
        Ok(LogReader {
            log: self.log.subscribe(),
            read: (request.from_version.get() as usize).saturating_sub(1),
        })
    }
}

/// A watch that reads the log from a given position.
struct LogReader {
    log: watch::Receiver<Vec<WatchEvent<Instance>>>,
    read: usize,
}

impl WatchStream for LogReader {
    type Object = Instance;

    async fn next(&mut self) -> Option<Result<WatchEvent<Instance>, SourceError>> {
        let read = self.read;
        match self.log.wait_for(|log| log.len() > read).await {
            Ok(log) => {
                self.read += 1;
                Some(Ok(log[read].clone()))
            }
            // The registry has been dropped.
            Err(_) => Some(Err(SourceErrorKind::ConnectionRefused.into())),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = Registry { log: watch::Sender::new(Vec::new()) };
    registry.register("web-1", "web", true);
    registry.register("web-2", "web", true);
    registry.register("db-1", "db", true);

    let informer = Informer::builder(INSTANCES, registry.clone()).index(&BY_SERVICE).start()?;
    informer.synced().await?;
    let mut changes = informer.subscribe();
    while let Some(change) = changes.try_next() {
        println!("there is {}", change.key());
    }

    // A snapshot does not change, however long it is held.
    let before = informer.snapshot();
    registry.deregister("web-2", "web");
    registry.register("web-3", "web", false);
    registry.register("web-3", "web", true); // coalesced: the subscription delivers one change
    informer.store().wait_for_version(Version::new(7)).await?;
    let after = informer.snapshot();
    for (name, view) in [("before", &before), ("after", &after)] {
        let mut web: Vec<&str> = view.by_index(&BY_SERVICE, "web")?.map(|instance| &*instance.name).collect();
        web.sort_unstable();
        println!("{name}, at version {}: {web:?}", view.version());
    }

    // Delivers the pending changes, one for each key. The loop ends because the informer is shut down.
    informer.shut_down();
    while let Some(change) = changes.next().await {
        let instance = change.object();
        match change.kind() {
            ChangeKind::Initial | ChangeKind::Added => {
                println!("added {} (healthy: {})", instance.name, instance.healthy)
            }
            ChangeKind::Updated | ChangeKind::Replaced => {
                println!("updated {} (healthy: {})", instance.name, instance.healthy)
            }
            ChangeKind::Deleted | ChangeKind::Missed => println!("deleted {}", instance.name),
        }
    }
    informer.stopped().await;
    println!("{:?}", informer.status().state);
    Ok(())
}
