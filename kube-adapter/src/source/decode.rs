//! PURE. Decodes bytes to pages and events. Objects that cannot be decoded are returned separately, so the other objects are still decoded.

use std::collections::BTreeMap;
use std::fmt;

use flyball_informer_cache::{NamespacedName, Page, Version, WatchEvent};
use kube::Resource;
use kube::core::{ListMeta, ObjectMeta, Status, WatchEvent as KubeEvent};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::keys::{object_key, version_of};

/// The annotation of the bookmark that ends a streaming list.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// An object that could not be decoded, or has no name.
pub(super) struct Unreadable {
    /// The name as `namespace/name`, if it can be decoded.
    pub(super) name: Option<String>,
    /// The `uid`, if it can be decoded.
    pub(super) uid: Option<String>,
    /// The version, if it can be decoded.
    pub(super) version: Version,
    /// The metadata, if all of it can be decoded.
    pub(super) meta: Option<Box<ObjectMeta>>,
    pub(super) error: String,
}

/// A decoded line of a watch.
pub(super) enum Line<K> {
    Event(WatchEvent<K>),
    /// The watch failed.
    Failed(Box<Status>),
    /// The object cannot be decoded; the fallback replaces the event.
    Unreadable(Unreadable, Fallback<K>),
}

pub(super) enum Fallback<K> {
    Nothing,
    Deliver(WatchEvent<K>),
    /// The event has no replacement; the cache has to relist.
    List,
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    /// The field may be null, but must not be missing: an answer without it is not a list.
    #[serde(deserialize_with = "or_null", bound(deserialize = "T: Deserialize<'de>"))]
    items: Vec<T>,
}

fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Decodes a page of a list.
///
/// # Errors
/// Returns an error if the bytes are not a page.
pub(super) fn page<K>(bytes: &[u8]) -> serde_json::Result<(Page<K>, Vec<Unreadable>)>
where
    K: Resource + DeserializeOwned,
{
    let trimmed = |mut object| {
        trim(&mut object);
        object
    };
    // An error here means that at least one object cannot be decoded, or that the bytes are not a list. Decoding the objects one by one parses each
    // object twice, so it is done only after such an error.
    let Ok(list) = serde_json::from_slice::<List<K>>(bytes) else { return page_as(bytes, &trimmed) };
    let (mut unreadable, List { metadata, mut items }) = (Vec::new(), list);
    items.retain_mut(|object| match object_key(object) {
        Ok(_) => {
            trim(object);
            true
        }
        Err(error) => {
            unreadable.push(Unreadable::unnamed(object, error));
            false
        }
    });
    Ok((of(metadata, items), unreadable))
}

/// Decodes a page of a list, object by object. Each object is converted with `map` before the next one is decoded.
///
/// # Errors
/// Returns an error if the bytes are not a page.
pub(super) fn page_as<K, V>(
    bytes: &[u8],
    map: &impl Fn(K) -> V,
) -> serde_json::Result<(Page<V>, Vec<Unreadable>)>
where
    K: Resource + DeserializeOwned,
{
    let mut unreadable = Vec::new();
    // The items are kept as raw text at first, because an object may be nested too deeply for the decoder; such an object must not fail the whole
    // page.
    let List { metadata, items } = serde_json::from_slice::<List<&RawValue>>(bytes)?;
    let read = |item: &RawValue| -> Result<V, Unreadable> {
        let object: K = serde_json::from_str(item.get()).map_err(|error| Unreadable::new(item, error))?;
        match object_key(&object) {
            Ok(_) => Ok(map(object)),
            Err(error) => Err(Unreadable::unnamed(&object, error)),
        }
    };
    let items = items.into_iter().filter_map(|item| read(item).map_err(|error| unreadable.push(error)).ok());
    let items = items.collect();
    Ok((of(metadata, items), unreadable))
}

fn of<V>(metadata: ListMeta, items: Vec<V>) -> Page<V> {
    let version = metadata.resource_version.as_deref().map_or(Version::ZERO, version);
    Page { items, version, continuation: metadata.continue_ }
}

/// Shrinks the lists of the metadata to their lengths. The JSON decoder allocates a capacity of four for each list, but an object mostly has only one
/// or two managed fields. Without shrinking, the cache would waste half a kibibyte per object.
pub(super) fn trim(object: &mut impl Resource) {
    let meta = object.meta_mut();
    meta.managed_fields.iter_mut().for_each(Vec::shrink_to_fit);
    meta.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    meta.finalizers.iter_mut().for_each(Vec::shrink_to_fit);
}

/// Decodes a line of a watch.
pub(super) fn line<K>(bytes: &[u8]) -> Line<K>
where
    K: Resource + DeserializeOwned,
{
    let named = |mut object: K, event: fn(K) -> WatchEvent<K>| match object_key(&object) {
        Ok(_) => {
            trim(&mut object);
            Line::Event(event(object))
        }
        // An object without a name cannot be in the cache, so an event of any type becomes a bookmark.
        Err(error) => {
            let fallback = Fallback::Deliver(WatchEvent::Bookmark(version_of(&object)));
            Line::Unreadable(Unreadable::unnamed(&object, error), fallback)
        }
    };
    match serde_json::from_slice::<KubeEvent<K>>(bytes) {
        Ok(KubeEvent::Added(object)) => named(object, WatchEvent::Added),
        Ok(KubeEvent::Modified(object)) => named(object, WatchEvent::Modified),
        Ok(KubeEvent::Deleted(object)) => named(object, WatchEvent::Deleted),
        Ok(KubeEvent::Bookmark(bookmark)) => {
            let meta = bookmark.metadata;
            let at = version(&meta.resource_version);
            let ends = meta.annotations.get(INITIAL_END).is_some_and(|value| value == "true");
            Line::Event(if ends { WatchEvent::InitialListEnd(at) } else { WatchEvent::Bookmark(at) })
        }
        Ok(KubeEvent::Error(status)) => Line::Failed(status),
        Err(error) => other_line(bytes, error),
    }
}

/// A line of unknown content.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Other<'a> {
    kind: Value,
    #[serde(rename = "type")]
    event: Value,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// Handles a line of a watch that cannot be decoded as an event with an object of type `K`.
fn other_line<K: Resource + DeserializeOwned>(bytes: &[u8], error: serde_json::Error) -> Line<K> {
    let Other { kind, event, object } = serde_json::from_slice(bytes).unwrap_or_default();
    if kind == "Status"
        && let Ok(status) = serde_json::from_slice(bytes)
    {
        return Line::Failed(status);
    }
    let unread = Unreadable::new(object.unwrap_or(RawValue::NULL), error);
    let at = unread.version;
    let fallback = match object.and_then(bare::<K>) {
        _ if unread.name.is_none() && at == Version::ZERO => Fallback::Nothing,
        // This deletion event has only metadata. Its `uid` is cleared, so that the cache reports the stored object as the last state instead of this
        // object: filters and mappers need the fields that this object lacks.
        Some(mut object) if event == "DELETED" => {
            object.meta_mut().uid = None;
            Fallback::Deliver(WatchEvent::Deleted(object))
        }
        None if event == "DELETED" => Fallback::List,
        // The next watch starts after this version, and does not deliver this event again.
        _ => Fallback::Deliver(WatchEvent::Bookmark(at)),
    };
    Line::Unreadable(unread, fallback)
}

/// Decodes an object from its metadata alone. Returns `None` if its type needs other fields.
fn bare<K: DeserializeOwned>(object: &RawValue) -> Option<K> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(object.get()).ok()?;
    fields.retain(|name, _| ["apiVersion", "kind", "metadata"].contains(&&**name));
    serde_json::from_str(&serde_json::to_string(&fields).ok()?).ok()
}

/// The metadata of an object.
#[derive(Deserialize)]
struct About {
    metadata: ObjectMeta,
}

/// The name, `uid` and version of an object. They can be decoded even if the rest of the object is invalid or nested too deeply, because the decoder
/// skips the rest.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: Names,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Names {
    namespace: Value,
    name: Value,
    uid: Value,
    resource_version: Value,
}

fn version(text: &str) -> Version {
    text.parse().unwrap_or_default()
}

impl Unreadable {
    fn new(object: &RawValue, error: impl fmt::Display) -> Self {
        let Head { metadata: names } = serde_json::from_str(object.get()).unwrap_or_default();
        let namespace = names.namespace.as_str().filter(|namespace| !namespace.is_empty());
        let name = match (namespace, names.name.as_str()) {
            (Some(namespace), Some(name)) => Some(format!("{namespace}/{name}")),
            (None, name) => name.map(str::to_owned),
            (Some(_), None) => None,
        };
        Self {
            name,
            uid: names.uid.as_str().map(str::to_owned),
            version: names.resource_version.as_str().map_or(Version::ZERO, version),
            meta: serde_json::from_str(object.get()).ok().map(|About { metadata }| Box::new(metadata)),
            error: error.to_string(),
        }
    }

    /// Creates the record of an object that can be decoded, but has no key.
    fn unnamed(object: &impl Resource, error: impl fmt::Display) -> Self {
        let name = object.meta().name.clone();
        Self { name, uid: None, version: version_of(object), meta: None, error: error.to_string() }
    }

    pub(super) fn key(&self) -> Option<NamespacedName> {
        self.name.as_deref()?.parse().ok()
    }
}
