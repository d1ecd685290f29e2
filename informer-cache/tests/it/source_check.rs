//! Tests that `check_source` accepts sources that follow the contract, and that it returns the violated rule for each source that does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::testing::{SourceFixture, SourceRule, TestServer, check_source};
use flyball_informer_cache::{
    ListRequest, Page, Schema, Source, SourceError, SourceErrorKind, TokioTimer, Version, WatchEvent,
    WatchRequest, WatchStream,
};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The flaws that a test source may have; for each rule of the contract, at least one flaw violates it. Sources with `None` or `Polls` follow the
/// contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    Polls,
    ListForgetsTheNewest,
    ListKeepsDeleted,
    ListVersionIsBehind,
    PagesShowLaterChanges,
    PagesNeverEnd,
    ListsNeverEnd,
    PagesFail,
    ListIsOneChangeBehind,
    WatchSkipsUpdates,
    WatchBeginsOneLater,
    WatchFails,
    DeletionsAreNotDelivered,
    DeletionsAreUpdates,
    RecreatedBeginsAtOne,
    UpdatesKeepTheVersion,
    EventsHaveTheNewestVersion,
    BookmarkComesFirst,
    ForgottenIsSkipped,
    ForgottenIsAnotherError,
    WatchEndsAtOnce,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    number: u32,
    version: u64,
    deleted: bool,
}

/// A log of all changes. The version of an object is the length of the log after its change was appended, except with some of the flaws.
#[derive(Clone)]
struct Log {
    flaw: Flaw,
    entries: Arc<watch::Sender<Vec<Object>>>,
    forgotten: Arc<Mutex<usize>>,
}

impl Log {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, entries: Arc::new(watch::Sender::new(Vec::new())), forgotten: Arc::default() }
    }

    fn write(&self, number: u32, deleted: bool) {
        self.entries.send_modify(|log| {
            let last = log.iter().rev().find(|entry| entry.number == number);
            let version = match (self.flaw, last) {
                (Flaw::RecreatedBeginsAtOne, Some(last)) if last.deleted => 1,
                (Flaw::UpdatesKeepTheVersion, Some(last)) if !deleted => last.version,
                _ => log.len() as u64 + 1,
            };
            log.push(Object { number, version, deleted });
        });
    }

    fn state(&self, length: usize) -> Vec<Object> {
        let log = self.entries.borrow();
        let newest: BTreeMap<u32, Object> =
            log[..length].iter().map(|entry| (entry.number, *entry)).collect();
        let keeps = self.flaw == Flaw::ListKeepsDeleted;
        newest.into_values().filter(|object| !object.deleted || keeps).collect()
    }
}

impl Source for Log {
    type Object = Object;
    type Watch = Reader;

    async fn list(&self, request: ListRequest) -> Result<Page<Object>, SourceError> {
        let newest = self.entries.borrow().len();
        // A continuation token consists of the version of the list and the number of objects listed so far.
        let (length, begin) = match request.continuation.as_deref().and_then(|token| token.split_once(' ')) {
            Some((length, begin)) => (length.parse().unwrap(), begin.parse().unwrap()),
            None if self.flaw == Flaw::ListIsOneChangeBehind && newest > 4 => (newest - 1, 0),
            None => (newest, 0),
        };
        if request.continuation.is_some() {
            match self.flaw {
                Flaw::PagesFail => return Err(SourceErrorKind::Other.into()),
                Flaw::None if *self.forgotten.lock() > length => return Err(SourceErrorKind::Expired.into()),
                _ => {}
            }
        }
        let mut items = self.state(if self.flaw == Flaw::PagesShowLaterChanges { newest } else { length });
        if self.flaw == Flaw::ListForgetsTheNewest {
            items.pop();
        }
        let end = request.limit.map_or(items.len(), |limit| items.len().min(begin + limit as usize));
        let continuation = (end < items.len()).then(|| format!("{length} {end}"));
        let leads_back = match self.flaw {
            Flaw::PagesNeverEnd => request.limit.is_some(),
            Flaw::ListsNeverEnd => request.limit.is_none(),
            _ => false,
        };
        let continuation = if leads_back { Some(format!("{length} 0")) } else { continuation };
        let behind = u64::from(self.flaw == Flaw::ListVersionIsBehind);
        let version = Version::new(length as u64 - behind);
        Ok(Page { items: items[begin.min(end)..end].to_vec(), version, continuation })
    }

    async fn watch(&self, request: WatchRequest) -> Result<Reader, SourceError> {
        let mut read = request.from_version.get() as usize;
        let forgotten = *self.forgotten.lock();
        if read < forgotten {
            match self.flaw {
                Flaw::ForgottenIsSkipped => read = forgotten,
                Flaw::ForgottenIsAnotherError => return Err(SourceErrorKind::Other.into()),
                _ => return Err(SourceErrorKind::Expired.into()),
            }
        }
        if self.flaw == Flaw::WatchFails {
            return Err(SourceErrorKind::Other.into());
        }
        if self.flaw == Flaw::WatchBeginsOneLater {
            read += 1;
        }
        Ok(Reader { flaw: self.flaw, log: self.entries.subscribe(), read, first: true })
    }

    fn is_polling(&self) -> bool {
        self.flaw == Flaw::Polls
    }
}

struct Reader {
    flaw: Flaw,
    log: watch::Receiver<Vec<Object>>,
    read: usize,
    first: bool,
}

impl WatchStream for Reader {
    type Object = Object;

    async fn next(&mut self) -> Option<Result<WatchEvent<Object>, SourceError>> {
        let newest = self.log.borrow().len();
        if matches!(self.flaw, Flaw::Polls | Flaw::WatchEndsAtOnce) && newest <= self.read {
            return None;
        }
        if std::mem::take(&mut self.first) && self.flaw == Flaw::BookmarkComesFirst && newest > self.read {
            return Some(Ok(WatchEvent::Bookmark(Version::new(newest as u64))));
        }
        loop {
            let read = self.read;
            let log = self.log.wait_for(|log| log.len() > read).await.ok()?;
            let mut object = log[read];
            let newest = log.len() as u64;
            let is_update = log[..read].iter().any(|entry| entry.number == object.number);
            drop(log);
            self.read += 1;
            match self.flaw {
                Flaw::WatchSkipsUpdates if is_update && !object.deleted => continue,
                Flaw::DeletionsAreNotDelivered if object.deleted => continue,
                Flaw::DeletionsAreUpdates if object.deleted => return Some(Ok(WatchEvent::Modified(object))),
                Flaw::EventsHaveTheNewestVersion => object.version = newest,
                _ => {}
            }
            let event =
                if object.deleted { WatchEvent::Deleted(object) } else { WatchEvent::Modified(object) };
            return Some(Ok(event));
        }
    }
}

const OBJECTS: Schema<u32, Object> =
    Schema::new(|object| object.number, |object| Version::new(object.version));

impl SourceFixture for Log {
    type Source = Self;
    type Key = u32;

    fn schema(&self) -> Schema<u32, Object> {
        OBJECTS
    }

    fn source(&self) -> &Self {
        self
    }

    fn key(&self, number: u32) -> u32 {
        number
    }

    async fn put(&mut self, number: u32) {
        self.write(number, false);
    }

    async fn delete(&mut self, number: u32) {
        self.write(number, true);
    }

    async fn compact(&mut self) {
        *self.forgotten.lock() = self.entries.borrow().len();
    }
}

async fn broken_rule(flaw: Flaw) -> Option<SourceRule> {
    let found = check_source(&mut Log::new(flaw), TokioTimer::current(), Duration::from_secs(1)).await;
    found.err().map(|violation| {
        println!("{flaw:?}: {violation}");
        violation.rule()
    })
}

#[tokio::test(start_paused = true)]
async fn sources_that_keep_the_contract_pass() {
    for flaw in [Flaw::None, Flaw::Polls] {
        assert_eq!(broken_rule(flaw).await, None, "{flaw:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_flaw_breaks_its_rule() {
    for (flaw, rule) in [
        (Flaw::ListForgetsTheNewest, SourceRule::List),
        (Flaw::ListVersionIsBehind, SourceRule::List),
        (Flaw::ListKeepsDeleted, SourceRule::Freshness),
        (Flaw::ListIsOneChangeBehind, SourceRule::Freshness),
        (Flaw::PagesShowLaterChanges, SourceRule::Pages),
        (Flaw::PagesNeverEnd, SourceRule::Pages),
        (Flaw::ListsNeverEnd, SourceRule::Pages),
        (Flaw::PagesFail, SourceRule::Pages),
        (Flaw::WatchSkipsUpdates, SourceRule::EveryChange),
        (Flaw::WatchBeginsOneLater, SourceRule::EveryChange),
        (Flaw::WatchFails, SourceRule::EveryChange),
        (Flaw::DeletionsAreNotDelivered, SourceRule::Deletions),
        (Flaw::DeletionsAreUpdates, SourceRule::Deletions),
        (Flaw::RecreatedBeginsAtOne, SourceRule::GrowingVersions),
        (Flaw::UpdatesKeepTheVersion, SourceRule::GrowingVersions),
        (Flaw::EventsHaveTheNewestVersion, SourceRule::Resume),
        (Flaw::BookmarkComesFirst, SourceRule::Bookmarks),
        (Flaw::ForgottenIsSkipped, SourceRule::Expiry),
        (Flaw::ForgottenIsAnotherError, SourceRule::Expiry),
        (Flaw::WatchEndsAtOnce, SourceRule::EndOfWatch),
    ] {
        assert_eq!(broken_rule(flaw).await, Some(rule), "{flaw:?}");
    }
}

/// A fixture with the test server, which returns pages and can compact its history.
struct Server(TestServer<u32, Object>);

impl SourceFixture for Server {
    type Source = TestServer<u32, Object>;
    type Key = u32;

    fn schema(&self) -> Schema<u32, Object> {
        OBJECTS
    }

    fn source(&self) -> &Self::Source {
        &self.0
    }

    fn key(&self, number: u32) -> u32 {
        number
    }

    async fn put(&mut self, number: u32) {
        self.0.put(Object { number, version: 0, deleted: false });
    }

    async fn delete(&mut self, number: u32) {
        self.0.delete(&number);
    }

    async fn compact(&mut self) {
        self.0.compact();
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_for_tests_keeps_the_contract() {
    let server = TestServer::new(OBJECTS, |object, _, version| object.version = version.get());
    let checked = check_source(&mut Server(server), TokioTimer::current(), Duration::from_secs(1)).await;
    checked.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_answer_is_not_waited_for() {
    let server = TestServer::new(OBJECTS, |object, _, version| object.version = version.get());
    server.set_faults(|faults| faults.unresponsive = true);
    let checked = check_source(&mut Server(server), TokioTimer::current(), Duration::from_secs(1)).await;
    assert_eq!(checked.unwrap_err().rule(), SourceRule::List);
}

#[test]
fn a_violation_names_the_rule_and_the_input() {
    let checked = flyball_sync::block_on(check_source(
        &mut Log::new(Flaw::ListForgetsTheNewest),
        flyball_informer_cache::ThreadTimer::new(),
        Duration::from_secs(1),
    ));
    let text = checked.unwrap_err().to_string();
    assert_eq!(text, "a list has every object, and no other: the list has [0, 1, 2], not [0, 1, 2, 3]");
}
