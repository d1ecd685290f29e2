//! EDGE. Streams that bring keys to a controller: those of objects, and reconciles that are asked for from outside.
//!
//! Cancel safety: a stream that is dropped between two of its items loses none that it gave.

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

/// Keys, and why. Errors have gone to the stream of results.
pub(crate) type KeyStream = BoxStream<'static, (Vec<NamespacedName>, Reason)>;

/// A stream of keys that begins with its controller, whose backoff is known then.
pub(crate) type StreamTrigger = Box<dyn FnOnce(Option<&TriggerBackoff>) -> KeyStream + Send>;

/// The keys that `map` makes of the items of a stream. After an error the stream is asked again after a wait, as in kube-runtime; each stream has a wait of
/// its own.
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

/// The keys that `map` makes of the items of a stream without errors.
pub(crate) fn infallible<T: Send + 'static>(
    stream: impl Stream<Item = T> + Send + 'static,
    map: impl FnMut(T) -> (Vec<NamespacedName>, Reason) + Send + 'static,
) -> StreamTrigger {
    Box::new(move |_| stream.map(map).boxed())
}

/// The keys that `map` makes of the items of a stream, whose errors are reported. They wait until somebody takes them, and so does the stream.
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
                        // Refused when nobody listens any more: then all of this is being dropped.
                        let _ = errors.send(error).await;
                        None
                    }
                }
            }
        })
        .boxed()
}

/// The keys of what an item of a stream concerns, and that it is why; none where the mapper panics.
pub(crate) fn related<K, O, T, I, F>(
    main: &Objects<K>,
    dyntype: &O::DynamicType,
    object_of: fn(&T) -> &O,
    concerned: F,
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
            let references = concerned(item).into_iter();
            references.filter_map(|reference| Some(main.resolve(reference_key(&reference).ok()?))).collect()
        }));
        let keys = keys.unwrap_or_else(|_| {
            tracing::error!(target: TARGET, kind = &*kind, object = %key, "a mapper panicked: this change of the object is lost");
            Vec::new()
        });
        (keys, Reason::RelatedObjectUpdated { kind: kind.clone(), key })
    }
}

/// Adds the keys of a stream until it ends.
pub(crate) async fn feed<O: OrderedLoop>(
    mut keys: KeyStream,
    queue: Keys<O>,
    options: AddOptions,
    leadership: Option<Leadership>,
) {
    while let Some((keys, reason)) = keys.next().await {
        // All objects are reconciled when it is elected.
        let keys = if leadership.as_ref().is_none_or(Leadership::is_leader) { keys } else { Vec::new() };
        for key in keys {
            // Refused only when the queue is being finished.
            let _ = options.add(&queue, key, false, || reason.clone());
        }
        // A stream that always has another one would keep the thread, and signals would not be heard.
        consume_budget().await;
    }
}
