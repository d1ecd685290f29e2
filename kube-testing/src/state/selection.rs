//! PURE. Selects objects of a kind: by namespace, labels and fields.

use kube::core::Status;
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::kind::Kind;
use crate::state::label_selector::LabelSelector;
use crate::state::metadata;
use crate::status_error;

/// The objects that a list or a watch selects.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: Vec<FieldTest>,
}

/// A requirement of a field selector.
#[derive(Debug, Clone)]
struct FieldTest {
    path: String,
    value: String,
    equal: bool,
}

impl Selection {
    pub(crate) fn of(kind: &Kind, request: &RecordedRequest) -> Result<Self, Box<Status>> {
        let labels = request.query_param("labelSelector").unwrap_or_default();
        let labels = labels.parse().map_err(|error: String| {
            status_error::bad_request(&format!("unable to parse requirement: {error}"))
        })?;
        let fields = request.query_param("fieldSelector").unwrap_or_default();
        let fields = fields.split(',').map(str::trim).filter(|term| !term.is_empty());
        let fields = fields.map(|term| FieldTest::parse(kind, term)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { namespace: request.namespace.clone(), labels, fields })
    }

    /// Returns whether the selection contains all objects of its namespace.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        self.namespace
            .as_deref()
            .is_none_or(|namespace| metadata::text(object, "namespace") == Some(namespace))
            && self.labels.matches(label)
            && self.fields.iter().all(|field| field.matches(object))
    }
}

impl FieldTest {
    fn parse(kind: &Kind, term: &str) -> Result<Self, Box<Status>> {
        // `!=` and `==` contain `=`, so they are tried first.
        let found = ["!=", "==", "="].into_iter().find_map(|operator| {
            term.split_once(operator).map(|(path, value)| (path, value, operator != "!="))
        });
        let Some((path, value, equal)) = found else {
            let message = format!("invalid selector: '{term}'; can't understand '{term}'");
            return Err(status_error::bad_request(&message));
        };
        Ok(Self { path: kind.selectable(path)?, value: value.to_owned(), equal })
    }

    /// Numbers and booleans are compared as text. For a missing field, the comparison uses the default value that the field has on a real server.
    fn matches(&self, object: &Value) -> bool {
        let field = self.path.split('.').try_fold(object, |value, part| value.get(part));
        let text = match field {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
            _ => match &*self.path {
                "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
                "status.replicas" | "status.succeeded" => "0".to_owned(),
                // For an Event without `source.component`, a real server compares `reportingComponent`.
                "source.component" => object["reportingComponent"].as_str().unwrap_or_default().to_owned(),
                _ => String::new(),
            },
        };
        (text == self.value) == self.equal
    }
}
