//! PURE. Determines the managers of fields after writes that are not applies.
//!
//! An object has no `managedFields` before its first apply, unless a client writes them. The first apply derives the managers of all earlier writes
//! from the history, so objects that are never applied cost nothing.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::request::{RecordedRequest, Verb};
use crate::state::apply::field_type::FieldType;
use crate::state::apply::managers::{Manager, Managers, Operation, Writer};
use crate::state::field_set::FieldSet;
use crate::state::kind::Kind;
use crate::state::patch::APPLY;
use crate::state::{State, metadata, seconds};

/// The manager of fields whose writers are not in the history.
const UNKNOWN_WRITER: &str = "before-first-apply";

/// The manager of fields that the test has written with `ApiServer::put`.
const DIRECT: &str = "flyball-kube-testing";

impl Writer {
    pub(crate) fn of(request: &RecordedRequest, operation: Operation, now: Timestamp) -> Self {
        let name = request.query_param("fieldManager").unwrap_or_else(|| request.user_agent());
        let name = if name.is_empty() { "unknown" } else { name };
        Self::new(name, operation, &request.api_version(), request.subresource.as_deref(), now)
    }

    fn new(
        name: &str,
        operation: Operation,
        api_version: &str,
        subresource: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let manager = Manager {
            name: name.to_owned(),
            operation,
            api_version: if operation == Operation::Update { api_version.to_owned() } else { String::new() },
            subresource: subresource.unwrap_or_default().to_owned(),
        };
        Self { manager, api_version: api_version.to_owned(), time: seconds(now) }
    }

    /// Returns the writer of a request that is neither an apply nor a deletion.
    fn of_update(request: &RecordedRequest, now: Timestamp) -> Option<Self> {
        let updates = matches!(request.verb, Verb::Create | Verb::Update | Verb::Patch)
            && request.media_type() != APPLY;
        updates.then(|| Self::of(request, Operation::Update, now))
    }

    pub(crate) fn direct(kind: &Kind, now: Timestamp) -> Arc<Self> {
        Arc::new(Self::new(DIRECT, Operation::Update, &kind.resource.api_version, None, now))
    }
}

impl State {
    /// Sets the manager of the fields that a request writes. Equal writers are stored once, because most writes of a test have the same
    /// writer.
    pub(crate) fn begin_write(&mut self, request: &RecordedRequest, now: Timestamp) {
        let writer = Writer::of_update(request, now);
        if writer.is_some() && self.last_writer.as_deref() != writer.as_ref() {
            self.last_writer = writer.clone().map(Arc::new);
        }
        self.writer = self.last_writer.clone().filter(|_| writer.is_some());
    }

    /// Returns the managers of an object before an apply.
    pub(crate) fn managers(
        &self,
        kind_id: usize,
        live: &Value,
        request: &RecordedRequest,
        now: Timestamp,
    ) -> Managers {
        let managers = Managers::of(live);
        if !managers.is_empty() {
            return managers;
        }
        let kind = self.kind(kind_id);
        let of = FieldType::of(kind, &request.version);
        let unknown = Writer::new(UNKNOWN_WRITER, Operation::Update, &request.api_version(), None, now);
        let all_unknown = |object: &Value| {
            let mut managers = Managers::default();
            managers.update(&unknown, &of.initial(object), object, of, &kind.reset_fields(false));
            managers
        };
        let key = kind.key_of(live);
        let changes: Vec<_> =
            self.history.after(0).filter(|change| change.kind == kind_id && change.key == key).collect();
        let created = changes.iter().rposition(|change| change.before.is_none());
        let mut managers = match (created, changes.first().and_then(|change| change.before.as_ref())) {
            (Some(_), _) => Managers::default(),
            (None, Some(oldest)) => all_unknown(oldest),
            (None, None) => return all_unknown(live),
        };
        for change in &changes[created.unwrap_or_default()..] {
            let Some(after) = &change.after else { continue };
            if metadata::has_managers(after) {
                // The object had managers after this change and has none now, so they were cleared. All its fields get the unknown manager.
                return all_unknown(live);
            }
            let Some(writer) = &change.writer else { continue };
            let ignored = kind.reset_fields_of(writer);
            match &change.before {
                Some(before) => managers.update(writer, before, after, of, &ignored),
                None => managers.update(writer, &of.initial(after), after, of, &ignored),
            }
        }
        managers
    }

    /// Returns the managers of an object after a write other than apply. They are empty for an object that was never applied, unless a client has set
    /// them.
    ///
    /// `sent` is the value of `managedFields` in the request. A request can set and clear the managers, except in a write to a subresource.
    pub(crate) fn managers_after(
        &self,
        kind: &Kind,
        version: &str,
        before: &Value,
        after: &Value,
        sent: Option<&Value>,
    ) -> Managers {
        let sent =
            sent.filter(|_| self.writer.as_ref().is_none_or(|writer| writer.manager.subresource.is_empty()));
        if sent.is_some_and(is_cleared) {
            return Managers::default();
        }
        let sent = sent.map(Managers::from_json).filter(|managers| !managers.is_empty());
        let mut managers = sent.unwrap_or_else(|| Managers::of(before));
        if let Some(writer) = self.writer.as_ref().filter(|_| !managers.is_empty()) {
            managers.update(
                writer,
                before,
                after,
                FieldType::of(kind, version),
                &kind.reset_fields_of(writer),
            );
        }
        managers
    }
}

impl Kind {
    fn reset_fields_of(&self, writer: &Writer) -> FieldSet {
        match &*writer.manager.name {
            DIRECT => FieldSet::default(),
            _ => self.reset_fields(!writer.manager.subresource.is_empty()),
        }
    }
}

/// Returns whether a client clears the managers: it sends a list that contains one empty entry. An empty list counts as an absent field.
fn is_cleared(sent: &Value) -> bool {
    matches!(sent.as_array().map(Vec::as_slice), Some([Value::Object(entry)]) if entry.is_empty())
}
