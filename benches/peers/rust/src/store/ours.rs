//! flyball's store, and other ways to read it.

use std::sync::Arc;

use flyball_informer_cache::{Index, Schema, Snapshot, Store, Version, Writer};

use crate::keys::Key;
use crate::store::cache::{Lists, Reads, Replaces, Writes};
use crate::store::pods::Pod;

pub(crate) type Ours = Writer<Key, Pod>;
pub(crate) type Reader = Store<Key, Pod>;

pub(crate) const PODS: Schema<Key, Pod> =
    Schema::new(|pod: &Pod| pod.key.clone(), |pod: &Pod| Version::new(pod.version));
pub(crate) static NAMESPACE: Index<Pod, Arc<str>> = Index::new("namespace", |pod| pod.namespace.clone());
static NODE: Index<Pod, Arc<str>> = Index::new("node", |pod| pod.node.clone());
static LABEL: Index<Pod, Arc<str>> = Index::many("label", |pod| pod.labels.to_vec());
static UID: Index<Pod, Arc<str>> = Index::new("uid", |pod| pod.uid.clone());

impl Writes for Ours {
    type Reader = Reader;

    fn new(indexes: usize) -> Self {
        let mut builder = Store::builder(PODS);
        for index in [&NAMESPACE, &NODE, &LABEL, &UID].into_iter().take(indexes) {
            builder = builder.index(index);
        }
        builder.build().expect("distinct names")
    }

    fn reader(&self) -> Reader {
        self.store()
    }

    fn put(&mut self, pod: Pod) {
        assert!(self.upsert(pod).is_change(), "a write was not newer");
    }
}

impl Replaces for Ours {
    type List = (Vec<Pod>, Version);

    fn listed(pods: Vec<Pod>, version: u64) -> (Vec<Pod>, Version) {
        (pods, Version::new(version))
    }

    fn replace(&mut self, (pods, version): (Vec<Pod>, Version)) {
        drop(Self::replace(self, pods, version));
    }
}

impl Reads for Reader {
    type Key = Key;

    fn key(pod: &Pod) -> Key {
        pod.key.clone()
    }

    fn get(&self, key: &Key) -> Option<u64> {
        Self::get(self, key).map(|pod| pod.version)
    }
}

impl Lists for Reader {
    type View = Snapshot<Key, Pod>;

    fn view(&self) -> Self::View {
        self.snapshot()
    }

    fn walk<'a>(view: &'a Self::View, mut each: impl FnMut(&'a Pod)) {
        view.objects().for_each(|pod| each(pod));
    }

    fn by_node(&self, node: &str, mut each: impl FnMut(&Pod)) {
        let view = self.snapshot();
        view.by_index(&NODE, node).expect("the index is missing").for_each(|pod| each(pod));
    }
}

/// A store whose lists and index lookups collect references to the objects (`Arc`s) into a `Vec`, as client-go collects
/// pointers into a slice.
#[derive(Clone)]
pub(crate) struct Collected(pub(crate) Reader);

impl Reads for Collected {
    type Key = Key;

    fn key(pod: &Pod) -> Key {
        pod.key.clone()
    }

    fn get(&self, key: &Key) -> Option<u64> {
        Reads::get(&self.0, key)
    }
}

impl Lists for Collected {
    type View = Vec<Arc<Pod>>;

    fn view(&self) -> Self::View {
        self.0.snapshot().objects().cloned().collect()
    }

    fn walk<'a>(view: &'a Self::View, mut each: impl FnMut(&'a Pod)) {
        view.iter().for_each(|pod| each(pod));
    }

    fn by_node(&self, node: &str, mut each: impl FnMut(&Pod)) {
        self.0.by_index(&NODE, node).expect("the index is missing").iter().for_each(|pod| each(pod));
    }
}

/// All reads use one snapshot, so lookups return references.
impl Reads for Snapshot<Key, Pod> {
    type Key = Key;

    fn key(pod: &Pod) -> Key {
        pod.key.clone()
    }

    fn get(&self, key: &Key) -> Option<u64> {
        Self::get(self, key).map(|pod| pod.version)
    }
}
