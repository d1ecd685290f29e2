//! A source file as the rules see it: code without comments and literals, comments without code, tests marked.

/// One line, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Code, with the contents of literals left out.
    pub(super) code: String,
    /// The text of comments, with their slashes.
    pub(super) comment: String,
    /// In a `#[cfg(test)]` module or a test's file.
    pub(super) test: bool,
}

/// A file of the tree.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) lines: Vec<Line>,
}

impl Source {
    pub(super) fn read(path: &str, text: &str) -> Self {
        let mut lines = separate(text);
        mark_tests(&mut lines);
        // Behind `#[cfg(test)] mod tests;` in the file above.
        if path.ends_with("/tests.rs") || path.contains("/tests/") {
            lines.iter_mut().for_each(|line| line.test = true);
        }
        Self { path: path.to_owned(), lines }
    }

    /// The module documentation.
    pub(super) fn docs(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| line.comment.trim_start().strip_prefix("//!"))
    }

    /// Nothing of this file ships.
    pub(super) fn is_test(&self) -> bool {
        self.lines.iter().all(|line| line.test)
    }

    /// Shipped lines and their numbers.
    pub(super) fn shipped(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.test)
    }

    /// A complaint that names the line.
    pub(super) fn at(&self, number: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{number}: {what}", self.path)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    Line,
    Block(usize),
    Text,
    Raw(usize),
}

/// Splits every line into code and comments.
fn separate(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        let (here, next) = (chars[at], chars.get(at + 1).copied());
        if here == '\n' {
            if state == State::Line {
                state = State::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let line = lines.last_mut().expect("there is always a line");
        match state {
            State::Code => match (here, next) {
                ('/', Some('/')) => {
                    state = State::Line;
                    continue;
                }
                ('/', Some('*')) => {
                    state = State::Block(1);
                    at += 1;
                }
                ('"', _) => {
                    line.code.push('"');
                    state = State::Text;
                }
                ('r', Some('"' | '#')) if !ends_in_word(&line.code) => match raw_start(&chars[at + 1..]) {
                    Some(hashes) => {
                        line.code.push('"');
                        state = State::Raw(hashes);
                        at += hashes + 1;
                    }
                    None => line.code.push(here),
                },
                ('\'', Some(_)) => match char_literal(&chars[at..]) {
                    Some(length) => {
                        line.code.push_str("' '");
                        at += length - 1;
                    }
                    None => line.code.push(here),
                },
                _ => line.code.push(here),
            },
            State::Line => line.comment.push(here),
            State::Block(depth) => match (here, next) {
                ('*', Some('/')) => {
                    state = if depth == 1 { State::Code } else { State::Block(depth - 1) };
                    at += 1;
                }
                ('/', Some('*')) => {
                    state = State::Block(depth + 1);
                    at += 1;
                }
                _ => line.comment.push(here),
            },
            State::Text => match here {
                // An escaped newline still ends the line.
                '\\' if next != Some('\n') => at += 1,
                '"' => {
                    line.code.push('"');
                    state = State::Code;
                }
                _ => {}
            },
            State::Raw(hashes) => {
                if here == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
                {
                    line.code.push('"');
                    state = State::Code;
                    at += hashes;
                }
            }
        }
        at += 1;
    }
    lines
}

fn ends_in_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The hashes of a raw string whose `r` was just read.
fn raw_start(rest: &[char]) -> Option<usize> {
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    (rest.get(hashes) == Some(&'"')).then_some(hashes)
}

/// The length of a character literal; a lifetime is none.
fn char_literal(rest: &[char]) -> Option<usize> {
    match rest {
        ['\'', '\\', ..] => rest.iter().skip(2).skip(1).position(|c| *c == '\'').map(|end| end + 4),
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

/// Marks the lines of `#[cfg(test)]` items.
fn mark_tests(lines: &mut [Line]) {
    let mut at = 0;
    while at < lines.len() {
        let code = lines[at].code.trim();
        if !(code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test")) {
            at += 1;
            continue;
        }
        let mut depth = 0_usize;
        let mut opened = false;
        while at < lines.len() {
            lines[at].test = true;
            for c in lines[at].code.clone().chars() {
                match c {
                    '{' => (depth, opened) = (depth + 1, true),
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            // `mod tests;` ends where it stands.
            let ended = if opened { depth == 0 } else { lines[at].code.trim_end().ends_with(';') };
            at += 1;
            if ended {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        Source::read("a.rs", text).lines.into_iter().map(|line| line.code.trim().to_owned()).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        assert_eq!(code("a(); // Mutex"), ["a();"]);
        assert_eq!(code("a(/* x /* y */ Mutex */);"), ["a();"]);
        assert_eq!(code(r#"a("Mutex \" // no", b);"#), [r#"a("", b);"#]);
        assert_eq!(code("a(r#\"Mutex \" \"#, 'x', '\\'', '\\u{1F600}');"), ["a(\"\", ' ', ' ', ' ');"]);
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), ["fn f<'a>(x: &'a str) {}"]);
    }

    #[test]
    fn comments_are_kept_beside() {
        let source = Source::read("a.rs", "//! PURE. Things.\nlet a = 1; // why\n");
        assert_eq!(source.docs().collect::<Vec<_>>(), [" PURE. Things."]);
        assert_eq!(source.lines[1].comment, "// why");
    }

    #[test]
    fn test_modules_are_marked() {
        let source =
            Source::read("a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n");
        let test: Vec<bool> = source.lines.iter().map(|line| line.test).collect();
        assert_eq!(test, [false, true, true, true, true, false, false]);
        let source = Source::read("a.rs", "#[cfg(test)]\nmod tests;\nfn c() {}");
        let test: Vec<bool> = source.lines.iter().map(|line| line.test).collect();
        assert_eq!(test, [true, true, false]);
        assert!(Source::read("a/src/b/tests.rs", "fn a() {}").lines[0].test);
    }
}
