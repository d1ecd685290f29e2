//! A cache of objects with subscribers, implemented by kube-runtime and by flyball. The programs are generic over the implementation.

use std::fmt::Debug;
use std::sync::Arc;

use flyball_informer_cache::{Informer, NamespacedName};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, future, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::reflector::{ObjectRef, Store, store_shared};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// The capacity of kube-runtime's buffer between the cache and its subscribers.
pub(crate) const BUFFER: usize = 64;

pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The changes that a subscriber receives, as a stream of the names of the changed objects.
pub(crate) type ChangeNames = BoxStream<'static, String>;

pub(crate) trait Cache<K: Kind>: Clone + Send + Sync + 'static {
    /// Starts a cache in its own task, with the given number of subscribers.
    fn start(api: Api<K>, config: watcher::Config, subscribers: usize) -> (Self, Vec<ChangeNames>);

    fn ready(&self) -> BoxFuture<'static, ()>;

    fn len(&self) -> usize;

    fn get(&self, name: &str) -> Option<Arc<K>>;
}

pub(crate) struct KubeRuntime<K: Kind>(Store<K>);

impl<K: Kind> Clone for KubeRuntime<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Kind> Cache<K> for KubeRuntime<K> {
    fn start(api: Api<K>, config: watcher::Config, subscribers: usize) -> (Self, Vec<ChangeNames>) {
        let (reader, writer) = store_shared(BUFFER);
        let names = (0..subscribers).map(|_| {
            let handle = writer.subscribe().expect("the store is not shared");
            handle.map(|object: Arc<K>| object.name_any()).boxed()
        });
        let names = names.collect();
        let reflected = watcher(api, config).default_backoff().reflect_shared(writer);
        tokio::spawn(reflected.for_each(|_| future::ready(())));
        (Self(reader), names)
    }

    fn ready(&self) -> BoxFuture<'static, ()> {
        let store = self.0.clone();
        async move { store.wait_until_ready().await.expect("the writer was dropped") }.boxed()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, name: &str) -> Option<Arc<K>> {
        self.0.get(&ObjectRef::new(name).within("default"))
    }
}

pub(crate) struct Flyball<K>(Informer<NamespacedName, K>);

impl<K> Clone for Flyball<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Kind> Cache<K> for Flyball<K> {
    fn start(api: Api<K>, config: watcher::Config, subscribers: usize) -> (Self, Vec<ChangeNames>) {
        let informer = flyball_kube::informer(api, config).start().expect("the informer cannot be built");
        let names = (0..subscribers).map(|_| {
            let next = async |mut changes: flyball_informer_cache::Subscription<NamespacedName, K>| {
                let name = changes.next().await?.object().name_any();
                Some((name, changes))
            };
            stream::unfold(informer.subscribe(), next).boxed()
        });
        let names = names.collect();
        (Self(informer), names)
    }

    fn ready(&self) -> BoxFuture<'static, ()> {
        let informer = self.0.clone();
        async move { informer.synced().await.expect("it runs") }.boxed()
    }

    fn len(&self) -> usize {
        self.0.store().len()
    }

    fn get(&self, name: &str) -> Option<Arc<K>> {
        self.0.store().get(&NamespacedName::new("default", name).ok()?)
    }
}
