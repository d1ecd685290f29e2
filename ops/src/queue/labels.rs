//! PURE. The labels of a queue's series.

use std::error::Error;
use std::fmt;

/// The error for an invalid label name. A label name must be an identifier of ASCII letters, digits and underscores, must be used only once, and must
/// not be reserved. Reserved names are `name`, `reason`, `outcome`, `le`, and every name that starts with two underscores.
///
/// # Examples
/// ```
/// # #[cfg(feature = "prometheus-client")] {
/// use flyball_ops::{InvalidLabel, PrometheusQueues};
///
/// let invalid: InvalidLabel = PrometheusQueues::new().queue_with_labels("pods", [("availability-zone", "a")]).unwrap_err();
/// assert_eq!(invalid.to_string(), "the label \"availability-zone\" is not usable here");
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLabel(String);

impl fmt::Display for InvalidLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the label {:?} is not usable here", self.0)
    }
}

impl Error for InvalidLabel {}

const RESERVED: [&str; 4] = ["name", "reason", "outcome", "le"];

pub(crate) type Labels = Vec<(String, String)>;

/// Returns a list that contains only the label `name`.
pub(crate) fn named(name: impl Into<String>) -> Labels {
    vec![("name".to_owned(), name.into())]
}

/// Returns the label `name`, followed by the labels `more`. The labels `more` are sorted by their names, so that their order does not matter: the
/// same labels always identify the same series.
pub(crate) fn labels<N, V>(
    name: impl Into<String>,
    more: impl IntoIterator<Item = (N, V)>,
) -> Result<Labels, InvalidLabel>
where
    N: Into<String>,
    V: Into<String>,
{
    let mut labels = named(name);
    for (label, value) in more {
        let label = label.into();
        let taken = labels.iter().any(|(other, _)| *other == label);
        if taken || !is_usable(&label) {
            return Err(InvalidLabel(label));
        }
        labels.push((label, value.into()));
    }
    labels[1..].sort_unstable();
    Ok(labels)
}

fn is_usable(label: &str) -> bool {
    let identifier = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins = label.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    identifier && begins && !label.starts_with("__") && !RESERVED.contains(&label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_identifiers_and_refuses_reserved_names() {
        let of = |more: &[(&str, &str)]| labels("q", more.iter().copied());
        let named = [("name".to_owned(), "q".to_owned()), ("team_1".to_owned(), "a \"b\"".to_owned())];
        assert_eq!(of(&[("team_1", "a \"b\"")]).unwrap(), named);
        for bad in ["", "1a", "a-b", "ä", "name", "reason", "outcome", "le", "__a"] {
            assert_eq!(of(&[("a", ""), (bad, "")]), Err(InvalidLabel(bad.to_owned())));
        }
        assert_eq!(of(&[("b", "1"), ("a", "2")]), of(&[("a", "2"), ("b", "1")]), "one series");
        assert_eq!(
            of(&[("a", "1"), ("a", "2")]),
            Err(InvalidLabel("a".to_owned())),
            "a label must not be used twice"
        );
        assert_eq!(InvalidLabel("a-b".into()).to_string(), "the label \"a-b\" is not usable here");
    }
}
