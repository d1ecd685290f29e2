//! PURE. Multiplies a trace: makes copies of its objects, in renamed namespaces.

use std::collections::HashMap;
use std::sync::Arc;

use flyball_informer_cache::{Version, WatchEvent};

use crate::objects::{Key, Meta, Moment, Owner, Plain, Pod, ReplicaSet, Service};
use crate::trace::{Expected, Record, Stream, Trace};

impl Trace {
    /// Returns a trace with `copies` copies of each namespaced object. The events of all copies that stem from the same recorded event follow one
    /// another directly. Calls `stop` before each batch of copies, and returns `None` if `stop` returns true.
    #[must_use]
    pub(crate) fn scaled(self, copies: usize, stop: impl Fn() -> bool) -> Option<Self> {
        if copies == 1 {
            return Some(self);
        }
        let stop = &stop;
        let mut all: Vec<_> = (0..copies).map(|number| Copier::new(number, copies)).collect();
        let pods = stream(&self.pods, &mut all, stop)?;
        let services = stream(&self.services, &mut all, stop)?;
        let nodes = stream(&self.nodes, &mut all, stop)?;
        let deployments = stream(&self.deployments, &mut all, stop)?;
        let replicasets = stream(&self.replicasets, &mut all, stop)?;
        let endpointslices = stream(&self.endpointslices, &mut all, stop)?;
        let events = events(&pods)
            + events(&services)
            + events(&nodes)
            + events(&deployments)
            + events(&replicasets)
            + events(&endpointslices);
        let mut expected = Expected::default();
        for copier in &mut all {
            if stop() {
                return None;
            }
            let replicasets = &self.expected.replicasets;
            expected.replicasets.extend(replicasets.iter().map(|(key, counts)| (copier.text(key), *counts)));
            let services = &self.expected.services;
            expected.services.extend(services.iter().map(|(key, set)| (copier.text(key), set.clone())));
        }
        let times = self.times.iter().flat_map(|&at| std::iter::repeat_n(at, copies)).collect();
        Some(Self {
            pods,
            services,
            nodes,
            deployments,
            replicasets,
            endpointslices,
            times,
            events,
            expected,
        })
    }
}

fn stream<V: Copied>(
    from: &Stream<V>,
    all: &mut [Copier],
    stop: impl Fn() -> bool,
) -> Option<Arc<Stream<V>>> {
    let copies = all.len();
    let last = copies - 1;
    let mut list = Vec::with_capacity(from.list.len() * copies);
    let mut records = Vec::with_capacity(from.records.len() * copies);
    for copier in all.iter_mut() {
        if stop() {
            return None;
        }
        list.extend(from.list.iter().filter_map(|object| object.copied(copier)).map(Arc::new));
    }
    for record in &from.records {
        if stop() {
            return None;
        }
        for copier in all.iter_mut() {
            let event = match &record.event {
                WatchEvent::Added(object) => {
                    object.copied(copier).map(|object| WatchEvent::Added(Arc::new(object)))
                }
                WatchEvent::Modified(object) => {
                    object.copied(copier).map(|object| WatchEvent::Modified(Arc::new(object)))
                }
                WatchEvent::Deleted(object) => {
                    object.copied(copier).map(|object| WatchEvent::Deleted(Arc::new(object)))
                }
                // A bookmark applies to all copies, so it is added once, after the events of the last copy.
                WatchEvent::Bookmark(_) | WatchEvent::InitialListEnd(_) => {
                    (copier.number == last).then(|| WatchEvent::Bookmark(copier.version(record.version)))
                }
            };
            if let Some(event) = event {
                let place = record.place * copies + copier.number;
                records.push(Record { place, version: copier.version(record.version), event });
            }
        }
    }
    Some(Arc::new(Stream { list, version: all[last].version(from.version), records }))
}

fn events<V>(stream: &Stream<V>) -> usize {
    stream.records.iter().filter(|record| record.event.object().is_some()).count()
}

/// Makes one copy of the objects of a trace. Renames namespaces and uids, and all references to them in the same way.
struct Copier {
    number: usize,
    copies: usize,
    texts: HashMap<Arc<str>, Arc<str>>,
    replicasets: HashMap<Arc<str>, Key>,
    services: HashMap<Arc<str>, Key>,
}

impl Copier {
    fn new(number: usize, copies: usize) -> Self {
        Self { number, copies, texts: HashMap::new(), replicasets: HashMap::new(), services: HashMap::new() }
    }

    /// Maps a recorded version to a version of this copy. Different copies have different versions, and the order of the recorded versions is kept.
    fn version(&self, version: Version) -> Version {
        Version::new(version.get() * self.copies as u64 + self.number as u64)
    }

    /// Renames a namespace, a uid, or the namespace in `namespace/name`: appends the number of the copy.
    fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let number = self.number;
        let new: Arc<str> = match text.split_once('/') {
            Some((namespace, name)) => format!("{namespace}-copy-{number}/{name}").into(),
            None => format!("{text}-copy-{number}").into(),
        };
        self.texts.insert(text.clone(), new.clone());
        new
    }

    fn meta(&mut self, meta: &Meta) -> Meta {
        Meta {
            name: self.text(&meta.name),
            namespace: self.text(&meta.namespace),
            uid: self.text(&meta.uid),
            version: self.version(meta.version),
            happened: Moment::default(),
        }
    }

    fn replicaset(&mut self, key: &Key) -> Key {
        let name = self.text(key.name());
        self.replicasets.entry(name.clone()).or_insert_with(|| Key::new(name)).clone()
    }

    fn service(&mut self, key: &Key) -> Key {
        let name = self.text(key.name());
        self.services.entry(name.clone()).or_insert_with(|| Key::new(name)).clone()
    }
}

/// An object that can be copied to a renamed namespace.
trait Copied: Sized {
    /// Returns a copy of the object; `None` if `copier` must not copy it.
    fn copied(&self, copier: &mut Copier) -> Option<Self>;
}

impl Copied for Pod {
    fn copied(&self, copier: &mut Copier) -> Option<Self> {
        let owner = self.owner.as_ref().map(|owner| Owner {
            uid: copier.text(&owner.uid),
            replicaset: owner.replicaset.as_ref().map(|key| copier.replicaset(key)),
        });
        Some(Self { meta: copier.meta(&self.meta), owner, ..self.clone() })
    }
}

impl Copied for ReplicaSet {
    fn copied(&self, copier: &mut Copier) -> Option<Self> {
        Some(Self { meta: copier.meta(&self.meta), key: copier.replicaset(&self.key), ..self.clone() })
    }
}

impl Copied for Service {
    fn copied(&self, copier: &mut Copier) -> Option<Self> {
        let key = copier.service(&self.key);
        Some(Self { meta: copier.meta(&self.meta), key, selector: self.selector.clone() })
    }
}

impl Copied for Plain {
    fn copied(&self, copier: &mut Copier) -> Option<Self> {
        if self.meta.namespace.is_empty() {
            // Cluster-scoped objects (nodes) exist only once: they are part of the first copy.
            let version = copier.version(self.meta.version);
            return (copier.number == 0).then(|| Self { meta: Meta { version, ..self.meta.clone() } });
        }
        Some(Self { meta: copier.meta(&self.meta) })
    }
}
