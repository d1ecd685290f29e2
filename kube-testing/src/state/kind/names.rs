//! PURE. The rules for the names of objects.

/// The rule for the names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// A DNS subdomain, the rule of most kinds.
    Subdomain,
    /// A DNS label.
    Label,
    /// Any path segment, the rule for roles.
    PathSegment,
}

const ALPHANUMERIC: &str = "must start and end with an alphanumeric character";

impl NameRule {
    pub(super) fn of(group: &str, plural: &str) -> Self {
        match (group, plural) {
            ("rbac.authorization.k8s.io", _) => Self::PathSegment,
            ("", "namespaces" | "services") => Self::Label,
            _ => Self::Subdomain,
        }
    }

    /// Returns why a name is invalid, or `None` if it is valid. If `prefix` is set, the name is the prefix of a generated name, which may
    /// end with a dash.
    pub(crate) fn problem(self, name: &str, prefix: bool) -> Option<String> {
        let masked = if prefix && name.ends_with('-') {
            format!("{}a", name.trim_end_matches('-'))
        } else {
            name.into()
        };
        let (most, is_valid) = match self {
            Self::PathSegment => {
                let bad = matches!(name, "." | "..") && !prefix;
                let found = ["/", "%"].into_iter().find(|part| name.contains(part));
                return match (bad, found) {
                    (true, _) => Some(format!("may not be '{name}'")),
                    (_, Some(part)) => Some(format!("may not contain '{part}'")),
                    _ => None,
                };
            }
            Self::Label => (63, is_label(&masked)),
            Self::Subdomain => (253, masked.split('.').all(is_label)),
        };
        if masked.len() > most {
            return Some(format!("must be no more than {most} characters"));
        }
        let is_subdomain = masked.split('.').all(is_label);
        (!is_valid).then(|| match self {
            Self::Label if is_subdomain => "must not contain dots".to_owned(),
            Self::Label => format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {ALPHANUMERIC} \
                 (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ),
            _ => format!(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {ALPHANUMERIC} \
                 (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ),
        })
    }
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (first, last) = (label.bytes().next(), label.bytes().last());
    first.is_some_and(inner)
        && last.is_some_and(inner)
        && label.bytes().all(|byte| inner(byte) || byte == b'-')
}
