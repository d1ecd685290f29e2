//! Finds the functions of a source file by name. A seeded fault names the function that contains the text to replace.

use std::ops::Range;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A function with a body.
#[derive(Debug)]
pub(super) struct Function {
    name: String,
    /// The type of the `impl` block, or the name of the trait, that contains the function.
    owner: Option<String>,
    /// The bytes of its lines, with the comments and attributes directly above it.
    pub(super) span: Range<usize>,
}

impl Function {
    /// Whether `name` is the name of the function: `get`, or `Queue::get`.
    pub(super) fn is_called(&self, name: &str) -> bool {
        match name.rsplit_once("::") {
            Some((owner, name)) => self.name == name && self.owner.as_deref() == Some(owner),
            None => self.name == name,
        }
    }
}

/// Returns the functions of a file, including those in the bodies of others and in macros.
pub(super) fn of(text: &str) -> Result<Vec<Function>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("not Rust: {error}"))?;
    let mut functions = Vec::new();
    collect(text, tokens, None, &mut functions);
    Ok(functions)
}

fn collect(text: &str, tokens: TokenStream, owner: Option<&str>, functions: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    // The owner of the functions in the next block in braces: the header of an `impl` or a trait is before it.
    let mut next_owner = None;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "impl" || word == "trait" => {
                let header = tokens[at + 1..].iter().take_while(|token| !ends_header(token));
                let header: Vec<&TokenTree> = header.collect();
                // `impl Trait` in the types of a function is followed by the body of the function.
                let starts_item = |token: &TokenTree| match token {
                    TokenTree::Ident(word) => word == "unsafe" || word == "pub",
                    TokenTree::Group(_) => true,
                    TokenTree::Punct(punct) => punct.as_char() == ';',
                    TokenTree::Literal(_) => false,
                };
                if at == 0 || starts_item(&tokens[at - 1]) {
                    next_owner = if word == "trait" { first_word(&header) } else { type_of(&header) };
                }
            }
            TokenTree::Ident(word) if word == "fn" => {
                let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else { continue };
                let end = tokens[at + 2..].iter().find(|token| ends_header(token));
                if let Some(TokenTree::Group(body)) = end {
                    let span = lines(text, word.span().byte_range().start..body.span().byte_range().end);
                    functions.push(Function {
                        name: name.to_string(),
                        owner: owner.map(str::to_owned),
                        span,
                    });
                }
            }
            TokenTree::Group(group) => {
                let of_item = if group.delimiter() == Delimiter::Brace { next_owner.take() } else { None };
                collect(text, group.stream(), of_item.as_deref().or(owner), functions);
            }
            _ => {}
        }
    }
}

/// Whether the token ends the header of a function, an `impl` block or a trait.
fn ends_header(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    }
}

fn first_word(header: &[&TokenTree]) -> Option<String> {
    header.iter().find_map(|token| match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        _ => None,
    })
}

/// The last segment of the path of the type in `impl<..> Type<..>` or `impl<..> Trait for Type<..>`.
fn type_of(header: &[&TokenTree]) -> Option<String> {
    let mut depth = 0_usize;
    let mut name = None;
    let mut before = ' ';
    for token in header {
        match token {
            TokenTree::Punct(punct) => {
                match punct.as_char() {
                    '<' => depth += 1,
                    '>' if before != '-' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                before = punct.as_char();
                continue;
            }
            TokenTree::Ident(word) if depth == 0 && word == "where" => break,
            TokenTree::Ident(word) if depth == 0 && word != "for" && word != "dyn" => {
                name = Some(word.to_string());
            }
            _ => {}
        }
        before = ' ';
    }
    name
}

/// Extends the range to whole lines, and to the lines of comments and attributes directly above.
fn lines(text: &str, range: Range<usize>) -> Range<usize> {
    let line_of = |at: usize| text[..at].rfind('\n').map_or(0, |at| at + 1);
    let mut start = line_of(range.start);
    while start > 0 {
        let above = line_of(start - 1);
        let line = text[above..start].trim();
        if !line.starts_with("//") && !line.starts_with("#[") {
            break;
        }
        start = above;
    }
    let end = text[range.end..].find('\n').map_or(text.len(), |at| range.end + at + 1);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"
use std::fmt;

/// Docs of `free`.
#[must_use]
pub(crate) fn free(of: impl Fn() -> u8) -> impl Fn() {
    fn inner() { "} fn not_this() {" }
    inner() // é
}

impl<K: Fn(u8) -> u8> fmt::Display for Queue<'_, K> where K: Ord {
    fn get(&self) {
        free();
    }
}

unsafe impl Lease {
    fn get(&self) {}
}

trait Take {
    fn take(&self);
    // Why.
    fn get(&self) {}
}

macro_rules! both {
    () => {
        fn made(f: fn(u8) -> u8) {}
    };
}
"#;

    fn found(name: &str) -> Vec<&'static str> {
        let functions = of(CODE).unwrap();
        functions
            .iter()
            .filter(|function| function.is_called(name))
            .map(|of| &CODE[of.span.clone()])
            .collect()
    }

    #[test]
    fn a_function_has_its_lines_and_what_is_above() {
        let [free] = found("free")[..] else { panic!("one function") };
        assert!(free.starts_with("/// Docs of `free`.\n#[must_use]\npub(crate) fn free"), "{free}");
        assert!(free.ends_with("    inner() // é\n}\n"), "{free}");
        assert_eq!(found("inner"), ["    fn inner() { \"} fn not_this() {\" }\n"]);
        assert_eq!(found("Take::get"), ["    // Why.\n    fn get(&self) {}\n"]);
        assert_eq!(found("made"), ["        fn made(f: fn(u8) -> u8) {}\n"]);
    }

    #[test]
    fn the_type_of_the_impl_block_distinguishes_functions() {
        assert_eq!(found("get").len(), 3);
        assert_eq!(found("Queue::get"), ["    fn get(&self) {\n        free();\n    }\n"]);
        assert_eq!(found("Lease::get"), ["    fn get(&self) {}\n"]);
        assert!(found("Queue::take").is_empty() && found("not_this").is_empty() && found("take").is_empty());
    }
}
