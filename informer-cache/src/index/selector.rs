//! PURE. A label selector: a conjunction of requirements on labels, with the semantics and the text format of Kubernetes.
//!
//! # Invariants
//! 1. The requirements are sorted and distinct, and so are the values of each requirement. Therefore two selectors with the same requirements are
//!    equal.
//! 2. A requirement has no empty list of values: an `in` without values makes the selector [`Selector::nothing`], and a `notin` without values adds
//!    no requirement.
//! 3. If a requirement is added to [`Selector::nothing`], the result is [`Selector::nothing`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

mod error;
mod label;
mod parse;
mod requirement;
#[cfg(test)]
mod tests;

pub use error::ParseSelectorError;
pub use requirement::{SelectorOperator, SelectorRequirement};

/// A label selector, as in Kubernetes: a set of requirements on the labels of an object. An object matches if all of them hold.
///
/// | method | text | matches an object |
/// |---|---|---|
/// | [`equals`](Self::equals) | `k=v`, `k==v` | with this label |
/// | [`not_equals`](Self::not_equals) | `k!=v` | without this label: the key has a different value, or is missing |
/// | [`in_set`](Self::in_set) | `k in (v,w)` | with the key and one of these values |
/// | [`not_in`](Self::not_in) | `k notin (v,w)` | with none of these values: the key has a different value, or is missing |
/// | [`exists`](Self::exists) | `k` | with the key, whatever its value |
/// | [`does_not_exist`](Self::does_not_exist) | `!k` | without the key |
/// | [`greater_than`](Self::greater_than), [`less_than`](Self::less_than) | `k>7`, `k<7` | whose value is an integer above, or below, the bound |
///
/// Keys and values are compared byte by byte. If there are several requirements on one key, all of them must hold; a later one does not replace an
/// earlier one.
///
/// The parser accepts a string if, and only if, the parser of Kubernetes accepts it. There is one exception, a NUL byte: the parser of Kubernetes
/// ends there, and this parser returns an error. Keys are `name` or `prefix/name`. A value has at most 63 characters, which are letters, digits, `-`,
/// `_` and `.`, and it may be empty. If a value is missing in the text, for example between two commas, it is the empty value. `Display` prints the
/// shortest text of a selector, with the requirements sorted by key; parsing this text returns an equal selector. Some selectors have no text that
/// the parser accepts: those with keys or values that are not valid in Kubernetes, those with negative bounds, and [`nothing`](Self::nothing). For
/// these, `Display` prints a text that the parser rejects, never the text of a different selector.
///
/// # Examples
/// ```
/// use flyball_informer_cache::Selector;
///
/// let selector = Selector::everything().equals("app", "web").in_set("tier", ["a", "b"]).does_not_exist("canary");
/// assert_eq!(selector, "app=web, tier in (b, a), !canary".parse()?);
/// assert_eq!(selector.to_string(), "app=web,!canary,tier in (a,b)");
///
/// let labels = [("app", "web"), ("tier", "b")];
/// assert!(selector.matches(|key| labels.iter().find(|label| label.0 == key).map(|label| label.1)));
/// assert!(!selector.matches(|_| None));
///
/// let error = "app in web".parse::<Selector>().unwrap_err();
/// assert_eq!((error.position(), error.expected()), (7, "`(`"));
/// # Ok::<(), flyball_informer_cache::ParseSelectorError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The requirements, all of which must hold. `None` represents [`nothing`](Selector::nothing), to which no requirement can be added.
    requirements: Option<Vec<SelectorRequirement>>,
}

impl Selector {
    /// Creates a selector without requirements. It matches every object, with or without labels.
    #[must_use]
    pub const fn everything() -> Self {
        Self { requirements: Some(Vec::new()) }
    }

    /// Creates a selector that matches no object, even after requirements are added to it.
    #[must_use]
    pub const fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Requires that the label `key` has this value.
    #[must_use]
    pub fn equals(self, key: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.in_set(key, [value])
    }

    /// Requires that the label `key` has a different value or does not exist.
    #[must_use]
    pub fn not_equals(self, key: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.not_in(key, [value])
    }

    /// Requires that the label `key` has one of these values. If `values` is empty, no object matches.
    #[must_use]
    pub fn in_set(
        self,
        key: impl Into<Arc<str>>,
        values: impl IntoIterator<Item = impl Into<Arc<str>>>,
    ) -> Self {
        match set(values) {
            values if values.is_empty() => Self::nothing(),
            values => self.with(key, SelectorOperator::In(values)),
        }
    }

    /// Requires that the label `key` has none of these values or does not exist. If `values` is empty, no requirement is added.
    #[must_use]
    pub fn not_in(
        self,
        key: impl Into<Arc<str>>,
        values: impl IntoIterator<Item = impl Into<Arc<str>>>,
    ) -> Self {
        match set(values) {
            values if values.is_empty() => self,
            values => self.with(key, SelectorOperator::NotIn(values)),
        }
    }

    /// Requires that the label `key` exists, with any value.
    #[must_use]
    pub fn exists(self, key: impl Into<Arc<str>>) -> Self {
        self.with(key, SelectorOperator::Exists)
    }

    /// Requires that the label `key` does not exist.
    #[must_use]
    pub fn does_not_exist(self, key: impl Into<Arc<str>>) -> Self {
        self.with(key, SelectorOperator::DoesNotExist)
    }

    /// Requires that the value of the label `key` is a decimal 64-bit integer greater than `number`.
    #[must_use]
    pub fn greater_than(self, key: impl Into<Arc<str>>, number: i64) -> Self {
        self.with(key, SelectorOperator::GreaterThan(number))
    }

    /// Requires that the value of the label `key` is a decimal 64-bit integer less than `number`.
    #[must_use]
    pub fn less_than(self, key: impl Into<Arc<str>>, number: i64) -> Self {
        self.with(key, SelectorOperator::LessThan(number))
    }

    /// Adds the requirements of `other`. If `self` or `other` is [`nothing`](Self::nothing), the result is [`nothing`](Self::nothing).
    ///
    /// # Examples
    /// Combines a selector that the program builds with one that a user enters:
    /// ```
    /// use flyball_informer_cache::Selector;
    ///
    /// let ours = Selector::everything()
    ///     .exists("app")
    ///     .not_equals("tier", "test")
    ///     .not_in("zone", ["a", "b"])
    ///     .greater_than("weight", 10)
    ///     .less_than("weight", 100);
    /// assert_eq!(ours.to_string(), "app,tier!=test,weight>10,weight<100,zone notin (a,b)");
    ///
    /// let both = ours.and("owner=ann".parse()?);
    /// let matches = |weight| {
    ///     let labels = [("app", "web"), ("owner", "ann"), ("weight", weight)];
    ///     both.matches(|key| labels.iter().find(|label| label.0 == key).map(|label| label.1))
    /// };
    /// assert!(matches("50") && !matches("7") && !matches("heavy"));
    /// # Ok::<(), flyball_informer_cache::ParseSelectorError>(())
    /// ```
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = self.requirements.zip(other.requirements);
        Self { requirements: both.map(|(one, other)| sorted(one.into_iter().chain(other).collect())) }
    }

    /// Returns whether this is [`everything`](Self::everything), the selector without requirements.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns whether this is [`nothing`](Self::nothing). Does not detect contradictory requirements: a selector that has them is not `nothing`,
    /// although no object matches it.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::Selector;
    ///
    /// assert!(Selector::nothing().equals("app", "web").is_nothing());
    /// assert!(Selector::everything().in_set("app", Vec::<&str>::new()).is_nothing());
    /// assert!(Selector::everything().not_in("app", Vec::<&str>::new()).is_everything());
    /// assert!(!Selector::everything().equals("app", "web").equals("app", "db").is_nothing()); // contradictions are not detected
    /// ```
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    /// Returns whether an object matches. `label` returns the value of the object's label with a given key.
    ///
    /// Does not allocate, and stops at the first requirement that does not hold. O(requirements × log values).
    pub fn matches<'a>(&self, mut label: impl FnMut(&str) -> Option<&'a str>) -> bool {
        let requirements = self.requirements();
        requirements.is_some_and(|all| all.iter().all(|one| one.operator.holds(label(&one.key))))
    }

    /// Returns the requirements, sorted by key; an object matches if all of them hold. Returns `None` for [`nothing`](Self::nothing).
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Selector, SelectorOperator};
    ///
    /// let selector: Selector = "tier in (a,b)".parse()?;
    /// let [requirement] = selector.requirements().expect("not nothing") else { panic!("one") };
    /// assert_eq!(&*requirement.key, "tier");
    /// assert!(matches!(&requirement.operator, SelectorOperator::In(values) if values.len() == 2));
    /// # Ok::<(), flyball_informer_cache::ParseSelectorError>(())
    /// ```
    #[must_use]
    pub fn requirements(&self) -> Option<&[SelectorRequirement]> {
        self.requirements.as_deref()
    }

    fn with(self, key: impl Into<Arc<str>>, operator: SelectorOperator) -> Self {
        self.and(Self { requirements: Some(vec![SelectorRequirement { key: key.into(), operator }]) })
    }
}

/// Sorts the values and removes duplicates.
fn set(values: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Box<[Arc<str>]> {
    sorted(values.into_iter().map(Into::into).collect()).into()
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns [`everything`](Self::everything).
impl Default for Selector {
    fn default() -> Self {
        Self::everything()
    }
}

impl FromStr for Selector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let requirements = parse::requirements(text)?;
        Ok(Self { requirements: Some(sorted(requirements)) })
    }
}

impl TryFrom<&str> for Selector {
    type Error = ParseSelectorError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(requirements) = self.requirements() else { return f.write_str("<nothing>") };
        for (at, requirement) in requirements.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&format_args!("{self}")).finish()
    }
}
