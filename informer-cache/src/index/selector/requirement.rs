//! PURE. One requirement of a selector: what has to hold of one label.

use std::fmt;
use std::sync::Arc;

use super::label;

/// What has to hold of the label `key`. Sorted by key first, as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Requirement {
    pub(crate) key: Arc<str>,
    pub(crate) operator: Operator,
}

/// Values are sorted, distinct and at least one; `=` and `!=` are sets of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Operator {
    In(Box<[Arc<str>]>),
    NotIn(Box<[Arc<str>]>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl Operator {
    /// Whether it holds for this value of the label, or for its absence.
    pub(crate) fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[Arc<str>]| {
            value.is_some_and(|value| values.binary_search_by(|one| (**one).cmp(value)).is_ok())
        };
        // As Go reads it and so does Rust: decimal, with an optional sign.
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => among(values),
            Self::NotIn(values) => !among(values),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = Word { text: &self.key, plain: label::is_key(&self.key) };
        match &self.operator {
            Operator::In(values) => write!(f, "{key}{}", Values { one: "=", many: " in ", values }),
            Operator::NotIn(values) => write!(f, "{key}{}", Values { one: "!=", many: " notin ", values }),
            Operator::Exists => write!(f, "{key}"),
            Operator::Absent => write!(f, "!{key}"),
            Operator::Greater(bound) => write!(f, "{key}>{bound}"),
            Operator::Less(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

/// A key or a value. What is no label is quoted, and quotes are never read: a comma in a value must not look like two values.
struct Word<'a> {
    text: &'a str,
    plain: bool,
}

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.plain { f.write_str(self.text) } else { write!(f, "{:?}", self.text) }
    }
}

struct Values<'a> {
    one: &'static str,
    many: &'static str,
    values: &'a [Arc<str>],
}

impl fmt::Display for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |text| Word { text, plain: label::is_value(text) };
        if let [value] = self.values {
            return write!(f, "{}{}", self.one, word(value));
        }
        f.write_str(self.many)?;
        for (at, value) in self.values.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { '(' } else { ',' }, word(value))?;
        }
        f.write_str(")")
    }
}
