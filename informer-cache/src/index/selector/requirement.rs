//! PURE. One requirement of a selector, which concerns one label.

use std::fmt;
use std::sync::Arc;

use super::label;

/// One requirement of a [`Selector`](crate::Selector); see [`Selector::requirements`](crate::Selector::requirements). Requirements are ordered by
/// key, then by operator.
///
/// # Examples
/// Converts a selector to query terms of a different system:
/// ```
/// use flyball_informer_cache::{Selector, SelectorOperator, SelectorRequirement};
///
/// fn term(SelectorRequirement { key, operator }: &SelectorRequirement) -> String {
///     match operator {
///         SelectorOperator::In(values) => format!("{key}:{}", values.join("|")),
///         SelectorOperator::Exists => format!("{key}:*"),
///         other => panic!("cannot express {other:?}"),
///     }
/// }
///
/// let selector = Selector::everything().in_set("tier", ["a", "b"]).exists("app");
/// let terms: Vec<_> = selector.requirements().expect("not nothing").iter().map(term).collect();
/// assert_eq!(terms, ["app:*", "tier:a|b"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorRequirement {
    /// The key of the label.
    pub key: Arc<str>,
    /// The condition that the value of the label must fulfil.
    pub operator: SelectorOperator,
}

/// The condition that the value of a label must fulfil.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectorOperator {
    /// The label has one of these values. The values are sorted and distinct, and there is at least one; the operator `=` has exactly one.
    In(Box<[Arc<str>]>),
    /// The label has none of these values, or does not exist. The values are sorted and distinct, and there is at least one; the operator `!=` has
    /// exactly one.
    NotIn(Box<[Arc<str>]>),
    /// The label exists, with any value.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The value of the label is an integer greater than this one.
    GreaterThan(i64),
    /// The value of the label is an integer less than this one.
    LessThan(i64),
}

impl SelectorOperator {
    /// Returns whether the condition holds for this value of the label; `None` means that the label does not exist.
    pub(crate) fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[Arc<str>]| {
            value.is_some_and(|value| values.binary_search_by(|one| (**one).cmp(value)).is_ok())
        };
        // Parses the value like Go does: as a decimal number with an optional sign.
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => among(values),
            Self::NotIn(values) => !among(values),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Self::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl fmt::Display for SelectorRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = Word { text: &self.key, plain: label::is_key(&self.key) };
        match &self.operator {
            SelectorOperator::In(values) => write!(f, "{key}{}", Values { one: "=", many: " in ", values }),
            SelectorOperator::NotIn(values) => {
                write!(f, "{key}{}", Values { one: "!=", many: " notin ", values })
            }
            SelectorOperator::Exists => write!(f, "{key}"),
            SelectorOperator::DoesNotExist => write!(f, "!{key}"),
            SelectorOperator::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            SelectorOperator::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

/// A key or a value, as `Display` prints it. If the text is not valid in a label, it is printed in quotes. The parser rejects quotes, so a value that
/// contains a comma is never parsed as two values.
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
