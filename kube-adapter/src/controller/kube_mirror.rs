//! SHELL. A kube-runtime store that mirrors an informer, for programs whose signatures contain kube-runtime's `Store`.
//!
//! | guarded by | |
//! |---|---|
//! | `Mirror` | kube's writer, and the changes that are not written yet. Objects are cloned and dropped under this lock, by kube's writer |
//!
//! # Invariants
//! 1. The reader applies the changes that the informer reported to its observers, in the same order: each change is written during the call that
//!    publishes it.
//! 2. The reader becomes ready when the first list has been reported completely, and not before.

use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use flyball_informer_cache::{Change, Informer, NamespacedName, Observer};
use flyball_sync::locks::Mutex;
use flyball_sync::panics::caught;
use kube::Resource;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::watcher::Event;

use super::TARGET;

/// A kube store that contains the objects of an informer.
pub(crate) struct KubeMirror<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    reader: Store<K>,
    complete: Box<dyn Fn() + Send + Sync>,
}

struct Mirror<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    phase: Phase<K>,
    /// `None` if the informer ended before its first list was complete: dropping the writer makes `Store::wait_until_ready` return an error.
    writer: Option<Writer<K>>,
}

enum Phase<K> {
    /// The informer is reporting its snapshot to the new observer. Meanwhile, a writer on another thread may report newer changes. All changes are
    /// buffered here.
    Registering(Vec<Change<NamespacedName, K>>),
    /// The first list is not complete.
    Listing,
    Complete,
}

impl<K> KubeMirror<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Creates a mirror that exists as long as the informer's store.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, unless the informer has synced.
    #[track_caller]
    pub(crate) fn new(informer: &Informer<NamespacedName, K>, dyntype: K::DynamicType) -> Self {
        let writer = Writer::new(dyntype);
        let reader = writer.as_reader();
        let mirror =
            Arc::new(Mutex::new(Mirror { phase: Phase::Registering(Vec::new()), writer: Some(writer) }));
        let (reported, observer) = (mirror.clone(), Arc::<OnceLock<Observer<NamespacedName, K>>>::default());
        // The function owns the handle of its own observer, so both are dropped when the store drops the function.
        let held = observer.clone();
        let registered = informer.observe(move |change| {
            let _held = &held;
            reported.lock().report(change);
        });
        let _ = observer.set(registered);
        mirror.lock().registered();
        if informer.is_synced() {
            mirror.lock().complete();
        } else {
            let (mirror, informer) = (mirror.clone(), informer.clone());
            tokio::spawn(async move {
                match informer.synced().await {
                    Ok(()) => mirror.lock().complete(),
                    Err(_) => mirror.lock().writer = None,
                }
            });
        }
        Self { reader, complete: Box::new(move || mirror.lock().complete()) }
    }

    /// Marks the reader as ready. Must be called only after the first list has been reported completely.
    pub(crate) fn complete(&self) {
        (self.complete)();
    }

    pub(crate) fn reader(&self) -> Store<K> {
        self.reader.clone()
    }
}

impl<K> Mirror<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    fn report(&mut self, change: &Change<NamespacedName, K>) {
        match &mut self.phase {
            Phase::Registering(reported) => reported.push(change.clone()),
            _ => self.write(change),
        }
    }

    /// Called when the snapshot has been reported. Writes the snapshot, and then the changes that were reported in the meantime, which are newer.
    fn registered(&mut self) {
        let Phase::Registering(reported) = std::mem::replace(&mut self.phase, Phase::Listing) else { return };
        let (first, later): (Vec<_>, Vec<_>) = reported.into_iter().partition(Change::is_initial);
        first.iter().chain(&later).for_each(|change| self.write(change));
    }

    fn write(&mut self, change: &Change<NamespacedName, K>) {
        if !change.is_initial() {
            // A change that is not initial shows that the list was complete before the mirror was created.
            self.complete();
        }
        let listing = matches!(self.phase, Phase::Listing);
        let Some(writer) = &mut self.writer else { return };
        let Some(object) = caught(|| K::clone(change.object())) else {
            tracing::error!(target: TARGET, object = %change.key(), "`Clone` of an object panicked: kube's store misses this change");
            return;
        };
        writer.apply_watcher_event(&match change.new() {
            Some(_) if listing => Event::InitApply(object),
            Some(_) => Event::Apply(object),
            None => Event::Delete(object),
        });
    }

    fn complete(&mut self) {
        if matches!(self.phase, Phase::Listing) {
            self.phase = Phase::Complete;
            self.writer.iter_mut().for_each(|writer| writer.apply_watcher_event(&Event::InitDone));
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{from_value, json};

    use super::*;

    fn map(version: &str) -> Arc<ConfigMap> {
        let metadata = json!({"namespace": "default", "name": "a", "resourceVersion": version});
        Arc::new(from_value(json!({ "metadata": metadata })).unwrap())
    }

    /// A writer on another thread reports newer changes before the informer reports its snapshot.
    #[test]
    fn changes_beside_the_snapshot_are_newer_than_it() {
        let key: NamespacedName = "default/a".parse().unwrap();
        let snapshot = Change::added(key.clone(), map("1"), true);
        let updated = Change::updated(key.clone(), map("1"), map("2"));
        let deleted = Change::deleted(key, map("2"), false);
        for (later, left) in [(vec![updated.clone()], 1), (vec![updated, deleted], 0)] {
            let writer = Writer::new(());
            let reader = writer.as_reader();
            let mut mirror = Mirror { phase: Phase::Registering(Vec::new()), writer: Some(writer) };
            later.iter().chain([&snapshot]).for_each(|change| mirror.report(change));
            mirror.registered();
            let versions =
                reader.state().iter().map(|map| map.metadata.resource_version.clone()).collect::<Vec<_>>();
            assert_eq!(versions, vec![Some("2".to_owned()); left]);
        }
    }
}
