//! PURE. The JSON of a trace line, and its conversion to objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use flyball_informer_cache::Version;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::interned::Interned;
use crate::objects::{Labels, Meta, Moment, Owner, Plain, Pod, ReplicaSet, Service};

type Text<'a> = Cow<'a, str>;
type Map<'a> = BTreeMap<Text<'a>, Text<'a>>;

/// One line of the trace. The object remains raw JSON until its resource is known.
#[derive(Deserialize)]
pub(crate) struct Line<'a> {
    pub(crate) t: f64,
    #[serde(borrow)]
    pub(crate) resource: Text<'a>,
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

#[derive(Deserialize)]
pub(crate) struct List<'a> {
    pub(crate) metadata: ListMeta,
    #[serde(borrow, deserialize_with = "items")]
    pub(crate) items: Vec<&'a RawValue>,
}

/// Reads `items`, which every list must have. In an empty list the value may be `null`.
fn items<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<&'de RawValue>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// The metadata of lists and bookmarks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta {
    #[serde(deserialize_with = "version")]
    pub(crate) resource_version: Version,
}

#[derive(Deserialize)]
pub(crate) struct Bookmark {
    pub(crate) metadata: ListMeta,
}

fn version<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Version, D::Error> {
    let text = Text::deserialize(from)?;
    match text.parse() {
        // With this bound, the versions of copies (`--scale`) do not overflow, either.
        Ok(number) if (1..1 << 53).contains(&number) => Ok(Version::new(number)),
        _ => Err(serde::de::Error::custom(format_args!(
            "resourceVersion {text:?} is not a number from 1 to 2^53"
        ))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaWire<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(deserialize_with = "version")]
    resource_version: Version,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Option<Map<'a>>,
    #[serde(borrow)]
    owner_references: Option<Vec<OwnerWire<'a>>>,
}

#[derive(Deserialize)]
struct OwnerWire<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
}

#[derive(Deserialize)]
struct PlainWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
}

#[derive(Deserialize)]
struct PodWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    status: PodStatus<'a>,
}

#[derive(Default, Deserialize)]
struct PodStatus<'a> {
    #[serde(borrow, rename = "podIP")]
    pod_ip: Option<Text<'a>>,
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Deserialize)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
}

#[derive(Deserialize)]
struct ServiceWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    spec: ServiceSpec<'a>,
}

#[derive(Default, Deserialize)]
struct ServiceSpec<'a> {
    #[serde(borrow)]
    selector: Option<Map<'a>>,
}

#[derive(Deserialize)]
struct ReplicaSetWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(default)]
    status: ReplicaSetStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaSetStatus {
    #[serde(default)]
    replicas: u32,
    #[serde(default)]
    ready_replicas: u32,
}

#[derive(Deserialize)]
struct SliceWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow)]
    endpoints: Option<Vec<EndpointWire<'a>>>,
}

#[derive(Deserialize)]
struct EndpointWire<'a> {
    addresses: Vec<Text<'a>>,
    #[serde(default)]
    conditions: EndpointConditions,
}

#[derive(Default, Deserialize)]
struct EndpointConditions {
    ready: Option<bool>,
}

/// The needed content of an endpoint slice: the `namespace/name` of its Service, and its ready addresses.
pub(crate) type Slice = (Arc<str>, Vec<Arc<str>>);

/// Converts JSON to objects. Equal strings share one allocation.
#[derive(Default)]
pub(crate) struct Decoder {
    interned: Interned,
}

impl Decoder {
    pub(crate) fn plain(&mut self, json: &str) -> serde_json::Result<Plain> {
        let wire: PlainWire<'_> = serde_json::from_str(json)?;
        Ok(Plain { meta: self.meta(&wire.metadata)? })
    }

    pub(crate) fn pod(&mut self, json: &str) -> serde_json::Result<Pod> {
        let wire: PodWire<'_> = serde_json::from_str(json)?;
        let owners = wire.metadata.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| Owner {
            uid: self.interned.text(&owner.uid),
            replicaset: (owner.kind == "ReplicaSet").then(|| {
                let name = self.interned.name(&wire.metadata.namespace, &owner.name);
                self.interned.replicaset(name)
            }),
        });
        let ready = |condition: &Condition<'_>| condition.kind == "Ready" && condition.status == "True";
        Ok(Pod {
            meta: self.meta(&wire.metadata)?,
            labels: self.labels(wire.metadata.labels.as_ref()),
            owner,
            ready: wire.status.conditions.iter().flatten().any(ready),
            leaving: wire.metadata.deletion_timestamp.is_some(),
            address: wire.status.pod_ip.map(|address| self.interned.text(&address)),
        })
    }

    pub(crate) fn replicaset(&mut self, json: &str) -> serde_json::Result<ReplicaSet> {
        let wire: ReplicaSetWire<'_> = serde_json::from_str(json)?;
        let meta = self.meta(&wire.metadata)?;
        let key = self.interned.replicaset(meta.name.clone());
        let reported = (wire.status.replicas, wire.status.ready_replicas);
        Ok(ReplicaSet { meta, key, reported })
    }

    pub(crate) fn service(&mut self, json: &str) -> serde_json::Result<Service> {
        let wire: ServiceWire<'_> = serde_json::from_str(json)?;
        let meta = self.meta(&wire.metadata)?;
        let key = self.interned.service(meta.name.clone());
        Ok(Service { meta, key, selector: self.labels(wire.spec.selector.as_ref()) })
    }

    /// Decodes an endpoint slice. Returns `None` if it belongs to no Service.
    pub(crate) fn slice(&mut self, json: &str) -> serde_json::Result<Option<Slice>> {
        let wire: SliceWire<'_> = serde_json::from_str(json)?;
        let labels = wire.metadata.labels.as_ref();
        let Some(service) = labels.and_then(|labels| labels.get("kubernetes.io/service-name")) else {
            return Ok(None);
        };
        let name = self.interned.name(&wire.metadata.namespace, service);
        // An endpoint without a ready condition counts as ready (discovery.k8s.io/v1).
        let ready =
            wire.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false));
        Ok(Some((
            name,
            ready
                .flat_map(|endpoint| &endpoint.addresses)
                .map(|address| self.interned.text(address))
                .collect(),
        )))
    }

    fn meta(&mut self, wire: &MetaWire<'_>) -> serde_json::Result<Meta> {
        if wire.name.is_empty() {
            return Err(serde::de::Error::custom("metadata.name is empty"));
        }
        Ok(Meta {
            name: self.interned.name(&wire.namespace, &wire.name),
            namespace: self.interned.text(&wire.namespace),
            uid: self.interned.text(&wire.uid),
            version: wire.resource_version,
            happened: Moment::default(),
        })
    }

    fn labels(&mut self, map: Option<&Map<'_>>) -> Labels {
        let pairs = map.into_iter().flatten();
        self.interned.labels(pairs.map(|(name, value)| (&**name, &**value)))
    }
}
