//! A source with one list and one watch, fed by the program.

use flyball_informer_cache::{
    ListRequest, Page, Source, SourceError, SourceErrorKind, Version, WatchEvent, WatchRequest, WatchStream,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::Receiver;

/// A source that returns a list at version 1, and then one watch.
pub(crate) struct ChannelSource<E, V, F> {
    items: Vec<V>,
    watch: Mutex<Option<Feed<E, F>>>,
}

pub(crate) struct Feed<E, F> {
    events: Receiver<E>,
    decode: F,
}

impl<E, V, F: FnMut(E) -> V> ChannelSource<E, V, F> {
    /// Newer states of the items come from `events`; the watch decodes them.
    pub(crate) fn new(items: Vec<V>, events: Receiver<E>, decode: F) -> Self {
        Self { items, watch: Mutex::new(Some(Feed { events, decode })) }
    }
}

impl<E, V, F> Source for ChannelSource<E, V, F>
where
    E: Send + 'static,
    V: Clone + Send + Sync + 'static,
    F: FnMut(E) -> V + Send + 'static,
{
    type Object = V;
    type Watch = Feed<E, F>;

    async fn list(&self, _: ListRequest) -> Result<Page<V>, SourceError> {
        Ok(Page { items: self.items.clone(), version: Version::new(1), continuation: None })
    }

    async fn watch(&self, _: WatchRequest) -> Result<Feed<E, F>, SourceError> {
        self.watch.lock().take().ok_or_else(|| SourceErrorKind::Other.into())
    }
}

impl<E, V, F> WatchStream for Feed<E, F>
where
    E: Send + 'static,
    V: Send + Sync + 'static,
    F: FnMut(E) -> V + Send + 'static,
{
    type Object = V;

    async fn next(&mut self) -> Option<Result<WatchEvent<V>, SourceError>> {
        Some(Ok(WatchEvent::Modified((self.decode)(self.events.recv().await?))))
    }
}
