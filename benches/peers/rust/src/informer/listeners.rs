//! Listeners: tasks that receive objects one at a time.

use std::future::Future;

use flyball_informer_cache::{Informer, Subscription};
use futures::StreamExt;
use kube_runtime::WatchStreamExt;
use kube_runtime::reflector::store_shared;
use tokio::sync::mpsc::Receiver;

use crate::controller::State;
use crate::controller::kube::{Object as KubeObject, watched};
use crate::controller::ours::{OBJECTS, Object};
use crate::fed::ChannelSource;
use crate::keys::Key;
use crate::options::Party;

/// The capacity of kube-runtime's buffer between reflector and listeners, as in its example.
const SHARED: usize = 100;

/// Handles the objects that a listener receives.
pub(super) trait Handler: Send + 'static {
    fn handle(&mut self, state: State) -> impl Future<Output = ()> + Send;
}

pub(super) fn objects(keys: &[Key]) -> Vec<Object> {
    let object =
        |(key, number): (&Key, u32)| Object { key: key.clone(), state: State { number, version: 1 } };
    keys.iter().zip(0..).map(object).collect()
}

/// flyball's informer over the initial objects and the changes from `events`.
pub(super) fn informer(keys: &[Key], events: Receiver<State>) -> Informer<Key, Object> {
    let (listed, keys) = (objects(keys), keys.to_vec());
    let decode = move |state: State| Object { key: keys[state.number as usize].clone(), state };
    Informer::builder(OBJECTS, ChannelSource::new(listed, events, decode)).start().expect("a valid informer")
}

pub(super) async fn listen(mut changes: Subscription<Key, Object>, mut handler: impl Handler) {
    while let Some(change) = changes.next().await {
        handler.handle(change.object().state).await;
        tokio::task::consume_budget().await;
    }
}

/// Starts an informer, and one task per listener. Every listener receives the initial list.
pub(super) fn start<H: Handler>(
    party: Party,
    keys: Vec<Key>,
    events: Receiver<State>,
    handlers: impl IntoIterator<Item = H>,
) {
    match party {
        Party::Kube => {
            let (_, writer) = store_shared::<KubeObject>(SHARED);
            for mut handler in handlers {
                let mut handle = writer.subscribe().expect("the store is not shared");
                tokio::spawn(async move {
                    while let Some(object) = handle.next().await {
                        handler.handle(object.state).await;
                        tokio::task::consume_budget().await;
                    }
                });
            }
            let reflected = watched(keys, events).reflect_shared(writer);
            tokio::spawn(reflected.for_each(async |event| drop(event.expect("nothing fails"))));
        }
        _ => {
            let informer = informer(&keys, events);
            for handler in handlers {
                tokio::spawn(listen(informer.subscribe(), handler));
            }
            // The task keeps the informer alive until it stops.
            tokio::spawn(async move { informer.stopped().await });
        }
    }
}
