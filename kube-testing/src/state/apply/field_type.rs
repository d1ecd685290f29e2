//! PURE. The types of fields: which objects and lists are owned field by field, and which as a whole.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::state::field_set::Element;
use crate::state::kind::Kind;
use crate::state::kind::field_rules::{self, ListRule};

/// The type of a field, as far as server-side apply depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldType<'a> {
    /// A field of a built-in kind, or of the metadata of any kind.
    BuiltIn {
        plural: &'a str,
        parent: &'a str,
        field: &'a str,
        /// Whether this is an entry of the map with the name `field`, not the field itself.
        is_entry: bool,
    },
    /// A custom resource, with the schema of its definition.
    Custom(Option<&'a Value>),
    /// A field with a schema.
    Schema(&'a Value),
    /// A field without a schema.
    Unknown {
        /// Whether the keys of objects count as fields of a type, not as entries of a map.
        is_typed: bool,
    },
}

/// The merge strategy of a list.
enum List<'a> {
    Keyed(Vec<&'a str>),
    Set,
    Atomic,
}

impl<'a> FieldType<'a> {
    pub(crate) fn of(kind: &'a Kind, version: &str) -> Self {
        if kind.is_built_in() {
            return Self::BuiltIn { plural: &kind.resource.plural, parent: "", field: "", is_entry: true };
        }
        Self::Custom(kind.schemas.get(version))
    }

    pub(crate) fn is_built_in(self) -> bool {
        matches!(self, Self::BuiltIn { .. })
    }

    /// Returns the type of a field of an object.
    pub(crate) fn field(self, name: &'a str) -> Self {
        match self {
            Self::BuiltIn { plural, parent, field, is_entry: false } if field_rules::is_map(field) => {
                Self::BuiltIn { plural, parent, field, is_entry: true }
            }
            Self::BuiltIn { plural, field, .. } => {
                Self::BuiltIn { plural, parent: field, field: name, is_entry: false }
            }
            Self::Custom(_) if name == "metadata" => {
                Self::BuiltIn { plural: "", parent: "", field: name, is_entry: false }
            }
            Self::Custom(None) => Self::Unknown { is_typed: true },
            Self::Custom(Some(schema)) | Self::Schema(schema) => {
                match (schema["properties"].get(name), schema.get("additionalProperties")) {
                    (Some(property), _) => Self::Schema(property),
                    (None, Some(entry @ Value::Object(_))) => Self::Schema(entry),
                    _ => Self::Unknown { is_typed: false },
                }
            }
            Self::Unknown { .. } => self,
        }
    }

    fn item(self) -> Self {
        match self {
            Self::Schema(schema) => Self::Schema(&schema["items"]),
            _ => self,
        }
    }

    /// Returns the type of the child that a path element names: a field, an entry of a map or an item of a list.
    pub(crate) fn at(self, element: &'a str) -> Self {
        element.strip_prefix("f:").map_or_else(|| self.item(), |name| self.field(name))
    }

    /// Returns whether `name`, a key of an object, is a declared field and not an entry of a map.
    pub(crate) fn declares(self, name: &str) -> bool {
        match self {
            Self::BuiltIn { field, is_entry, .. } => is_entry || !field_rules::is_map(field),
            Self::Custom(None) => true,
            Self::Custom(Some(_)) if matches!(name, "apiVersion" | "kind" | "metadata") => true,
            Self::Custom(Some(schema)) | Self::Schema(schema) => schema["properties"].get(name).is_some(),
            Self::Unknown { is_typed } => is_typed,
        }
    }

    /// Returns whether there is a schema and it does not allow a field with this name.
    pub(crate) fn excludes(self, name: &str) -> bool {
        let (Self::Custom(Some(schema)) | Self::Schema(schema)) = self else { return false };
        let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true
            || schema["additionalProperties"].is_object()
            || schema["additionalProperties"] == true;
        !is_open && !self.declares(name)
    }

    fn is_atomic_object(self) -> bool {
        match self {
            Self::BuiltIn { parent, field, is_entry, .. } => {
                !is_entry && field_rules::is_atomic_object(parent, field)
            }
            Self::Schema(schema) => schema["x-kubernetes-map-type"] == "atomic",
            Self::Custom(_) | Self::Unknown { .. } => false,
        }
    }

    fn list(self) -> List<'a> {
        match self {
            Self::BuiltIn { plural, parent, field, .. } => {
                match field_rules::applied_list(plural, parent, field) {
                    ListRule::Keyed(keys) => List::Keyed(keys.to_vec()),
                    ListRule::Set => List::Set,
                    ListRule::Atomic => List::Atomic,
                }
            }
            Self::Schema(schema) => match schema["x-kubernetes-list-type"].as_str() {
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array();
                    List::Keyed(keys.into_iter().flatten().filter_map(Value::as_str).collect())
                }
                Some("set") => List::Set,
                _ => List::Atomic,
            },
            Self::Custom(_) | Self::Unknown { .. } => List::Atomic,
        }
    }

    /// Returns whether a value is an object or a list whose children are owned separately.
    pub(crate) fn is_granular(self, value: &Value) -> bool {
        match value {
            Value::Object(_) => !self.is_atomic_object(),
            Value::Array(_) => !matches!(self.list(), List::Atomic),
            _ => false,
        }
    }

    /// Returns those children of a value that managers own separately. Items without a key are left out.
    pub(crate) fn children<'v>(self, value: &'v Value) -> Vec<(Element, FieldType<'v>, &'v Value)>
    where
        'a: 'v,
    {
        match value {
            Value::Object(fields) if self.is_granular(value) => {
                fields.iter().map(|(name, value)| (format!("f:{name}"), self.field(name), value)).collect()
            }
            Value::Array(items) if self.is_granular(value) => {
                items.iter().filter_map(|item| Some((self.element(item).ok()?, self.item(), item))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the path element of a list item.
    pub(crate) fn element(self, item: &Value) -> Result<Element, String> {
        let keys = match self.list() {
            List::Keyed(keys) => keys,
            _ if item.is_object() => {
                return Err("associative list without keys has an element that's a map type".to_owned());
            }
            _ if item.is_array() => {
                return Err("not supported: associative list with lists as elements".to_owned());
            }
            _ if item.is_null() => {
                return Err("associative list without keys has an element that's an explicit null".to_owned());
            }
            _ => return Ok(format!("v:{item}")),
        };
        if item.is_null() {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        if !item.is_object() {
            return Err("associative list with keys may not have non-map elements".to_owned());
        }
        let value = |key: &&'a str| Some((*key, item.get(key).cloned().or_else(|| self.default_key(key))?));
        let found: BTreeMap<_, _> = keys.iter().filter_map(value).collect();
        if found.is_empty() {
            let keys: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any \
                 key fields)",
                keys.join(" ")
            ));
        }
        let found: Vec<_> =
            found.iter().map(|(key, value)| format!("{}:{value}", Value::from(*key))).collect();
        Ok(format!("k:{{{}}}", found.join(",")))
    }

    fn default_key(self, key: &str) -> Option<Value> {
        match self {
            Self::BuiltIn { field, .. } => field_rules::default_key(field, key).map(Value::from),
            Self::Schema(schema) => schema["items"]["properties"][key].get("default").cloned(),
            Self::Custom(_) | Self::Unknown { .. } => None,
        }
    }

    /// Returns the value that a field has before any client sets it. The value is an empty object, except in a built-in kind: there it contains those
    /// fields of `value` that every new object has, with their own initial values.
    pub(crate) fn initial(self, value: &Value) -> Value {
        let Self::BuiltIn { .. } = self else { return Value::Object(serde_json::Map::new()) };
        let fields = value.as_object().into_iter().flatten();
        let present =
            fields.filter(|(name, value)| value.is_object() && field_rules::is_always_present(name));
        present.map(|(name, value)| (name.clone(), self.field(name).initial(value))).collect()
    }
}
