//! PURE. Conversions between the caches' [`Selector`] and the label selectors of kube and Kubernetes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use flyball_informer_cache::{Selector, SelectorOperator};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Expression, Selector as KubeSelector};
use kube::{Resource, ResourceExt};

/// Conversions of a [`Selector`] from and to the label selectors of kube and Kubernetes, so that a program can use one type for all purposes.
///
/// If the other type cannot express a requirement, the conversion returns an error; it never omits a requirement. A converted selector selects the
/// same objects, and a round trip returns an equal [`Selector`]. For the method `labels(…)` of `watcher::Config` or `ListParams`, use the text form:
/// `selector.to_string()`.
///
/// | | from | to |
/// |---|---|---|
/// | [`kube::core::Selector`] | always | always, except for [`nothing`](Selector::nothing), `>` and `<` |
/// | [`LabelSelector`] | unless an operator is unknown, values do not fit it, or a label is invalid | always, except for `nothing`, `>` and `<` |
///
/// # Examples
/// ```
/// use flyball_informer_cache::Selector;
/// use flyball_kube::SelectorExt;
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::Pod;
/// use serde_json::{from_value, json};
///
/// let deployment: Deployment = from_value(json!({
///     "metadata": {"name": "web"},
///     "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
/// }))?;
/// let selector = Selector::from_label_selector(&deployment.spec.unwrap().selector)?;
/// assert_eq!(selector, "app=web".parse()?);
///
/// let pod: Pod = from_value(json!({"metadata": {"name": "web-0", "labels": {"app": "web"}}}))?;
/// assert!(selector.selects(&pod));
/// assert_eq!(Selector::from_kube(&selector.to_kube()?), selector);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait SelectorExt: Sized + private::Sealed {
    /// Converts a kube selector to a [`Selector`].
    #[must_use]
    fn from_kube(selector: &KubeSelector) -> Self;

    /// Converts this selector to a kube selector.
    ///
    /// # Errors
    /// [`SelectorError::Nothing`], [`SelectorError::Comparison`].
    fn to_kube(&self) -> Result<KubeSelector, SelectorError>;

    /// Converts a `LabelSelector`, as in the `spec` of a Deployment. A selector without requirements selects everything, as in
    /// Kubernetes.
    ///
    /// # Errors
    /// [`SelectorError::Operator`], [`SelectorError::Values`], [`SelectorError::Label`].
    fn from_label_selector(selector: &LabelSelector) -> Result<Self, SelectorError>;

    /// Converts this selector to a `LabelSelector`, as in the `spec` of a Deployment. The first equality of each key is converted to `matchLabels`,
    /// and all other requirements to `matchExpressions`.
    ///
    /// # Errors
    /// [`SelectorError::Nothing`], [`SelectorError::Comparison`].
    fn to_label_selector(&self) -> Result<LabelSelector, SelectorError>;

    /// Returns whether the selector selects an object by its labels.
    #[must_use]
    fn selects(&self, object: &impl Resource) -> bool;
}

impl SelectorExt for Selector {
    fn from_kube(selector: &KubeSelector) -> Self {
        // A kube selector returns its expressions only by `into_iter`, which consumes it, so it is cloned.
        selector.clone().into_iter().fold(Self::everything(), |all, expression| match expression {
            Expression::In(key, values) => all.in_set(key, values),
            Expression::NotIn(key, values) => all.not_in(key, values),
            Expression::Equal(key, value) => all.equals(key, value),
            Expression::NotEqual(key, value) => all.not_equals(key, value),
            Expression::Exists(key) => all.exists(key),
            Expression::DoesNotExist(key) => all.does_not_exist(key),
        })
    }

    fn to_kube(&self) -> Result<KubeSelector, SelectorError> {
        let requirements = self.requirements().ok_or(SelectorError::Nothing)?.iter();
        let expression = |key: &str, operator: &SelectorOperator| {
            let key = key.to_owned();
            Ok(match operator {
                SelectorOperator::In(values) => match &**values {
                    [value] => Expression::Equal(key, String::from(&**value)),
                    values => Expression::In(key, strings(values)),
                },
                SelectorOperator::NotIn(values) => match &**values {
                    [value] => Expression::NotEqual(key, String::from(&**value)),
                    values => Expression::NotIn(key, strings(values)),
                },
                SelectorOperator::Exists => Expression::Exists(key),
                SelectorOperator::DoesNotExist => Expression::DoesNotExist(key),
                SelectorOperator::GreaterThan(_) | SelectorOperator::LessThan(_) => {
                    return Err(SelectorError::Comparison { key });
                }
            })
        };
        requirements.map(|requirement| expression(&requirement.key, &requirement.operator)).collect()
    }

    fn from_label_selector(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let labels = selector.match_labels.iter().flatten();
        let labels = labels.fold(Self::everything(), |all, (key, value)| all.equals(&**key, &**value));
        let selector = selector.match_expressions.iter().flatten().try_fold(labels, |all, requirement| {
            let LabelSelectorRequirement { key, operator, values } = requirement;
            let key = &**key;
            let values: Vec<&str> = values.iter().flatten().map(String::as_str).collect();
            match (&**operator, values.is_empty()) {
                ("In", false) => Ok(all.in_set(key, values)),
                ("NotIn", false) => Ok(all.not_in(key, values)),
                ("Exists", true) => Ok(all.exists(key)),
                ("DoesNotExist", true) => Ok(all.does_not_exist(key)),
                ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {
                    Err(SelectorError::Values { key: key.to_owned(), operator: operator.clone() })
                }
                _ => Err(SelectorError::Operator { key: key.to_owned(), operator: operator.clone() }),
            }
        })?;
        // This checks whether the labels are valid: the parser accepts only valid labels, so parsing the text of a selector with an invalid label
        // fails or returns a different selector.
        let text = selector.to_string();
        match selector.is_nothing() || text.parse().is_ok_and(|read: Self| read == selector) {
            true => Ok(selector),
            false => Err(SelectorError::Label { selector: text }),
        }
    }

    fn to_label_selector(&self) -> Result<LabelSelector, SelectorError> {
        let mut selector = LabelSelector::default();
        for requirement in self.requirements().ok_or(SelectorError::Nothing)? {
            let key = String::from(&*requirement.key);
            let (operator, values) = match &requirement.operator {
                SelectorOperator::In(values) => {
                    let labels = selector.match_labels.get_or_insert_default();
                    if let [value] = &**values
                        && !labels.contains_key(&key)
                    {
                        labels.insert(key, String::from(&**value));
                        continue;
                    }
                    ("In", Some(strings(values)))
                }
                SelectorOperator::NotIn(values) => ("NotIn", Some(strings(values))),
                SelectorOperator::Exists => ("Exists", None),
                SelectorOperator::DoesNotExist => ("DoesNotExist", None),
                SelectorOperator::GreaterThan(_) | SelectorOperator::LessThan(_) => {
                    return Err(SelectorError::Comparison { key });
                }
            };
            let operator = operator.to_owned();
            let expressions = selector.match_expressions.get_or_insert_default();
            expressions.push(LabelSelectorRequirement { key, operator, values });
        }
        selector.match_labels = selector.match_labels.filter(|labels| !labels.is_empty());
        Ok(selector)
    }

    fn selects(&self, object: &impl Resource) -> bool {
        self.matches(|key| object.labels().get(key).map(String::as_str))
    }
}

fn strings<C: FromIterator<String>>(values: &[Arc<str>]) -> C {
    values.iter().map(|value| String::from(&**value)).collect()
}

mod private {
    pub trait Sealed {}
    impl Sealed for flyball_informer_cache::Selector {}
}

/// The error for a selector that cannot be converted.
///
/// # Examples
/// ```
/// use flyball_informer_cache::Selector;
/// use flyball_kube::{SelectorError, SelectorExt};
///
/// let selector: Selector = "app in (api, web), !canary".parse()?;
/// let in_a_spec = selector.to_label_selector()?;
/// assert_eq!(Selector::from_label_selector(&in_a_spec)?, selector);
///
/// let large: Selector = "size>10".parse()?;
/// assert_eq!(large.to_label_selector(), Err(SelectorError::Comparison { key: "size".into() }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectorError {
    /// The selector matches nothing. The target type cannot express that.
    Nothing,
    /// A requirement compares numbers (`>`, `<`). The target type cannot express that.
    Comparison {
        /// The key of the label.
        key: String,
    },
    /// The operator is not one of Kubernetes' label selectors.
    Operator {
        /// The key of the label.
        key: String,
        /// The operator.
        operator: String,
    },
    /// An invalid label key or value. An API server also rejects it.
    Label {
        /// The selector, as text.
        selector: String,
    },
    /// `In` or `NotIn` without values, or `Exists` or `DoesNotExist` with values. An API server also rejects them.
    Values {
        /// The key of the label.
        key: String,
        /// The operator.
        operator: String,
    },
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("a selector that matches nothing has no such form"),
            Self::Comparison { key } => write!(f, "a comparison of the label {key:?} has no such form"),
            Self::Operator { key, operator } => {
                write!(f, "unknown operator {operator:?} for the label {key:?}")
            }
            Self::Label { selector } => write!(f, "no label can have a key or a value of {selector:?}"),
            Self::Values { key, operator } => {
                write!(f, "the values for the label {key:?} do not fit the operator {operator:?}")
            }
        }
    }
}

impl Error for SelectorError {}
