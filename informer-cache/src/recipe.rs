//! PURE. How records are made: the one place that runs the owner's functions.
//!
//! All of it happens outside every lock and before anything changes, so a function may panic, block or call back
//! into the store.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::index::Column;
use crate::record::{Failure, Label, Record};
use crate::seed::Seed;
use crate::{Index, MissingIndex, Schema};

/// What a store was built with.
pub(crate) struct Recipe<K, V> {
    pub(crate) schema: Schema<K, V>,
    pub(crate) columns: Vec<Column<V>>,
    pub(crate) seed: Seed,
}

impl<K: Hash, V: 'static> Recipe<K, V> {
    /// Reads everything there is to know about an object.
    pub(crate) fn record(&self, object: V) -> Record<K, V> {
        let key = self.schema.key(&object);
        let version = self.schema.version(&object);
        let (mut labels, mut failures) = (Vec::new(), Vec::new());
        for (column, index) in self.columns.iter().enumerate() {
            match index.values(&object, &self.seed) {
                Ok(values) => labels.extend(values.into_iter().map(|value| Label { column, value })),
                Err(error) => failures.push(Failure { column, error: Arc::new(error) }),
            }
        }
        let hash = self.seed.hash_one(&key);
        let object = Arc::new(object);
        Record { hash, key, version, object, labels: labels.into(), failures: failures.into() }
    }

    /// Lets a record that is not published yet share the values it has in common with the one it will replace: less
    /// memory, and the table has nothing to look up.
    pub(crate) fn share_labels(&self, record: &mut Record<K, V>, old: &Record<K, V>) {
        let place = |label: &Label| (label.column, label.value.hash);
        for label in &mut record.labels {
            let first = old.labels.partition_point(|known| place(known) < place(label));
            let candidates = old.labels[first..].iter().take_while(|known| place(known) == place(label));
            let column = &self.columns[label.column];
            let known = candidates.into_iter().find(|known| column.equal(&known.value, &label.value));
            if let Some(known) = known {
                label.value = known.value.clone();
            }
        }
    }

    pub(crate) fn column<IK: 'static>(&self, index: &Index<V, IK>) -> Result<usize, MissingIndex> {
        let found = self.columns.iter().position(|column| column.is::<IK>(index.name()));
        found.ok_or(MissingIndex { name: index.name() })
    }
}
