//! A cache of your own source, which is a log in memory. The version of an entry is its position in the log.

use std::collections::BTreeMap;

use flyball_informer_cache::{
    Informer, ListRequest, Page, Schema, Source, SourceError, Version, WatchEvent, WatchRequest, WatchStream,
};
use tokio::sync::watch;

type Entry = (u64, &'static str, Option<u16>); // version, service, port; no port means that the service is deleted
const SERVICES: Schema<&str, Entry> = Schema::new(|entry: &Entry| entry.1, |entry| Version::new(entry.0));

struct Log(watch::Receiver<Vec<Entry>>, usize); // the log, and the number of entries that a watch has read

impl Source for Log {
    type Object = Entry;
    type Watch = Log;

    async fn list(&self, _: ListRequest) -> Result<Page<Entry>, SourceError> {
        let log = self.0.borrow();
        let newest: BTreeMap<_, _> = log.iter().map(|entry| (entry.1, *entry)).collect();
        let items = newest.into_values().filter(|entry| entry.2.is_some()).collect();
        Ok(Page { items, version: Version::new(log.len() as u64), continuation: None })
    }

    async fn watch(&self, request: WatchRequest) -> Result<Log, SourceError> {
        Ok(Log(self.0.clone(), request.from_version.get() as usize))
    }
}

impl WatchStream for Log {
    type Object = Entry;

    async fn next(&mut self) -> Option<Result<WatchEvent<Entry>, SourceError>> {
        let entry = self.0.wait_for(|log| log.len() > self.1).await.ok()?[self.1];
        self.1 += 1;
        Some(Ok(if entry.2.is_some() { WatchEvent::Modified(entry) } else { WatchEvent::Deleted(entry) }))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (log, reader) = watch::channel(vec![(1, "db", Some(5432))]);
    let services = Informer::builder(SERVICES, Log(reader, 0)).start()?;
    services.synced().await?;

    let mut changes = services.subscribe();
    let mut entries = [(2, "web", Some(80)), (3, "web", Some(443)), (4, "db", None)].into_iter();
    while let Some(change) = changes.next().await {
        println!("{:?} {:?}", change.kind(), change.object());
        let Some(entry) = entries.next() else { break };
        log.send_modify(|log| log.push(entry));
    }
    println!("now {:?}", services.store().get("web"));
    Ok(())
}
