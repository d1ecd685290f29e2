//! EDGE. The informer of one kind of a live cluster.
//!
//! Cancel safety: the same as for the source of flyball-kube, because the reduction of an object awaits nothing.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use flyball_informer_cache::{
    Index, Informer, ListRequest, Page, Source, SourceError, SourceFailure, WatchEvent, WatchRequest,
    WatchStream,
};
use flyball_kube::{ApiError, ApiSource, ApiWatch, UnreadableCounter, reflector_config};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::interned::Interned;
use crate::objects::{Meta, Object, schema};
use crate::resource::Cache;

/// A failure of an informer.
#[derive(Debug)]
pub(super) enum InformerFailure {
    /// The API server denied the permission, so a retry cannot succeed.
    Refused(String),
    /// The informer retries.
    Temporary(String),
}

/// Creates informers.
pub(super) struct Sources {
    client: Client,
    interned: Arc<Mutex<Interned>>,
    failures: mpsc::UnboundedSender<InformerFailure>,
}

/// The informer of a kind.
pub(super) struct Kind<V> {
    pub(super) cache: Cache<V>,
    events: Arc<AtomicU64>,
    skipped: UnreadableCounter,
}

/// The informer of a kind, as a trait without the type of its objects, so that informers of different kinds can be used in the same way.
pub(super) trait AnyKind: Send + Sync {
    fn is_synced(&self) -> bool;
    fn shut_down(&self);
    fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Returns the number of changes that the watches of the informer have delivered.
    fn events(&self) -> u64;
    /// Returns the number of objects that could not be decoded.
    fn skipped(&self) -> u64;
    /// Returns the number of lists after the first one.
    fn relists(&self) -> u64;
}

impl Sources {
    pub(super) fn new(client: Client, failures: mpsc::UnboundedSender<InformerFailure>) -> Self {
        Self { client, interned: Arc::default(), failures }
    }

    /// Starts the informer of a kind.
    pub(super) fn start<K, V>(
        &self,
        name: &'static str,
        cut: fn(&mut Interned, K) -> V,
        indexes: &[&'static Index<Arc<V>, Arc<str>>],
    ) -> anyhow::Result<Kind<V>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        V: Object,
    {
        // With `any_semantic`, the server answers lists from its watch cache, which keeps its load low. The cluster's own controllers list in the
        // same way.
        let config = watcher::Config::default().any_semantic();
        let reflector = reflector_config(&config);
        let source = ApiSource::new(Api::<K>::all(self.client.clone()), config);
        let (events, skipped) = (Arc::default(), source.unreadable_counter());
        let cutting = Cutting { cut, interned: self.interned.clone(), events: Arc::clone(&events) };
        let mut builder = Informer::builder(schema(), Cut { source, cutting }).reflector_config(reflector);
        for index in indexes {
            builder = builder.index(*index);
        }
        let failures = self.failures.clone();
        // When the run ends, the receiver is dropped, and this send fails. The error is ignored.
        let builder = builder.on_error(move |failure| drop(failures.send(trouble(name, failure))));
        let cache = builder.start().with_context(|| format!("the informer of {name}"))?;
        Ok(Kind { cache, events, skipped })
    }
}

impl<V: Object> AnyKind for Kind<V> {
    fn is_synced(&self) -> bool {
        self.cache.is_synced()
    }

    fn shut_down(&self) {
        self.cache.shut_down();
    }

    fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.cache.stopped())
    }

    fn events(&self) -> u64 {
        // Ordering: Relaxed; a counter that publishes no other memory.
        self.events.load(Ordering::Relaxed)
    }

    fn skipped(&self) -> u64 {
        self.skipped.get()
    }

    fn relists(&self) -> u64 {
        self.cache.status().relists
    }
}

fn trouble(name: &str, failure: &SourceFailure<'_>) -> InformerFailure {
    let cause = failure.error.and_then(SourceError::cause);
    let status = cause.and_then(|cause| cause.downcast_ref::<ApiError>()).and_then(ApiError::status);
    match status {
        Some(status) if matches!(status.code, 401 | 403) => {
            InformerFailure::Refused(format!("{name}: {} ({})", status.message, status.code))
        }
        _ => InformerFailure::Temporary(format!("{name}: {failure}")),
    }
}

/// Reduces each object to the fields that the controllers need, before the object is stored.
struct Cutting<K, V> {
    cut: fn(&mut Interned, K) -> V,
    interned: Arc<Mutex<Interned>>,
    events: Arc<AtomicU64>,
}

impl<K, V> Clone for Cutting<K, V> {
    fn clone(&self) -> Self {
        Self { cut: self.cut, interned: self.interned.clone(), events: self.events.clone() }
    }
}

struct Cut<K, V> {
    source: ApiSource<K>,
    cutting: Cutting<K, V>,
}

struct CutWatch<K, V> {
    watch: ApiWatch<K>,
    cutting: Cutting<K, V>,
}

impl<K, V> Source for Cut<K, V>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
    V: Object,
{
    type Object = Arc<V>;
    type Watch = CutWatch<K, V>;

    async fn list(&self, request: ListRequest) -> Result<Page<Arc<V>>, SourceError> {
        let page = self.source.list(request).await?;
        let Cutting { cut, interned, .. } = &self.cutting;
        let mut interned = interned.lock();
        interned.sweep();
        let items = page.items.into_iter().map(|object| Arc::new(cut(&mut interned, object))).collect();
        Ok(Page { items, version: page.version, continuation: page.continuation })
    }

    async fn watch(&self, request: WatchRequest) -> Result<CutWatch<K, V>, SourceError> {
        Ok(CutWatch { watch: self.source.watch(request).await?, cutting: self.cutting.clone() })
    }

    fn is_polling(&self) -> bool {
        self.source.is_polling()
    }

    fn is_unreadable(&self, stored: &Arc<V>) -> bool {
        let Meta { name, uid, .. } = stored.meta();
        name.parse().is_ok_and(|key| self.source.has_unreadable(&key, Some(uid)))
    }
}

impl<K, V> WatchStream for CutWatch<K, V>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
    V: Object,
{
    type Object = Arc<V>;

    async fn next(&mut self) -> Option<Result<WatchEvent<Arc<V>>, SourceError>> {
        let event = match self.watch.next().await? {
            Ok(event) => event,
            Err(error) => return Some(Err(error)),
        };
        let Cutting { cut, interned, events } = &self.cutting;
        Some(Ok(event.map(|object| {
            // Ordering: Relaxed; a counter that publishes no other memory.
            events.fetch_add(1, Ordering::Relaxed);
            let mut interned = interned.lock();
            interned.sweep();
            Arc::new(cut(&mut interned, object))
        })))
    }
}
