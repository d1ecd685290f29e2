//! PURE. The managers of an object's fields: its `managedFields`, and the rules by which fields get and lose managers.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::state::apply::comparison::Comparison;
use crate::state::apply::field_type::FieldType;
use crate::state::apply::merge::{merge, remove, remove_nulls};
use crate::state::field_set::FieldSet;
use crate::state::metadata;

/// The maximum number of managers with the operation `Update` in one object. Beyond this number, the entries of the oldest managers are merged.
const MAX_UPDATERS: usize = 10;

/// Fields that have no managers.
static UNMANAGED: LazyLock<FieldSet> = LazyLock::new(|| {
    const METADATA: [&str; 8] = [
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    let of_metadata = METADATA.map(|name| ["metadata", name]);
    let paths = of_metadata.iter().map(<[&str; 2]>::as_slice);
    FieldSet::of_fields(&paths.chain([&["apiVersion"][..], &["kind"], &["metadata"]]).collect::<Vec<_>>())
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// The identity of a manager.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    /// Empty for `Apply`, because applies in different API versions have the same manager.
    pub(crate) api_version: String,
    /// Empty for writes to the object itself.
    pub(crate) subresource: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    api_version: String,
    time: Option<String>,
    fields: FieldSet,
}

/// The manager, the API version and the time of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) manager: Manager,
    pub(crate) api_version: String,
    pub(crate) time: String,
}

/// Fields of other managers that an apply would change, by manager.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflicts(pub(crate) Vec<(Manager, FieldSet)>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Managers(BTreeMap<Manager, Owned>);

impl Managers {
    /// Reads the managers of an object. If any of the entries cannot be read, the result is empty.
    pub(crate) fn of(object: &Value) -> Self {
        Self::from_json(&object["metadata"]["managedFields"])
    }

    pub(crate) fn from_json(entries: &Value) -> Self {
        let entries = entries.as_array().into_iter().flatten();
        Self(entries.map(read).collect::<Option<_>>().unwrap_or_default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of `managedFields`.
    pub(crate) fn to_json(&self) -> Value {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by(|(a, owned_a), (b, owned_b)| {
            let order = |manager: &Manager, owned: &Owned| (manager.operation, owned.time.clone());
            order(a, owned_a).cmp(&order(b, owned_b)).then(a.cmp(b))
        });
        entries.into_iter().map(|(manager, owned)| entry(manager, owned)).collect()
    }

    /// Sets the `managedFields` of an object, or removes it if there are no managers.
    pub(crate) fn set_in(&self, object: &mut Value) {
        metadata::take_managers(object);
        if !self.is_empty() {
            metadata::set(object, "managedFields", self.to_json());
        }
    }

    /// Returns whether the managers have the same fields, regardless of the times of their writes.
    pub(crate) fn have_same_fields(&self, other: &Self) -> bool {
        let fields = |managers: &Self| -> Vec<_> {
            let all = managers.0.iter();
            all.map(|(manager, owned)| (manager.clone(), owned.api_version.clone(), owned.fields.clone()))
                .collect()
        };
        fields(self) == fields(other)
    }

    /// Records a write that is not an apply: the writer becomes the manager of the fields that it changes, and all other managers lose these fields.
    pub(crate) fn update(
        &mut self,
        writer: &Writer,
        before: &Value,
        after: &Value,
        of: FieldType<'_>,
        ignored: &FieldSet,
    ) {
        let changed = Comparison::of(before, after, of).without(ignored);
        let written = changed.written();
        self.release(&written.union(&changed.removed), None);
        let written = written.difference(&UNMANAGED);
        if written.is_empty() {
            return;
        }
        let fields =
            self.0.get(&writer.manager).map_or_else(|| written.clone(), |owned| owned.fields.union(&written));
        self.set(writer, fields, Some(writer.time.clone()));
        self.cap();
    }

    /// Applies a configuration, and returns the new object.
    ///
    /// # Errors
    /// Returns the conflicts with other managers, unless `force` is set: in that case the other managers lose these fields.
    pub(crate) fn apply(
        &mut self,
        writer: &Writer,
        object: &Value,
        config: &Value,
        of: FieldType<'_>,
        ignored: &FieldSet,
        force: bool,
    ) -> Result<Value, Conflicts> {
        let merged = merge(object, config, of);
        let last = self.0.get(&writer.manager).cloned();
        let fields = FieldSet::of_object(config, of).without(ignored);
        self.set(writer, fields, last.as_ref().and_then(|last| last.time.clone()));
        let mut after = match last {
            Some(last) => self.prune(&merged, &last.fields, of),
            None => merged,
        };
        // The objects are compared before nulls are removed, so that a field that becomes null counts as modified, and can therefore conflict.
        let changed = Comparison::of(object, &after, of).without(ignored);
        if of.is_built_in() {
            remove_nulls(&mut after);
        }
        let written = changed.written();
        let others = self.0.iter().filter(|(manager, _)| **manager != writer.manager);
        let conflicts = others.map(|(manager, owned)| (manager.clone(), owned.fields.intersection(&written)));
        let conflicts: Vec<_> = conflicts.filter(|(_, fields)| !fields.is_empty()).collect();
        if !force && !conflicts.is_empty() {
            return Err(Conflicts(conflicts));
        }
        self.release(&written.union(&changed.removed), Some(&writer.manager));
        if let Some(owned) = self.0.get_mut(&writer.manager) {
            owned.fields = owned.fields.difference(&UNMANAGED);
            if after != *object {
                owned.time = Some(writer.time.clone());
            }
        }
        self.0.retain(|_, owned| !owned.fields.is_empty());
        Ok(after)
    }

    /// Returns `merged` without the fields in `last` (the fields of this manager's previous configuration) that no manager owns any longer.
    fn prune(&self, merged: &Value, last: &FieldSet, of: FieldType<'_>) -> Value {
        let without = |fields: &FieldSet| remove(merged, fields, of);
        let managed = self.0.values().fold(FieldSet::default(), |all, owned| all.union(&owned.fields));
        let fields = |object: &Value| FieldSet::of_object(object, of).with_parents(of);
        let last = last.with_parents(of);
        let all = fields(merged);
        let kept = fields(&without(&last)).union(&managed.with_parents(of));
        let pruned = fields(&without(&all.difference(&kept)));
        // Only fields of the last configuration are removed. All other fields stay, even if no manager owns them.
        without(&all.difference(&pruned).intersection(&last))
    }

    fn set(&mut self, writer: &Writer, fields: FieldSet, time: Option<String>) {
        let owned = Owned { api_version: writer.api_version.clone(), time, fields };
        self.0.insert(writer.manager.clone(), owned);
    }

    fn release(&mut self, fields: &FieldSet, except: Option<&Manager>) {
        for (_, owned) in self.0.iter_mut().filter(|(manager, _)| Some(*manager) != except) {
            owned.fields = owned.fields.difference(fields);
        }
        self.0.retain(|manager, owned| Some(manager) == except || !owned.fields.is_empty());
    }

    /// Limits the number of entries with the operation `Update`: merges the oldest entries that have the same API version.
    fn cap(&mut self) {
        let updaters = self.0.iter().filter(|(manager, _)| manager.operation == Operation::Update);
        let mut updaters: Vec<_> =
            updaters.map(|(manager, owned)| (owned.time.clone(), manager.clone())).collect();
        updaters.sort();
        let mut surplus = updaters.len().saturating_sub(MAX_UPDATERS);
        let mut firsts: BTreeMap<String, Option<Manager>> = BTreeMap::new();
        for (_, manager) in updaters {
            if surplus == 0 {
                return;
            }
            let version = manager.api_version.clone();
            let bucket =
                Manager { name: "ancient-changes".to_owned(), subresource: String::new(), ..manager.clone() };
            let Some(first) = firsts.get_mut(&version) else {
                firsts.insert(version, Some(manager));
                continue;
            };
            let Some(owned) = self.0.remove(&manager) else { continue };
            // Merges the entry into `bucket`. If `bucket` does not exist yet, it is created from this entry and the first entry of the same API
            // version.
            let made = self.0.remove(&bucket);
            let earlier = made.or_else(|| first.take().and_then(|first| self.0.remove(&first)));
            let fields =
                earlier.map_or_else(|| owned.fields.clone(), |earlier| owned.fields.union(&earlier.fields));
            self.0.insert(bucket, Owned { fields, ..owned });
            surplus -= 1;
        }
    }
}

fn read(entry: &Value) -> Option<(Manager, Owned)> {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let operation = match entry["operation"].as_str()? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion");
    let manager = Manager {
        name: text("manager"),
        operation,
        api_version: if operation == Operation::Update { api_version.clone() } else { String::new() },
        subresource: text("subresource"),
    };
    let fields = entry.get("fieldsV1").map_or_else(|| Some(FieldSet::default()), FieldSet::from_json)?;
    Some((manager, Owned { api_version, time: entry["time"].as_str().map(str::to_owned), fields }))
}

fn entry(manager: &Manager, owned: &Owned) -> Value {
    let operation = match manager.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = json!({
        "manager": manager.name,
        "operation": operation,
        "apiVersion": owned.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.fields.to_json(),
    });
    if let Some(time) = &owned.time {
        entry["time"] = time.clone().into();
    }
    if !manager.subresource.is_empty() {
        entry["subresource"] = manager.subresource.clone().into();
    }
    entry
}
