//! EDGE. Streams whose items add keys to a controller: streams of objects, and streams of reconcile requests.
//!
//! Cancel safety: dropping a stream of keys loses no item that it has already returned.

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
use super::trigger::{AddOptions, Keys, OrderedLoop};
use super::trigger_backoff::TriggerBackoff;
use crate::keys::{object_key, reference_key};

/// A stream of keys. Each item has the keys of one change or request, and the reason why they are added. Errors are not items: they are sent to the
/// stream of results.
pub(crate) type KeyStream = BoxStream<'static, (Vec<NamespacedName>, Reason)>;

/// Creates a stream of keys when the controller starts, because the controller's backoff is known only then.
pub(crate) type StreamTrigger = Box<dyn FnOnce(Option<&TriggerBackoff>) -> KeyStream + Send>;

/// Maps the items of a stream to keys. As in kube-runtime, a stream that has returned an error is polled again only after the wait of the backoff.
pub(crate) fn fallible<T, E>(
    stream: impl Stream<Item = Result<T, E>> + Send + 'static,
    errors: mpsc::Sender<E>,
    map: impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static,
) -> StreamTrigger
where
    T: Send + 'static,
    E: Send + 'static,
{
    Box::new(move |backoff| {
        let backoff: Box<dyn Backoff> = match backoff {
            None => Box::new(DefaultBackoff::default()),
            Some(backoff) => Box::new(backoff.handle()),
        };
        reporting(StreamBackoff::new(stream, backoff), errors, map)
    })
}

/// Maps the items of a stream without errors to keys.
pub(crate) fn infallible<T: Send + 'static>(
    stream: impl Stream<Item = T> + Send + 'static,
    map: impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static,
) -> StreamTrigger {
    Box::new(move |_| stream.map(map).boxed())
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

/// Adds the keys of a stream until the stream ends.
pub(crate) async fn feed<O: OrderedLoop>(
    mut keys: KeyStream,
    queue: Keys<O>,
    options: AddOptions,
    leadership: Option<Leadership>,
) {
    while let Some((keys, reason)) = keys.next().await {
        // A replica reconciles all objects when it is elected, so a standby drops the keys that arrive earlier.
        let keys = if leadership.as_ref().is_none_or(Leadership::is_leader) { keys } else { Vec::new() };
        for key in keys {
            // `add` fails only if the queue is shut down.
            let _ = options.add(&queue, key, false, || reason.clone());
        }
        // Without this yield, a stream that is always ready would block the thread, and signals would not be polled.
        consume_budget().await;
    }
}
