//! PURE. The syntax of label keys and label values in Kubernetes.

const MAX_WORD: usize = 63;
const MAX_PREFIX: usize = 253;

/// Returns whether the text is a valid key: `name` or `prefix/name`. A name has at most 63 bytes, and a prefix is a DNS subdomain of at most 253
/// bytes.
pub(super) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Returns whether the text is a valid value: a name or the empty string.
pub(super) fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    text.len() <= MAX_WORD
        && framed(text, |byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_subdomain(text: &str) -> bool {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| framed(part, lower) && part.bytes().all(|byte| lower(byte) || byte == b'-');
    text.len() <= MAX_PREFIX && text.split('.').all(part)
}

/// Returns whether `kind` accepts both the first and the last byte of the text; `false` for an empty text.
fn framed(text: &str, kind: impl Fn(u8) -> bool) -> bool {
    let ends = text.bytes().next().zip(text.bytes().next_back());
    ends.is_some_and(|(first, last)| kind(first) && kind(last))
}
