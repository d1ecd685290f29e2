//! D16: the table's key is a struct of strings that the object also stores.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use flyball_informer_cache as flyball;
use flyball_informer_cache::NamespacedName;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use peers_rust::heap;

use crate::report::{Defect, Finding};
use crate::world::config_map;

pub(crate) const DEFECT: Defect = Defect {
    id: "D16",
    is: "the key of a cache entry has copies of four strings of the object",
    measured: "memory of an entry in addition to its object; the part of it that the key takes; how many of uid and version the key contains",
    theirs: program::<Writer<Shared>>,
    ours: program::<flyball::Store<NamespacedName, Shared>>,
};

const OBJECTS: usize = 100_000;

/// An object with a cheap clone, so that only the memory of the table is counted.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<ConfigMap>);

impl Resource for Shared {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(dyntype: &()) -> Cow<'_, str> {
        ConfigMap::kind(dyntype)
    }

    fn group(dyntype: &()) -> Cow<'_, str> {
        ConfigMap::group(dyntype)
    }

    fn version(dyntype: &()) -> Cow<'_, str> {
        ConfigMap::version(dyntype)
    }

    fn plural(dyntype: &()) -> Cow<'_, str> {
        ConfigMap::plural(dyntype)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        Arc::make_mut(&mut self.0).meta_mut()
    }
}

trait Table {
    /// The key that the table computes from an object.
    type Key: Debug;
    fn key(object: &Shared) -> Self::Key;
    fn new() -> Self;
    fn put(&mut self, object: Shared);
}

impl Table for Writer<Shared> {
    type Key = ObjectRef<Shared>;

    fn key(object: &Shared) -> Self::Key {
        ObjectRef::from_obj(object)
    }

    fn new() -> Self {
        Self::default()
    }

    fn put(&mut self, object: Shared) {
        self.apply_watcher_event(&Event::Apply(object));
    }
}

impl Table for flyball::Store<NamespacedName, Shared> {
    type Key = NamespacedName;

    fn key(object: &Shared) -> Self::Key {
        flyball_kube::object_key(object).expect("the object has no name")
    }

    fn new() -> Self {
        Self::builder(flyball_kube::schema::<Shared>()).build().expect("the store cannot be built")
    }

    fn put(&mut self, object: Shared) {
        self.upsert(object);
    }
}

fn program<T: Table>() -> Finding {
    let object = |number: usize| {
        let mut object = config_map(&format!("some-application-{number:08x}"), "");
        object.metadata.uid = Some(format!("00000000-0000-4000-8000-{number:012x}"));
        object.metadata.resource_version = Some(format!("{}", 100_000_000 + number));
        Shared(Arc::new(object))
    };
    let objects: Vec<Shared> = (0..OBJECTS).map(object).collect();
    let mut table = T::new();
    let (_, entry, _) = heap::growth(|| objects.iter().cloned().for_each(|object| table.put(object)));
    let mut keys = Vec::with_capacity(OBJECTS);
    let (_, strings, _) = heap::growth(|| keys.extend(objects.iter().map(T::key)));
    let each = |bytes: i64| bytes / OBJECTS as i64;
    let key = size_of::<T::Key>() as i64 + each(strings);
    // The uid and the version belong to the object, and need not be part of its key.
    let meta = objects[0].meta();
    let (first, has) = (format!("{:?}", keys[0]), [&meta.uid, &meta.resource_version]);
    let copied = has.into_iter().flatten().filter(|text| first.contains(text.as_str())).count();
    Finding::new(format!("{} bytes; {key} bytes; {copied} of 2", each(entry)), copied > 0)
}
