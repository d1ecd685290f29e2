//! PURE. Parses the text of a selector.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = "!" KEY | KEY [ ("=" | "==" | "!=") VALUE | ("in" | "notin") "(" values ")" | (">" | "<") NUMBER ]
//! values      = VALUE { "," VALUE }
//! ```
//! A value may be empty. White space (space, tab, line feed, carriage return) separates words and has no other meaning. The words `in` and `notin`
//! are operators only in the place of an operator; elsewhere they are ordinary keys or values.

use std::sync::Arc;

use super::{ParseSelectorError, SelectorOperator, SelectorRequirement, label, set};

const KEY: &str = "a key, such as `app` or `example.com/app`";
const OPERATOR: &str = "`=`, `==`, `!=`, `in`, `notin`, `<`, `>`, `,` or the end";
const VALUE: &str = "a value: at most 63 letters, digits, `-`, `_` or `.`";
const NUMBER: &str = "a whole number below 2^63";

pub(super) fn requirements(text: &str) -> Result<Vec<SelectorRequirement>, ParseSelectorError> {
    let mut parser = Parser { text, at: 0 };
    let mut requirements = Vec::new();
    if parser.next().text.is_empty() {
        return Ok(requirements);
    }
    loop {
        requirements.push(parser.requirement()?);
        let token = parser.next();
        match token.text {
            "" => return Ok(requirements),
            "," => parser.at = token.end(),
            _ => return Err(parser.expected(token, "`,` or the end")),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// A word or a symbol. At the end of the text, the token is empty.
#[derive(Clone, Copy)]
struct Token<'a> {
    at: usize,
    text: &'a str,
}

impl Token<'_> {
    fn end(self) -> usize {
        self.at + self.text.len()
    }

    fn is_word(self) -> bool {
        self.text.bytes().next().is_some_and(|byte| !is_symbol(byte))
    }
}

impl<'a> Parser<'a> {
    /// Returns the next token without consuming it. To consume the token, the caller sets `at` to the end of the token.
    fn next(&self) -> Token<'a> {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\r', '\n']);
        let len = match rest.as_bytes() {
            [b'=' | b'!', b'=', ..] => 2,
            [first, ..] if is_symbol(*first) => 1,
            bytes => bytes.iter().take_while(|byte| !is_symbol(**byte) && !is_space(**byte)).count(),
        };
        Token { at: self.text.len() - rest.len(), text: &rest[..len] }
    }

    fn take(&mut self, text: &str) -> bool {
        let token = self.next();
        let there = token.text == text;
        if there {
            self.at = token.end();
        }
        there
    }

    fn expected(&self, token: Token<'_>, expected: &'static str) -> ParseSelectorError {
        ParseSelectorError { text: self.text.into(), position: token.at, expected }
    }

    fn requirement(&mut self) -> Result<SelectorRequirement, ParseSelectorError> {
        let negated = self.take("!");
        let key = self.next();
        if !key.is_word() || !label::is_key(key.text) {
            return Err(self.expected(key, KEY));
        }
        self.at = key.end();
        let operator = if negated { SelectorOperator::DoesNotExist } else { self.operator()? };
        Ok(SelectorRequirement { key: key.text.into(), operator })
    }

    fn operator(&mut self) -> Result<SelectorOperator, ParseSelectorError> {
        let token = self.next();
        if let "" | "," = token.text {
            return Ok(SelectorOperator::Exists);
        }
        self.at = token.end();
        Ok(match token.text {
            "=" | "==" => SelectorOperator::In(set([self.value()?])),
            "!=" => SelectorOperator::NotIn(set([self.value()?])),
            "in" => SelectorOperator::In(self.values()?),
            "notin" => SelectorOperator::NotIn(self.values()?),
            ">" => SelectorOperator::GreaterThan(self.number()?),
            "<" => SelectorOperator::LessThan(self.number()?),
            _ => return Err(self.expected(token, OPERATOR)),
        })
    }

    fn value(&mut self) -> Result<&'a str, ParseSelectorError> {
        let token = self.next();
        match token.text {
            // A missing value is the empty value.
            "" | "," | ")" => Ok(""),
            text if token.is_word() && label::is_value(text) => {
                self.at = token.end();
                Ok(text)
            }
            _ => Err(self.expected(token, VALUE)),
        }
    }

    fn number(&mut self) -> Result<i64, ParseSelectorError> {
        let token = self.next();
        let number = self.value().ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| self.expected(token, NUMBER))
    }

    fn values(&mut self) -> Result<Box<[Arc<str>]>, ParseSelectorError> {
        if !self.take("(") {
            return Err(self.expected(self.next(), "`(`"));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            let token = self.next();
            self.at = token.end();
            match token.text {
                "," => {}
                ")" => return Ok(set(values)),
                _ => return Err(self.expected(token, "`,` or `)`")),
            }
        }
    }
}

fn is_symbol(byte: u8) -> bool {
    b"=!(),<>".contains(&byte)
}

fn is_space(byte: u8) -> bool {
    b" \t\r\n".contains(&byte)
}
