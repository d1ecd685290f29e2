//! kube-runtime's reflector store: a map by `ObjectRef` under a lock, without indexes. It clones every object it receives.

use std::borrow::Cow;
use std::sync::Arc;

use kube_runtime::reflector::store::Writer;
use kube_runtime::reflector::{Lookup, ObjectRef, Store};
use kube_runtime::watcher::Event;

use crate::store::cache::{Lists, Reads, Replaces, Writes};
use crate::store::pods::Pod;

pub(crate) type Kube = Writer<Pod>;

impl Lookup for Pod {
    type DynamicType = ();

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn name(&self) -> Option<Cow<'_, str>> {
        self.key.split_once('/').map(|(_, name)| name.into())
    }

    fn namespace(&self) -> Option<Cow<'_, str>> {
        Some(self.namespace.as_ref().into())
    }

    /// A version of the usual length, which is stored but never compared.
    fn resource_version(&self) -> Option<Cow<'_, str>> {
        Some("1000000".into())
    }

    fn uid(&self) -> Option<Cow<'_, str>> {
        Some(self.uid.as_ref().into())
    }
}

impl Writes for Kube {
    type Reader = Store<Pod>;

    fn new(_indexes: usize) -> Self {
        Self::default()
    }

    fn reader(&self) -> Store<Pod> {
        self.as_reader()
    }

    fn put(&mut self, pod: Pod) {
        self.apply_watcher_event(&Event::Apply(pod));
    }
}

impl Replaces for Kube {
    type List = Vec<Event<Pod>>;

    fn listed(pods: Vec<Pod>, _version: u64) -> Self::List {
        let items = pods.into_iter().map(Event::InitApply);
        [Event::Init].into_iter().chain(items).chain([Event::InitDone]).collect()
    }

    fn replace(&mut self, list: Self::List) {
        list.iter().for_each(|event| self.apply_watcher_event(event));
    }
}

impl Reads for Store<Pod> {
    type Key = ObjectRef<Pod>;

    fn key(pod: &Pod) -> ObjectRef<Pod> {
        ObjectRef::from_obj(pod)
    }

    fn get(&self, key: &ObjectRef<Pod>) -> Option<u64> {
        Self::get(self, key).map(|pod| pod.version)
    }
}

impl Lists for Store<Pod> {
    type View = Vec<Arc<Pod>>;

    fn view(&self) -> Self::View {
        self.state()
    }

    fn walk<'a>(view: &'a Self::View, mut each: impl FnMut(&'a Pod)) {
        view.iter().for_each(|pod| each(pod));
    }

    /// There is no index: all objects are scanned.
    fn by_node(&self, node: &str, mut each: impl FnMut(&Pod)) {
        self.state().iter().filter(|pod| *pod.node == *node).for_each(|pod| each(pod));
    }
}
