//! PURE. The label selector of a request, as the real server parses it.

use std::str::FromStr;

/// A list of requirements, all of which must match.
#[derive(Debug, Clone)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// Returns whether the selector has no requirement.
    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an object matches; `label` returns the value of the object's label with a given key.
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.operator.matches(label(&requirement.key)))
    }
}

impl Operator {
    fn matches(&self, value: Option<&str>) -> bool {
        let among = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        let number = || value?.parse::<i64>().ok();
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

impl FromStr for LabelSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens::read(text);
        let mut requirements = Vec::new();
        if tokens.peek().is_empty() {
            return Ok(Self(requirements));
        }
        loop {
            requirements.push(tokens.requirement()?);
            match tokens.next() {
                "" => return Ok(Self(requirements)),
                "," => {}
                found => return Err(expected(found, "',' or 'end of string'")),
            }
        }
    }
}

/// The words and symbols of a selector; an empty token marks the end.
struct Tokens<'a>(std::vec::IntoIter<&'a str>);

impl<'a> Tokens<'a> {
    fn read(mut text: &'a str) -> Self {
        let mut tokens = Vec::new();
        loop {
            text = text.trim_start_matches([' ', '\t', '\r', '\n']);
            let length = match text.as_bytes() {
                [] => return Self(tokens.into_iter()),
                [b'=' | b'!', b'=', ..] => 2,
                [first, ..] if is_symbol(*first) => 1,
                bytes => {
                    bytes.iter().take_while(|byte| !is_symbol(**byte) && !b" \t\r\n".contains(byte)).count()
                }
            };
            let (token, rest) = text.split_at(length);
            tokens.push(token);
            text = rest;
        }
    }

    fn peek(&self) -> &'a str {
        self.0.as_slice().first().copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        self.0.next().unwrap_or_default()
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == "!";
        if negated {
            self.next();
        }
        let key = self.next();
        if !is_key(key) {
            return Err(expected(key, "a label key"));
        }
        let operator = if negated { Operator::DoesNotExist } else { self.operator()? };
        Ok(Requirement { key: key.to_owned(), operator })
    }

    fn operator(&mut self) -> Result<Operator, String> {
        if let "" | "," = self.peek() {
            return Ok(Operator::Exists);
        }
        Ok(match self.next() {
            "=" | "==" => Operator::In(vec![self.value()?]),
            "!=" => Operator::NotIn(vec![self.value()?]),
            "in" => Operator::In(self.values()?),
            "notin" => Operator::NotIn(self.values()?),
            ">" => Operator::GreaterThan(self.number()?),
            "<" => Operator::LessThan(self.number()?),
            found => return Err(expected(found, "in, notin, =, ==, !=, <, >")),
        })
    }

    /// Reads a label value; a missing value is the empty string.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            "" | "," | ")" => Ok(String::new()),
            word if is_name(word) => Ok(self.next().to_owned()),
            found => Err(expected(found, "a label value")),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        self.value()?.parse().map_err(|_| "for 'Gt', 'Lt' operators, the value must be an integer".to_owned())
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let mut found = self.next();
        if found != "(" {
            return Err(expected(found, "'('"));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            found = self.next();
            match found {
                "," => {}
                ")" => return Ok(values),
                _ => return Err(expected(found, "',' or ')'")),
            }
        }
    }
}

fn expected(found: &str, expected: &str) -> String {
    format!("found '{found}', expected: {expected}")
}

fn is_symbol(byte: u8) -> bool {
    b"=!(),<>".contains(&byte)
}

/// Returns whether the text is `name` or `prefix/name`, where the prefix is a DNS subdomain.
fn is_key(text: &str) -> bool {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| framed(part, lower) && part.bytes().all(|byte| lower(byte) || byte == b'-');
    match text.split_once('/') {
        Some((prefix, name)) => prefix.len() <= 253 && prefix.split('.').all(part) && is_name(name),
        None => is_name(text),
    }
}

fn is_name(text: &str) -> bool {
    text.len() <= 63 && is_spelled_as_name(text)
}

/// Returns whether the text is the name part of a key or a value that is not empty, whatever its length is.
pub(crate) fn is_spelled_as_name(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_alphanumeric();
    framed(text, alphanumeric) && text.bytes().all(|byte| alphanumeric(byte) || b"-_.".contains(&byte))
}

/// Returns whether the text is not empty, and `kind` accepts its first and its last byte.
fn framed(text: &str, kind: impl Fn(u8) -> bool) -> bool {
    let ends = text.bytes().next().zip(text.bytes().next_back());
    ends.is_some_and(|(first, last)| kind(first) && kind(last))
}
