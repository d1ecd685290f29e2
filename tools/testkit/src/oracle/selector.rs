//! The oracle of label selectors: a list of terms that are checked one by one, and a parser that splits the text at its commas and operators.

use arbitrary::{Arbitrary, Unstructured};

/// The label keys of the generated selectors and objects. One of them, `in`, is also a keyword of the selector language.
pub const KEYS: [&str; 5] = ["app", "tier", "in", "example.com/zone", "n"];

/// The label values of the generated selectors and objects. Some are numbers, one is empty, and one is a keyword of the selector language.
pub const VALUES: [&str; 9] = ["", "a", "b", "web", "notin", "2", "7", "007", "-3"];

/// The labels of an object, as key and value. Each key occurs once.
pub type Labels = Vec<(String, String)>;

/// The condition of a term on the value of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Rule {
    Equals(String),
    NotEquals(String),
    OneOf(Vec<String>),
    NoneOf(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

/// A key and a condition on its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The key.
    pub key: String,
    /// The condition.
    pub rule: Rule,
}

impl Term {
    fn holds(&self, labels: &Labels) -> bool {
        let values: Vec<&str> =
            labels.iter().filter(|(key, _)| *key == self.key).map(|(_, value)| value.as_str()).collect();
        let number = |value: &&str| value.parse::<i64>().ok();
        match &self.rule {
            Rule::Equals(wanted) => values.contains(&wanted.as_str()),
            Rule::NotEquals(unwanted) => !values.contains(&unwanted.as_str()),
            Rule::OneOf(wanted) => values.iter().any(|value| wanted.iter().any(|one| one == value)),
            Rule::NoneOf(unwanted) => values.iter().all(|value| unwanted.iter().all(|one| one != value)),
            Rule::Exists => values.len() == 1,
            Rule::Absent => values.is_empty(),
            Rule::Greater(bound) => values.iter().filter_map(number).any(|number| number > *bound),
            Rule::Less(bound) => values.iter().filter_map(number).any(|number| number < *bound),
        }
    }
}

/// A selector, which matches if every term matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OracleSelector {
    /// The terms.
    pub terms: Vec<Term>,
}

impl OracleSelector {
    /// Whether these labels match.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.terms.iter().all(|term| term.holds(labels))
    }

    /// Parses a selector; `None` if the text is invalid.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if trim(text).is_empty() {
            return Some(Self::default());
        }
        let terms = pieces(text)?.into_iter().map(term).collect::<Option<_>>()?;
        Some(Self { terms })
    }

    /// Sets of labels on which different selectors are likely to give different results. In each set, a key of the selector is absent, has a value
    /// that one of its terms names, or has a different value.
    #[must_use]
    pub fn probes(&self) -> Vec<Labels> {
        let mut probes = vec![Labels::new()];
        for term in &self.terms {
            let mut values: Vec<String> = ["", "other", "0", "99"].map(str::to_owned).into();
            match &term.rule {
                Rule::Equals(value) | Rule::NotEquals(value) => values.push(value.clone()),
                Rule::OneOf(more) | Rule::NoneOf(more) => values.extend(more.iter().cloned()),
                Rule::Greater(bound) | Rule::Less(bound) => {
                    values.extend([-1, 0, 1].map(|by| bound.saturating_add(by).to_string()));
                }
                Rule::Exists | Rule::Absent => {}
            }
            let others = probes.clone().into_iter().take(6);
            for (at, mut labels) in others.enumerate() {
                for value in values.iter().skip(at % 2) {
                    labels.retain(|(key, _)| *key != term.key);
                    labels.push((term.key.clone(), value.clone()));
                    probes.push(labels.clone());
                }
            }
        }
        // The sets that were generated last have labels for the most terms. So if there are more than 64 sets, the last ones are kept.
        probes.reverse();
        probes.truncate(64);
        probes
    }

    /// Writes the selector as text. `u` selects one of many spellings. The selector must not contain an empty list of values.
    ///
    /// # Errors
    /// Returns an error if `u` has no more data.
    pub fn spell(&self, u: &mut Unstructured<'_>) -> arbitrary::Result<String> {
        let mut text = String::new();
        for (at, Term { key, rule }) in self.terms.iter().enumerate() {
            let mut gap = |least: &str| -> arbitrary::Result<String> {
                let gaps = ["", "", " ", "\t", " \r\n"];
                Ok(format!("{least}{}", gaps[usize::from(u8::arbitrary(u)?) % gaps.len()]))
            };
            let (a, b, c) = (gap("")?, gap("")?, gap("")?);
            let some = gap(" ")?;
            let list = |values: &[String]| format!("({b}{}{c})", values.join(&format!("{b},{c}")));
            let comma = if at == 0 { "" } else { "," };
            let equals = if c.is_empty() { "=" } else { "==" };
            text += &match rule {
                Rule::Equals(value) => format!("{comma}{a}{key}{b}{equals}{c}{value}"),
                Rule::NotEquals(value) => format!("{comma}{a}{key}{b}!={c}{value}"),
                Rule::OneOf(values) => format!("{comma}{a}{key}{some}in{b}{}", list(values)),
                Rule::NoneOf(values) => format!("{comma}{a}{key}{some}notin{c}{}", list(values)),
                Rule::Exists => format!("{comma}{a}{key}{b}"),
                Rule::Absent => format!("{comma}{a}!{b}{key}{c}"),
                Rule::Greater(bound) => format!("{comma}{a}{key}{b}>{c}{bound}"),
                Rule::Less(bound) => format!("{comma}{a}{key}{b}<{c}{bound}"),
            };
        }
        Ok(text)
    }
}

/// Generates a small number of terms from a small choice of keys and values, so that several terms often have the same key. No list of values is
/// empty, and every value can be written in a selector's text.
impl<'a> Arbitrary<'a> for OracleSelector {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let value = |u: &mut Unstructured<'a>| -> arbitrary::Result<String> {
            Ok(VALUES[usize::from(u8::arbitrary(u)?) % (VALUES.len() - 1)].to_owned())
        };
        let list = |u: &mut Unstructured<'a>| -> arbitrary::Result<Vec<String>> {
            (0..=u8::arbitrary(u)? % 3).map(|_| value(u)).collect()
        };
        let mut terms = Vec::new();
        for _ in 0..[1, 1, 1, 2, 2, 3, 0, 4][usize::from(u8::arbitrary(u)? % 8)] {
            let byte = u8::arbitrary(u)?;
            let key = KEYS[usize::from(byte >> 4) % KEYS.len()].to_owned();
            let rule = match byte % 16 {
                0..=2 => Rule::Equals(value(u)?),
                3 | 4 => Rule::NotEquals(value(u)?),
                5..=7 => Rule::OneOf(list(u)?),
                8..=10 => Rule::NoneOf(list(u)?),
                11 | 12 => Rule::Exists,
                13 => Rule::Absent,
                14 => Rule::Greater(i64::from(u8::arbitrary(u)? % 8)),
                _ => Rule::Less(i64::from(u8::arbitrary(u)? % 8)),
            };
            terms.push(Term { key, rule });
        }
        Ok(Self { terms })
    }
}

/// Splits the text at the commas that are not in parentheses. Returns `None` if the parentheses do not match or are nested.
fn pieces(text: &str) -> Option<Vec<&str>> {
    let (mut pieces, mut open, mut from) = (Vec::new(), false, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b')' if open == (byte == b'(') => return None,
            b'(' | b')' => open = !open,
            b',' if !open => {
                pieces.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[from..]);
    (!open).then_some(pieces)
}

/// Parses the text between two commas. The first operator or parenthesis in it decides the kind of the term.
fn term(piece: &str) -> Option<Term> {
    let piece = trim(piece);
    let (key, rule) = match piece.find(['=', '!', '<', '>', '(']) {
        None => (piece, Rule::Exists),
        Some(0) => (piece.strip_prefix('!')?, Rule::Absent),
        Some(at) => {
            let (head, tail) = piece.split_at(at);
            if let Some(list) = tail.strip_prefix('(') {
                let list = list.strip_suffix(')')?.split(',').map(value).collect::<Option<_>>()?;
                let words: Vec<_> =
                    head.split([' ', '\t', '\r', '\n']).filter(|word| !word.is_empty()).collect();
                match words[..] {
                    [key, "in"] => (key, Rule::OneOf(list)),
                    [key, "notin"] => (key, Rule::NoneOf(list)),
                    _ => return None,
                }
            } else if let Some(rest) = tail.strip_prefix("!=") {
                (head, Rule::NotEquals(value(rest)?))
            } else if let Some(rest) = tail.strip_prefix("==").or_else(|| tail.strip_prefix('=')) {
                (head, Rule::Equals(value(rest)?))
            } else if let Some(rest) = tail.strip_prefix('>') {
                (head, Rule::Greater(value(rest)?.parse().ok()?))
            } else if let Some(rest) = tail.strip_prefix('<') {
                (head, Rule::Less(value(rest)?.parse().ok()?))
            } else {
                return None;
            }
        }
    };
    let key = trim(key);
    let parts: Vec<_> = key.split('/').collect();
    let legal = match parts[..] {
        [name] => !name.is_empty() && is_word(name),
        [prefix, name] => !name.is_empty() && is_word(name) && is_domain(prefix),
        _ => false,
    };
    legal.then(|| Term { key: key.to_owned(), rule })
}

fn value(text: &str) -> Option<String> {
    let text = trim(text);
    is_word(text).then(|| text.to_owned())
}

/// Whether a string is a valid label value: empty, or at most 63 letters, digits, `-`, `_` and `.`, with a letter or a digit at both ends.
fn is_word(text: &str) -> bool {
    let inner = text.trim_matches(|c: char| c.is_ascii_alphanumeric());
    let ends = text.is_empty() || text.starts_with(inside) && text.ends_with(inside);
    ends && text.len() <= 63 && inner.chars().all(|c| inside(c) || matches!(c, '-' | '_' | '.'))
}

fn inside(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

fn is_domain(text: &str) -> bool {
    let lower = |c: char| c.is_ascii_alphanumeric() && !c.is_ascii_uppercase();
    text.len() <= 253
        && text.split('.').all(|part| {
            part.starts_with(lower) && part.ends_with(lower) && part.chars().all(|c| lower(c) || c == '-')
        })
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}
