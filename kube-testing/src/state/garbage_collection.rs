//! PURE. Garbage collection, as kube-controller-manager does it shortly after the write that causes it.
//!
//! | owners of the object | effect on the object |
//! |---|---|
//! | all are deleted | the object is deleted in the background, or as its own finalizers require |
//! | some exist | the references to the other owners are removed |
//! | all owners that exist wait for their dependents | the object is deleted; in the foreground if it has dependents of its own |
//! | the kind of an owner is not registered, or is namespaced while the object is not | the object stays, because the owner cannot be looked up |
//!
//! An owner is looked up in the namespace of its dependent, so an owner in another namespace counts as deleted.

use std::mem;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::state::delete::Deletion;
use crate::state::dependents::{Dependents, FOREGROUND, ORPHAN, release};
use crate::state::{State, metadata};

/// The state of the owner that a reference names.
enum Owner {
    There,
    Gone,
    /// The owner is being deleted in the foreground.
    Waiting,
}

impl State {
    /// Processes all objects that are due, and returns whether anything was written.
    pub(crate) fn collect(&mut self, now: Timestamp) -> bool {
        let version = self.version;
        for (kind_id, key) in mem::take(&mut self.owners.due) {
            if let Some(object) = self.objects(kind_id).get(&key).cloned() {
                self.collect_dependent(kind_id, key, &object, now);
            }
        }
        for (kind_id, key) in self.owners.waiting.clone() {
            if let Some(owner) = self.objects(kind_id).get(&key).cloned() {
                self.release_owner(kind_id, key, &owner);
            }
        }
        self.version != version
    }

    fn collect_dependent(&mut self, kind_id: usize, key: String, object: &Arc<Value>, now: Timestamp) {
        if metadata::is_terminating(object) || metadata::references(object).is_empty() {
            return;
        }
        let owners = metadata::references(object).iter().map(|owner| self.owner(object, owner));
        let Some(owners) = owners.collect::<Option<Vec<_>>>() else { return };
        let is_there = |owner: &Owner| matches!(owner, Owner::There);
        if owners.iter().all(is_there) {
            return;
        }
        if owners.iter().any(is_there) {
            let references = metadata::references(object).iter().zip(&owners);
            let left: Vec<_> =
                references.filter(|(_, owner)| is_there(owner)).map(|(it, _)| it.clone()).collect();
            let mut freed = Value::clone(object);
            metadata::set(&mut freed, "ownerReferences", left);
            self.commit(kind_id, key, Some(freed));
            return;
        }
        let finalizers = metadata::finalizers(object);
        let own = self.owners.dependents(metadata::text(object, "uid").unwrap_or_default());
        let waits = owners.iter().any(|owner| matches!(owner, Owner::Waiting)) && !own.is_empty();
        let dependents = match () {
            () if waits => Dependents::Foreground,
            () if finalizers.contains(&ORPHAN) => Dependents::Orphan,
            () if finalizers.contains(&FOREGROUND) => Dependents::Foreground,
            () => Dependents::Background,
        };
        if waits && own.iter().any(|(kind_id, key)| self.owners.waiting.contains(&(*kind_id, key.clone()))) {
            // A dependent of the object also waits for its own dependents, so the owner references may form a cycle in which each object waits for
            // the next one. The object therefore stops blocking the deletion of its owners.
            let mut unblocked = Value::clone(object);
            let references = unblocked["metadata"]["ownerReferences"].as_array_mut();
            references.into_iter().flatten().for_each(|owner| owner["blockOwnerDeletion"] = false.into());
            self.commit(kind_id, key.clone(), Some(unblocked));
        }
        let Some(object) = self.objects(kind_id).get(&key).cloned() else { return };
        self.begin_delete(kind_id, key, &object, Deletion { dependents, grace: None }, now);
    }

    /// Returns the state of the owner that a reference names; `None` if the owner cannot be looked up.
    fn owner(&self, object: &Value, reference: &Value) -> Option<Owner> {
        let api_version = reference["apiVersion"].as_str()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let owner_kind = self.find_kind(|kind| {
            kind.resource.group == group
                && reference["kind"] == kind.resource.kind
                && kind.versions.iter().any(|served| served == version)
        })?;
        let namespace = metadata::text(object, "namespace");
        if self.kind(owner_kind).namespaced && namespace.is_none() {
            return None;
        }
        let key = self.kind(owner_kind).key(namespace, reference["name"].as_str()?);
        let owner = self.objects(owner_kind).get(&key);
        let owner = owner.filter(|owner| owner["metadata"]["uid"] == reference["uid"]);
        Some(match owner {
            None => Owner::Gone,
            Some(owner)
                if metadata::is_terminating(owner) && metadata::finalizers(owner).contains(&FOREGROUND) =>
            {
                Owner::Waiting
            }
            Some(_) => Owner::There,
        })
    }

    /// Ends the wait of an owner when no dependent blocks its deletion any longer, or after it has orphaned its dependents.
    fn release_owner(&mut self, kind_id: usize, key: String, owner: &Value) {
        let uid = metadata::text(owner, "uid").unwrap_or_default();
        let orphan = metadata::finalizers(owner).contains(&ORPHAN);
        for (of, child) in self.owners.dependents(uid) {
            let Some(object) = self.objects(of).get(&child).cloned() else { continue };
            let mut references = metadata::references(&object).to_vec();
            if orphan {
                references.retain(|owner| owner["uid"] != uid);
                let mut freed = Value::clone(&object);
                metadata::set(&mut freed, "ownerReferences", references);
                metadata::normalize(&mut freed);
                self.commit(of, child, Some(freed));
            } else if references
                .iter()
                .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
            {
                return;
            }
        }
        let mut after = Value::clone(owner);
        release(&mut after);
        let left = metadata::has_finalizers(&after).then_some(after);
        self.commit(kind_id, key, left);
    }
}
