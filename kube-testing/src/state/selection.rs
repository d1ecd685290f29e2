//! PURE. Which objects of a kind are asked for: by namespace, by labels, by fields.

use kube::core::Status;
use serde_json::Value;

use crate::request::Request;
use crate::state::label_selector::LabelSelector;
use crate::state::metadata;
use crate::state::status_error;

/// What a list or a watch is of.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: Vec<FieldTest>,
}

/// A field as a path, and what it has to be or must not be.
#[derive(Debug, Clone)]
struct FieldTest {
    path: String,
    value: String,
    equal: bool,
}

impl Selection {
    pub(crate) fn of(request: &Request) -> Result<Self, Box<Status>> {
        let labels = request.param("labelSelector").unwrap_or_default();
        let labels = labels.parse().map_err(|error: String| {
            status_error::bad_request(&format!("unable to parse requirement: {error}"))
        })?;
        let fields = request.param("fieldSelector").unwrap_or_default();
        let fields = fields.split(',').map(str::trim).filter(|term| !term.is_empty());
        let fields = fields.map(FieldTest::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { namespace: request.namespace.clone(), labels, fields })
    }

    /// Whether nothing but the namespace narrows it.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty()
    }

    pub(crate) fn holds(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        self.namespace
            .as_deref()
            .is_none_or(|namespace| metadata::text(object, "namespace") == Some(namespace))
            && self.labels.matches(label)
            && self.fields.iter().all(|field| field.holds(object))
    }
}

impl FieldTest {
    fn parse(term: &str) -> Result<Self, Box<Status>> {
        // The longest operator first: `!=` and `==` have a `=` in them.
        let found = ["!=", "==", "="].into_iter().find_map(|operator| {
            term.split_once(operator).map(|(path, value)| (path, value, operator != "!="))
        });
        let Some((path, value, equal)) = found else {
            let message = format!("invalid selector: '{term}'; can't understand '{term}'");
            return Err(status_error::bad_request(&message));
        };
        Ok(Self { path: path.to_owned(), value: value.to_owned(), equal })
    }

    /// A field that is not there is the empty text.
    fn holds(&self, object: &Value) -> bool {
        let field = self.path.split('.').try_fold(object, |value, part| value.get(part));
        (field.and_then(Value::as_str).unwrap_or_default() == self.value) == self.equal
    }
}
