//! flyball: an informer and a controller.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig};
use flyball_informer_cache::{Informer, Schema, Version};
use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::Queue;
use tokio::sync::mpsc::Receiver;

use crate::controller::{State, Work};
use crate::fed::ChannelSource;
use crate::keys::Key;

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) state: State,
}

pub(crate) const OBJECTS: Schema<Key, Object> = Schema::new(
    |object: &Object| object.key.clone(),
    |object: &Object| Version::new(object.state.version.into()),
);

pub(super) fn start<W: Work>(keys: Vec<Key>, events: Receiver<State>, workers: usize, work: Arc<W>) {
    let object = move |state: State, keys: &[Key]| Object { key: keys[state.number as usize].clone(), state };
    let workers = if workers == 0 { keys.len() } else { workers };
    let listed = (0..keys.len() as u32).map(|number| object(State { number, version: 1 }, &keys)).collect();
    let source = ChannelSource::new(listed, events, move |state| object(state, &keys));
    let informer = Informer::builder(OBJECTS, source).start().expect("the informer cannot be built");
    // The delays of client-go's default limiter.
    let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    let store = informer.store().clone();
    let controller =
        Controller::new(queue).watches(&informer, |change| change.object().key.clone()).with_config(ControllerConfig { workers: workers.into(), ..ControllerConfig::default() });
    let reconciles = controller.run(move |key, _| {
        let state = store.get(&key).expect("the object is missing").state;
        let work = work.clone();
        async move {
            let again = work.reconcile(state).await;
            Ok::<_, Infallible>(again.map_or(Action::await_change(), Action::requeue_after))
        }
    });
    tokio::spawn(async move {
        // Keeps the informer running as long as the controller.
        let _informer = informer;
        reconciles.await.expect("the controller failed")
    });
}
