//! A relist in which all objects are newer, or only the last one. Measures the time until a listener has received the
//! changes, and the memory used meanwhile. The objects are allocated before the clock starts, as if they were decoded
//! from the wire.

use std::sync::Arc;
use std::time::Instant;

use flyball_informer_cache::{
    Informer, ListRequest, Page, Source, SourceError, SourceErrorKind, Version, WatchEvent, WatchRequest,
    WatchStream,
};
use futures::{StreamExt, stream};
use kube_runtime::reflector::{reflector, store::Writer};
use kube_runtime::watcher;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Figures;
use crate::controller::kube::list;
use crate::controller::ours::{OBJECTS, Object};
use crate::informer::events::{Last, Progress};
use crate::informer::listeners::{Handler, listen, objects};
use crate::keys::{Key, keys};
use crate::memory::Memory;
use crate::options::{Options, Party};

struct Begun {
    at: Instant,
    memory: Memory,
}

pub(super) async fn relist(options: &Options, party: Party) -> Figures {
    let last = options.keys as u32 - 1;
    let newer = options.percent > 0;
    // The new version applies to all objects of the second list, or only to the last one.
    let version = move |number: u32| if newer || number == last { 2 } else { 1 };
    let (progress, ends) = (Arc::new(Progress::default()), Arc::new((0..=last).map(version).collect()));
    let mut listener = Last::new(&ends, &progress);
    let begun = match party {
        Party::Kube => {
            let keys = keys(options.keys);
            let first = list(&keys, |_| 1);
            let second = list(&keys, version);
            let events = stream::iter(first).chain(stream::iter(second)).map(Ok::<_, watcher::Error>);
            let mut reflected = Box::pin(reflector(Writer::default(), events));
            let mut ended = 0;
            let mut begun = None;
            while let Some(event) = reflected.next().await {
                match event.expect("nothing fails") {
                    watcher::Event::InitApply(object) => listener.handle(object.state).await,
                    watcher::Event::InitDone => {
                        ended += 1;
                        if ended == 1 {
                            begun = Some(Begun { memory: Memory::watch(), at: Instant::now() });
                        }
                    }
                    _ => {}
                }
            }
            begun.expect("two lists")
        }
        _ => {
            let (expire, expired) = oneshot::channel();
            let (begins, begun) = oneshot::channel();
            let second = fresh_objects(&keys(options.keys), version);
            let source = Relisted {
                lists: Mutex::new(vec![second, objects(&keys(options.keys))]),
                expired: Mutex::new(Some(expired)),
                begins: Mutex::new(Some(begins)),
            };
            let informer = Informer::builder(OBJECTS, source).start().expect("the informer cannot be built");
            tokio::spawn(listen(informer.subscribe(), listener));
            progress.listed(1).await;
            expire.send(()).expect("it listens");
            begun.await.expect("it lists")
        }
    };
    progress.ended(1).await;
    let mut figures = Figures::from([("ms", begun.at.elapsed().as_secs_f64() * 1e3)]);
    begun.memory.end(&mut figures);
    figures
}

/// Returns objects that share no memory with the objects of other calls.
fn fresh_objects(keys: &[Key], version: impl Fn(u32) -> u32) -> Vec<Object> {
    let mut all = objects(keys);
    for object in &mut all {
        object.key = (*object.key).into();
        object.state.version = version(object.state.number);
    }
    all
}

/// A source that returns two lists. The watch between the two reports that its version is too old.
struct Relisted {
    /// The remaining lists in reverse order: the next one is the last element.
    lists: Mutex<Vec<Vec<Object>>>,
    expired: Mutex<Option<oneshot::Receiver<()>>>,
    begins: Mutex<Option<oneshot::Sender<Begun>>>,
}

struct Expires(Option<oneshot::Receiver<()>>);

impl Source for Relisted {
    type Object = Object;
    type Watch = Expires;

    async fn list(&self, _: ListRequest) -> Result<Page<Object>, SourceError> {
        let items = self.lists.lock().pop().expect("a third list was requested");
        let left = self.lists.lock().len() as u64;
        if left == 0 {
            let begun = Begun { memory: Memory::watch(), at: Instant::now() };
            let _ = self.begins.lock().take().expect("once").send(begun);
        }
        Ok(Page { items, version: Version::new(2 - left), continuation: None })
    }

    async fn watch(&self, _: WatchRequest) -> Result<Expires, SourceError> {
        Ok(Expires(self.expired.lock().take()))
    }
}

impl WatchStream for Expires {
    type Object = Object;

    async fn next(&mut self) -> Option<Result<WatchEvent<Object>, SourceError>> {
        match self.0.take() {
            Some(expired) => {
                expired.await.expect("the sender was dropped");
                Some(Err(SourceError::new(SourceErrorKind::Expired, "too old")))
            }
            None => std::future::pending().await,
        }
    }
}
