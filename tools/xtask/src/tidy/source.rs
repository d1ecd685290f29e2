//! A source file, prepared for the rules. Each line is split into its code, without the contents of literals, its comments, and its string literals.
//! Lines of test code are marked.

use std::ops::Range;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem};

/// One line.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The code of the line, in which the contents of literals are removed.
    pub(super) code: String,
    /// The text of the comments in the line, including their slashes.
    pub(super) comment: String,
    /// The contents of the string literals in the line.
    pub(super) literals: Vec<String>,
    /// Whether the line is in an item with `#[cfg(test)]` or in a test file.
    pub(super) test: bool,
}

impl Line {
    /// Returns whether the line has neither code nor a comment.
    pub(super) fn is_blank(&self) -> bool {
        self.code.trim().is_empty() && self.comment.trim().is_empty()
    }
}

/// A file of the tree.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) lines: Vec<Line>,
    /// The paths of at least two segments, such as `std::fmt`, that occur in the code, with their line numbers. A path that is imported in a group,
    /// as in `use std::{fmt, io}`, is listed in full.
    paths: Vec<(usize, String)>,
}

impl Source {
    /// # Errors
    /// Returns an error if the text is not a valid Rust file.
    pub(super) fn read(path: &str, text: &str) -> syn::Result<Self> {
        let tokens: TokenStream = syn::parse_str(text)?;
        let mut split = Split { text, at: 0, lines: vec![Line::default()] };
        split.tokens(tokens.clone());
        split.gap(text.len());
        let mut lines = split.lines;
        let mut paths = Vec::new();
        collect_paths(tokens.clone(), "", &mut paths);
        Tests(&mut lines).visit_file(&syn::parse2(tokens)?);
        // A file with such a path is test code: its parent module declares it as `#[cfg(test)] mod tests;`.
        if path.ends_with("/tests.rs") || path.contains("/tests/") {
            lines.iter_mut().for_each(|line| line.test = true);
        }
        Ok(Self { path: path.to_owned(), lines, paths })
    }

    /// The module documentation.
    pub(super) fn docs(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| line.comment.trim_start().strip_prefix("//!"))
    }

    /// Returns whether all lines are test code.
    pub(super) fn is_test(&self) -> bool {
        self.lines.iter().all(|line| line.test)
    }

    /// The lines that are not test code, with their line numbers.
    pub(super) fn shipped(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.test)
    }

    /// The paths, such as `std::fmt`, in lines that are not test code, with their line numbers.
    pub(super) fn shipped_paths(&self) -> impl Iterator<Item = (usize, &str)> {
        let shipped = self.paths.iter().filter(|(number, _)| !self.lines[number - 1].test);
        shipped.map(|(number, path)| (*number, path.as_str()))
    }

    /// Formats a complaint with the path of the file and the line number.
    pub(super) fn at(&self, number: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{number}: {what}", self.path)
    }
}

/// Splits a source file into lines: the tokens of a line are its code, and the text between the tokens is its comments.
struct Split<'a> {
    text: &'a str,
    at: usize,
    lines: Vec<Line>,
}

impl Split<'_> {
    fn tokens(&mut self, tokens: TokenStream) {
        for tree in tokens {
            let Range { start, end } = tree.span().byte_range();
            let text = &self.text[start..end];
            // Rust parses a doc comment as an attribute. The tokens of this attribute have the span of the comment, so they are recognised and
            // treated as a comment.
            if text.starts_with("//") || text.starts_with("/*") {
                continue;
            }
            match tree {
                TokenTree::Group(group) => {
                    self.token(start, &text[..1]);
                    self.tokens(group.stream());
                    self.token(end - 1, &text[text.len() - 1..]);
                }
                TokenTree::Literal(_) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
                    let breaks: String = text.chars().filter(|c| *c == '\n').collect();
                    self.token(start, &format!("\"{breaks}\""));
                    let first = self.lines.len() - text.split('\n').count();
                    for (line, piece) in self.lines[first..].iter_mut().zip(text.split('\n')) {
                        line.literals.push(
                            piece
                                .trim_start_matches(['r', 'b', 'c', '#'])
                                .trim_matches(['"', '#'])
                                .to_owned(),
                        );
                    }
                }
                _ => self.token(start, text),
            }
            self.at = end;
        }
    }

    fn token(&mut self, start: usize, shown: &str) {
        self.gap(start);
        self.put(shown, |line| &mut line.code);
        self.at = start + 1;
    }

    fn gap(&mut self, end: usize) {
        let gap = &self.text[self.at..end];
        let blank = gap.trim().is_empty();
        self.put(gap, |line| if blank { &mut line.code } else { &mut line.comment });
    }

    fn put(&mut self, text: &str, part: impl Fn(&mut Line) -> &mut String) {
        for (at, piece) in text.split('\n').enumerate() {
            if at > 0 {
                self.lines.push(Line::default());
            }
            part(self.lines.last_mut().expect("there is always a line")).push_str(piece);
        }
    }
}

/// Collects paths, each with the line number of its last segment. The function works on tokens, because syn does not parse the arguments of macro
/// calls.
fn collect_paths(tokens: TokenStream, prefix: &str, paths: &mut Vec<(usize, String)>) {
    let mut path = prefix.to_owned();
    for tree in tokens {
        let open = path.ends_with("::");
        match tree {
            TokenTree::Ident(name) if open => {
                path.push_str(&name.to_string());
                // The path continues. If the part before this segment was recorded as a complete path, that record is removed.
                paths.pop_if(|(_, begun)| {
                    path.strip_prefix(&**begun).is_some_and(|rest| rest == format!("::{name}"))
                });
                paths.push((name.span().start().line, path.clone()));
            }
            // A keyword is a segment of a path only if it can begin a path. In `use ::std` and `&mut ::std`, for example, the path is `::std`.
            TokenTree::Ident(name) => {
                let name = name.to_string();
                let begins = matches!(&*name, "crate" | "self" | "super" | "Self");
                path =
                    if begins || syn::parse_str::<syn::Ident>(&name).is_ok() { name } else { String::new() };
            }
            TokenTree::Group(group) => {
                let prefix = if open && group.delimiter() == Delimiter::Brace { &path } else { "" };
                collect_paths(group.stream(), prefix, paths);
                path.clear();
            }
            TokenTree::Punct(punct) => match punct.as_char() {
                // This is the third colon in a row, as in `x: ::std::fmt`: the first colon precedes a type, and the type begins with `::`.
                ':' if open => path = "::".to_owned(),
                ':' => path.push(':'),
                ',' => path = prefix.to_owned(),
                _ => path.clear(),
            },
            TokenTree::Literal(_) => path.clear(),
        }
    }
}

/// Marks the lines of `#[cfg(test)]` items as test lines.
struct Tests<'a>(&'a mut [Line]);

impl Tests<'_> {
    fn mark(&mut self, item: &(impl ToTokens + Spanned)) {
        let attributes = |input: ParseStream<'_>| {
            let attributes = input.call(Attribute::parse_outer)?;
            input.parse::<TokenStream>().map(|_| attributes)
        };
        let attributes = attributes.parse2(item.to_token_stream()).expect("an item that was parsed before");
        let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        if conditions.filter_map(|cfg| cfg.parse_args().ok()).any(|condition| needs_test(&condition)) {
            let span = item.span();
            self.0[span.start().line - 1..span.end().line].iter_mut().for_each(|line| line.test = true);
        }
    }
}

impl Visit<'_> for Tests<'_> {
    fn visit_item(&mut self, item: &Item) {
        self.mark(item);
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &ImplItem) {
        self.mark(item);
        visit::visit_impl_item(self, item);
    }

    fn visit_trait_item(&mut self, item: &TraitItem) {
        self.mark(item);
        visit::visit_trait_item(self, item);
    }
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::List(list) if list.path.is_ident("all") => {
            let all = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            all.is_ok_and(|all| all.iter().any(needs_test))
        }
        other => other.path().is_ident("test") && matches!(other, Meta::Path(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        Source::read("a.rs", text).unwrap()
    }

    fn code(body: &str) -> String {
        read(&format!("fn f() {{\n{body}\n}}")).lines[1].code.trim().to_owned()
    }

    fn shipped(text: &str) -> Vec<bool> {
        read(text).lines.iter().map(|line| !line.test).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        assert_eq!(code("a(); // Mutex"), "a();");
        assert_eq!(code("a(/* x /* y */ Mutex */);"), "a();");
        assert_eq!(code(r#"a("Mutex \" // no", b);"#), r#"a("", b);"#);
        assert_eq!(code("a(r#\"Mutex \" \"#, 'x', '\\'', 17);"), r#"a("", "", "", 17);"#);
        assert_eq!(code("/// Mutex\nb / c;"), "");
        assert_eq!(code("let a: &'a str = b / c;"), "let a: &'a str = b / c;");
    }

    #[test]
    fn a_literal_of_several_lines_keeps_their_numbers() {
        let source = read("const A: &str = \"Mutex\n\n\"; // why\nuse a::B;\n");
        assert_eq!(source.lines[2].comment.trim(), "// why");
        assert_eq!(source.lines[3].code, "use a::B;");
        assert_eq!(source.shipped_paths().collect::<Vec<_>>(), [(4, "a::B")]);
    }

    #[test]
    fn literals_are_kept_beside_with_their_lines() {
        let source = read("const A: (&str, u8, &str) = (\"one\ntwo\", 3, r#\"four\"#);\n");
        assert_eq!(source.lines[0].literals, ["one"]);
        assert_eq!(source.lines[1].literals, ["two", "four"]);
    }

    #[test]
    fn comments_are_kept_beside() {
        let source = read("//! PURE. Things.\nconst A: u8 = 1; // why\n/** Mutex\n*/\nfn b() {}\n");
        assert_eq!(source.docs().collect::<Vec<_>>(), [" PURE. Things."]);
        let comments: Vec<&str> = source.lines.iter().map(|line| line.comment.trim()).collect();
        assert_eq!(comments, ["//! PURE. Things.", "// why", "/** Mutex", "*/", "", ""]);
    }

    #[test]
    fn imports_have_full_paths() {
        let paths = |text: &str| read(text).paths.into_iter().map(|(_, path)| path).collect::<Vec<_>>();
        assert_eq!(paths("use a::{b::{C, D as E}, f::*,};"), ["a::b::C", "a::b::D", "a::f"]);
        assert_eq!(paths("use ::a::B; use crate::C; fn f(_: &mut ::d::E) -> impl ::f::G {}").len(), 4);
        assert_eq!(paths("use ::a::B; fn f(_: &mut ::d::E) {}"), ["::a::B", "::d::E"]);
        assert_eq!(paths("fn f(a: ::b::C, d: &mut e::F<g::H>) {}"), ["::b::C", "e::F", "g::H"]);
        assert_eq!(paths("m! { static A: B<c::D> = { e::f() }; }"), ["c::D", "e::f"]);
    }

    #[test]
    fn test_items_are_marked() {
        let module = "fn a() {}\n/// Docs.\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}";
        assert_eq!(shipped(module), [true, false, false, false, false, false, true]);
        assert_eq!(shipped("#[cfg(test)]\nmod tests;\nfn c() {}"), [false, false, true]);
        let method = "impl A {\n    fn b() {}\n    #[cfg(all(unix, test))]\n    fn c() {}\n}";
        assert_eq!(shipped(method), [true, true, false, false, true]);
        assert_eq!(shipped("#[cfg(not(test))]\nfn a() {}"), [true, true]);
        assert!(Source::read("a/src/b/tests.rs", "fn a() {}").unwrap().is_test());
    }

    #[test]
    fn what_is_no_rust_is_an_error() {
        assert_eq!(Source::read("a.rs", "fn a() {}\nfn (").unwrap_err().span().start().line, 2);
    }
}
