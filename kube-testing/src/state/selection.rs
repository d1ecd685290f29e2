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
        let fields = FieldTest::parse_all(fields).map_err(|error| status_error::bad_request(&error))?;
        let path = |field: FieldTest| Ok(FieldTest { path: kind.selectable(&field.path)?, ..field });
        let fields = fields.into_iter().map(path).collect::<Result<Vec<_>, Box<Status>>>()?;
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
    /// Parses a field selector, as Kubernetes does: white space has a meaning, and a comma, an equals sign and a backslash in a value follow a backslash.
    fn parse_all(selector: &str) -> Result<Vec<Self>, String> {
        let mut escaped = false;
        let ends_term = |character: char| {
            let ends = character == ',' && !escaped;
            escaped = character == '\\' && !escaped;
            ends
        };
        let mut terms: Vec<_> = selector.split(ends_term).filter(|term| !term.is_empty()).collect();
        // If several terms are invalid, the first one in this order is reported.
        terms.sort_unstable();
        let parse = |term: &str| {
            let operator = |at: usize| ["!=", "==", "="].into_iter().find(|it| term[at..].starts_with(it));
            let found = term.char_indices().find_map(|(at, _)| Some((at, operator(at)?)));
            let Some((at, operator)) = found else {
                return Err(format!("invalid selector: '{selector}'; can't understand '{term}'"));
            };
            let value = unescape(&term[at + operator.len()..])?;
            Ok(Self { path: term[..at].to_owned(), value, equal: operator != "!=" })
        };
        terms.into_iter().map(parse).collect()
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

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            // As in Kubernetes, the message shows the number of the character.
            ',' | '=' => {
                let number = u32::from(character);
                return Err(format!("invalid field selector: unescaped character in value: {number}"));
            }
            _ => plain.push(character),
        }
    }
    Ok(plain)
}
