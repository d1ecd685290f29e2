//! SHELL. The page `/debug`: a JSON object of named sections, grouped by kind. There is no lock, because every request computes the sections itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flyball_informer_cache::{InformerState, InformerStatus};
use flyball_workqueue::QueueStats;
use serde_json::{Map, Value, json};

/// The sections in the order in which they were added.
#[derive(Default)]
pub(super) struct DebugView(Vec<Section>);

struct Section {
    kind: &'static str,
    name: String,
    view: Box<dyn Fn() -> Value + Send + Sync>,
}

impl DebugView {
    pub(super) fn add(
        &mut self,
        kind: &'static str,
        name: &str,
        view: impl Fn() -> Value + Send + Sync + 'static,
    ) {
        self.0.push(Section { kind, name: name.to_owned(), view: Box::new(view) });
    }

    /// Computes all sections; a panic in one section does not affect the others.
    pub(super) fn page(&self) -> Value {
        let mut all = Map::new();
        for Section { kind, name, view } in &self.0 {
            let view = catch_unwind(AssertUnwindSafe(view)).unwrap_or_else(|_| json!({"panicked": true}));
            all.entry(*kind).or_insert_with(|| json!({}))[name] = view;
        }
        Value::Object(all)
    }
}

/// Returns the section of a queue, or `null` if the queue does not exist yet or was dropped.
pub(super) fn queue(stats: Option<QueueStats>) -> Value {
    stats.map_or(Value::Null, |stats| {
        json!({
            "ready": stats.ready,
            "waiting": stats.waiting,
            "leased": stats.leased,
            "dirty": stats.dirty,
            "oldestReadySeconds": stats.oldest_ready.map(seconds),
            "oldestLeaseSeconds": stats.oldest_lease.map(seconds),
        })
    })
}

pub(super) fn informer(status: &InformerStatus, synced: bool, objects: usize) -> Value {
    json!({
        "state": state(status.state),
        "synced": synced,
        "objects": objects,
        "version": status.version.get(),
        "relists": status.relists,
        "watchRestarts": status.watch_restarts,
        "lastError": status.last_error.as_ref().map(|error| error.message.to_string()),
    })
}

fn state(state: InformerState) -> String {
    match state {
        InformerState::Waiting { cause, .. } => format!("waiting: {cause:?}"),
        state => format!("{state:?}").to_lowercase(),
    }
}

pub(super) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
