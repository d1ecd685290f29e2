//! The parts of kube-runtime's `Controller`: a reflector, `trigger_self`, and `applier`. `Controller` itself is not
//! used, because it needs the `Api` of a cluster. As in `Controller`, each reconcile runs in its own task, and
//! everything else in one task.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use futures::{FutureExt, Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource;
use kube_runtime::controller::{Action, trigger_self};
use kube_runtime::reflector::{reflector, store::Writer};
use kube_runtime::watcher::{self, Event};
use kube_runtime::{Config, WatchStreamExt, applier};
use tokio::sync::mpsc::Receiver;

use crate::controller::{State, Work};
use crate::keys::Key;

/// An object type for kube-runtime, which requires full metadata.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    metadata: ObjectMeta,
    pub(crate) state: State,
}

impl Object {
    pub(crate) fn new(key: &Key, state: State) -> Self {
        let (namespace, name) = key.split_once('/').expect("the key has no namespace");
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            resource_version: Some(state.version.to_string()),
            ..ObjectMeta::default()
        };
        Self { metadata, state }
    }
}

impl Resource for Object {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Object".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "objects".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A complete list of objects in the given versions.
pub(crate) fn list(keys: &[Key], version: impl Fn(u32) -> u32) -> Vec<Event<Object>> {
    let object = |(key, number)| Object::new(key, State { number, version: version(number) });
    let objects = keys.iter().zip(0..).map(object).map(Event::InitApply);
    [Event::Init].into_iter().chain(objects).chain([Event::InitDone]).collect()
}

/// The stream that `watcher` would yield: the list, then the changes from `events`.
pub(crate) fn watched(
    keys: Vec<Key>,
    events: Receiver<State>,
) -> impl Stream<Item = Result<Event<Object>, watcher::Error>> + Send {
    let list = stream::iter(list(&keys, |_| 1));
    let watch = stream::unfold((events, keys), |(mut events, keys)| async move {
        let state = events.recv().await?;
        Some((Event::Apply(Object::new(&keys[state.number as usize], state)), (events, keys)))
    });
    list.chain(watch).map(Ok)
}

pub(super) fn start<W: Work>(keys: Vec<Key>, events: Receiver<State>, workers: usize, work: Arc<W>) {
    let writer = Writer::<Object>::default();
    let reader = writer.as_reader();
    let changed = trigger_self(reflector(writer, watched(keys, events)).applied_objects(), ());
    let reconcile = move |object: Arc<Object>, _: Arc<()>| {
        let work = work.clone();
        let reconcile = async move {
            let again = work.reconcile(object.state).await;
            Ok::<_, Infallible>(again.map_or(Action::await_change(), Action::requeue))
        };
        tokio::spawn(reconcile).map(|joined| joined.expect("a reconcile panicked"))
    };
    let config = Config::default().concurrency(workers as u16);
    let error_policy = |_: Arc<Object>, error: &Infallible, _: Arc<()>| match *error {};
    let reconciled = applier(reconcile, error_policy, Arc::new(()), reader, changed.boxed(), config);
    // Runs until the sender of changes is dropped.
    tokio::spawn(reconciled.for_each(async |result| drop(result.expect("a reconcile failed"))));
}
