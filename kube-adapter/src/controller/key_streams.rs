//! EDGE. Streams whose items add keys to a controller: streams of objects, and streams of reconcile requests.
//!
//! Cancel safety: dropping a stream of keys loses no item that it has already returned.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use flyball_informer_cache::NamespacedName;
use flyball_kube_lease::Leadership;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::utils::{Backoff, StreamBackoff};
use kube::runtime::watcher::DefaultBackoff;
use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;

use super::TARGET;
use super::objects::Objects;
use super::reconcile_reasons::Reason;
use super::trigger::{Keys, OrderedLoop, Origin, TriggerOptions};
use super::trigger_backoff::{BackoffHandle, TriggerBackoff};
use crate::keys::{object_key, reference_key};

/// A stream of keys. Each item has the keys of one change or request, and the reason why they are added. Errors are not items: they are sent to the
/// stream of results.
pub(crate) type KeyStream = BoxStream<'static, (Vec<NamespacedName>, Reason)>;

/// Creates a stream of keys when the controller starts, because the controller's backoff is known only then.
pub(crate) type StreamTrigger = Box<dyn FnOnce(Option<&TriggerBackoff>) -> KeyStream + Send>;

/// Returns a function that maps like `map`, and resets the backoff if an item maps to a key.
fn resetting<T: 'static>(
    backoff: Option<BackoffHandle>,
    mut map: impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static,
) -> impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static {
    move |item| {
        let mapped = map(item);
        if !mapped.0.is_empty() {
            backoff.iter().for_each(BackoffHandle::requested);
        }
        mapped
    }
}

/// Maps the items of a stream to keys. As in kube-runtime, a stream that has returned an error is polled again only after the wait of the backoff.
pub(crate) fn fallible<T, E>(
    stream: impl Stream<Item = Result<T, E>> + Send + 'static,
    errors: mpsc::Sender<E>,
    map: impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static,
) -> StreamTrigger
where
    T: 'static,
    E: Send + 'static,
{
    Box::new(move |backoff| {
        let handle = backoff.map(TriggerBackoff::handle);
        let backoff: Box<dyn Backoff> = match handle.clone() {
            None => Box::new(DefaultBackoff::default()),
            Some(handle) => Box::new(handle),
        };
        reporting(StreamBackoff::new(stream, backoff), errors, resetting(handle, map))
    })
}

/// Maps the items of a stream without errors to keys.
pub(crate) fn infallible<T: 'static>(
    stream: impl Stream<Item = T> + Send + 'static,
    map: impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static,
) -> StreamTrigger {
    Box::new(move |backoff| stream.map(resetting(backoff.map(TriggerBackoff::handle), map)).boxed())
}

/// Maps the items of a stream to keys, and reports its errors. The stream is not polled while an error waits for capacity in `errors`.
pub(crate) fn reporting<T, E>(
    stream: impl Stream<Item = Result<T, E>> + Send + 'static,
    errors: mpsc::Sender<E>,
    mut map: impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static,
) -> KeyStream
where
    T: 'static,
    E: Send + 'static,
{
    stream
        .filter_map(move |item| {
            let (mapped, errors) = (item.map(&mut map), errors.clone());
            async move {
                match mapped {
                    Ok(keys) => Some(keys),
                    Err(error) => {
                        // `send` fails only if the receiver was dropped, because the controller is being dropped.
                        let _ = errors.send(error).await;
                        None
                    }
                }
            }
        })
        .boxed()
}

/// Returns a function that maps an item of a stream to keys, with the item's object as the reason. If the mapper panics, the function returns no
/// keys.
pub(crate) fn related<K, O, T, I, F>(
    main: &Objects<K>,
    dyntype: &O::DynamicType,
    object_of: fn(&T) -> &O,
    mapper: F,
) -> impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static + use<K, O, T, I, F>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    O: Resource + 'static,
    T: 'static,
    I: IntoIterator<Item = ObjectRef<K>> + 'static,
    F: Fn(T) -> I + Send + 'static,
{
    let (kind, main): (Arc<str>, _) = (O::kind(dyntype).into(), main.clone());
    move |item| {
        let Ok(key) = object_key(object_of(&item)) else { return (Vec::new(), Reason::Unknown) };
        let keys = catch_unwind(AssertUnwindSafe(|| {
            let references = mapper(item).into_iter();
            references.filter_map(|reference| Some(main.resolve(reference_key(&reference).ok()?))).collect()
        }));
        let keys = keys.unwrap_or_else(|_| {
            tracing::error!(target: TARGET, kind = &*kind, object = %key, "a mapper panicked: this change of the object is lost");
            Vec::new()
        });
        (keys, Reason::RelatedObjectUpdated { kind: kind.clone(), key })
    }
}

/// Returns whether the object with this key may exist. Returns `true` for every key until the objects are listed.
pub(crate) type MayExist = Arc<dyn Fn(&NamespacedName) -> bool + Send + Sync>;

/// Adds the keys of a stream until the stream ends. In standby, keeps the keys until this process is elected: the election adds the keys of the objects
/// that the filter of changes accepts, but a request must be reconciled whatever that filter returns.
pub(crate) async fn feed<O: OrderedLoop>(
    keys: KeyStream,
    queue: Keys<O>,
    options: TriggerOptions,
    leadership: Option<Leadership>,
    may_exist: MayExist,
) {
    // A stream that ends in standby is polled again after the election, which may panic unless the stream is fused.
    let mut keys = keys.fuse();
    // `add` fails only if the queue is shut down.
    let add = |key, reason: Reason| {
        let origin = if reason.is_bulk() { Origin::Bulk } else { Origin::Change };
        let _ = options.add(&queue, key, origin, || reason);
    };
    if let Some(leadership) = leadership {
        let mut elected = pin!(leadership.elected());
        let mut early = EarlyKeys::default();
        loop {
            tokio::select! {
                biased;
                () = &mut elected => break,
                item = keys.next() => match item {
                    Some((keys, reason)) => early.insert(keys, &reason, &*may_exist),
                    None => {
                        elected.await;
                        break;
                    }
                }
            }
            consume_budget().await;
        }
        for (key, reason) in early.keys {
            add(key, reason);
            consume_budget().await;
        }
    }
    while let Some((keys, reason)) = keys.next().await {
        for key in keys {
            add(key, reason.clone());
            // An item may have the keys of all objects.
            consume_budget().await;
        }
        // Without this yield, a stream that is always ready would block the thread, and signals would not be polled.
        consume_budget().await;
    }
}

/// The keys that arrived in standby, each with its first reason.
///
/// A standby may last for weeks, in which any number of objects are created and deleted. So the keys of objects that do not exist are dropped whenever
/// the number of keys has doubled; their reconcile would only report that the object was not found.
#[derive(Default)]
struct EarlyKeys {
    keys: BTreeMap<NamespacedName, Reason>,
    /// The number of keys that the last pass has kept.
    kept: usize,
}

impl EarlyKeys {
    /// The number of keys up to which no key is dropped.
    const FEW: usize = 64;

    fn insert(
        &mut self,
        keys: Vec<NamespacedName>,
        reason: &Reason,
        may_exist: &dyn Fn(&NamespacedName) -> bool,
    ) {
        for key in keys {
            self.keys.entry(key).or_insert_with(|| reason.clone());
        }
        if self.keys.len() > Self::FEW.max(2 * self.kept) {
            self.keys.retain(|key, _| may_exist(key));
            self.kept = self.keys.len();
        }
    }
}
