//! Reads `loom-tests/faults.toml`, which contains one seeded fault per model. A seeded fault replaces text in shipped code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::workspace::Workspace;

pub(crate) const FILE: &str = "loom-tests/faults.toml";

/// The seeded fault of one model.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// The model's name.
    pub(crate) name: String,
    edits: Vec<Edit>,
}

/// A replacement of text in one file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The path of the file, relative to the root of the workspace.
    file: PathBuf,
    /// The text to replace, which must occur exactly once in the file.
    find: String,
    replace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    fault: Vec<Fault>,
}

/// Returns all faults, in the order in which the file lists them.
pub(crate) fn read(workspace: &Workspace) -> Result<Vec<Fault>> {
    parse(&workspace.read(FILE)?).context(FILE)
}

/// Parses a text that has the format of `loom-tests/faults.toml`.
pub(crate) fn parse(text: &str) -> Result<Vec<Fault>> {
    Ok(toml::from_str::<Document>(text)?.fault)
}

impl Fault {
    #[cfg(test)]
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), edits: Vec::new() }
    }

    /// The files that the fault changes.
    pub(crate) fn files(&self) -> BTreeSet<&Path> {
        self.edits.iter().map(|edit| edit.file.as_path()).collect()
    }

    /// The published packages that the fault changes. Returns an error if it changes a file that belongs to no published package.
    pub(crate) fn packages(&self, workspace: &Workspace) -> Result<BTreeSet<String>, String> {
        let package = |file: &Path| {
            let shipped = |folder: &Path| file.starts_with(folder.join("src"));
            let package = workspace.published().find(|package| shipped(package.folder(workspace)));
            package
                .map(|package| package.name.clone())
                .ok_or_else(|| format!("{} is not shipped code", file.display()))
        };
        self.files().into_iter().map(package).collect()
    }

    /// Returns the changed files with their new texts. Returns an error if a text to replace does not occur exactly once in its file.
    ///
    /// The text of every edit is looked up in the original file, so the order of the edits does not matter.
    pub(crate) fn apply(&self, read: impl Fn(&Path) -> Option<String>) -> Result<Edited, String> {
        let mut edited = Edited::new();
        for file in self.files() {
            let text = read(file).ok_or_else(|| format!("{} cannot be read", file.display()))?;
            let edits: Vec<&Edit> = self.edits.iter().filter(|edit| edit.file == file).collect();
            edited.insert(file.to_owned(), replaced(&text, &edits)?);
        }
        if edited.is_empty() {
            return Err("has no edits".to_owned());
        }
        Ok(edited)
    }
}

/// The changed files, with their new texts.
pub(crate) type Edited = BTreeMap<PathBuf, String>;

fn replaced(text: &str, edits: &[&Edit]) -> Result<String, String> {
    let mut spans =
        edits.iter().map(|edit| Ok((edit.at(text)?, *edit))).collect::<Result<Vec<_>, String>>()?;
    spans.sort_by_key(|(at, _)| *at);
    let mut result = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, edit) in spans {
        if at < rest {
            return Err(format!("two edits of {} overlap at {:?}", edit.file.display(), edit.shown()));
        }
        result.push_str(&text[rest..at]);
        result.push_str(&edit.replace);
        rest = at + edit.find.len();
    }
    result.push_str(&text[rest..]);
    Ok(result)
}

impl Edit {
    /// The position of the text to replace. Returns an error if the text does not occur exactly once.
    fn at(&self, text: &str) -> Result<usize, String> {
        let Self { file, find, replace } = self;
        let shown = || format!("{:?} in {}", self.shown(), file.display());
        if find == replace {
            return Err(format!("replaces {} by itself", shown()));
        }
        // Two occurrences of the text may overlap. In this case, `str::matches` would find only the first of them.
        let mut starts =
            (0..text.len()).filter(|at| text.is_char_boundary(*at) && text[*at..].starts_with(&**find));
        match (starts.next(), starts.next()) {
            (Some(at), None) => Ok(at),
            (None, _) => Err(format!("{} is not found", shown())),
            _ => Err(format!("{} is found more than once", shown())),
        }
    }

    /// The first non-empty line of the text to replace.
    fn shown(&self) -> &str {
        self.find.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "
[[fault]]
name = 'q::a'
[[fault.edits]]
file = 'q/src/lib.rs'
find = '''
    notify();
'''
replace = ''

[[fault]]
name = 'q::b'
edits = [
    { file = 'q/src/lib.rs', find = 'lock();', replace = 'peek();' },
    { file = 'q/src/lib.rs', find = 'fn f', replace = 'fn g' },
]
";
    const CODE: &str = "fn f() {\n    lock();\n    notify();\n}\n";

    fn apply(fault: &Fault) -> Result<String, String> {
        let mut edited = fault.apply(|_| Some(CODE.to_owned()))?;
        Ok(edited.remove(Path::new("q/src/lib.rs")).expect("it is the file that is edited"))
    }

    #[test]
    fn edits_replace_what_they_find() {
        let faults = parse(ROWS).unwrap();
        assert_eq!(faults[0].name, "q::a");
        assert_eq!(apply(&faults[0]).unwrap(), "fn f() {\n    lock();\n}\n");
        assert_eq!(apply(&faults[1]).unwrap(), "fn g() {\n    peek();\n    notify();\n}\n");
    }

    #[test]
    fn text_that_is_not_found_exactly_once_is_an_error() {
        let fault = |find: &str| {
            let edit = Edit { file: "q/src/lib.rs".into(), find: find.to_owned(), replace: "x".to_owned() };
            Fault { name: "q::a".to_owned(), edits: vec![edit] }
        };
        let error = |find: &str| apply(&fault(find)).unwrap_err();
        assert_eq!(error("\nwait();\n"), "\"wait();\" in q/src/lib.rs is not found");
        assert_eq!(error("();\n"), "\"();\" in q/src/lib.rs is found more than once");
        assert_eq!(error("x"), "replaces \"x\" in q/src/lib.rs by itself");
        assert_eq!(error(""), "\"\" in q/src/lib.rs is found more than once");
    }

    #[test]
    fn edits_do_not_overlap() {
        let rows = ROWS.replace("'fn f'", "'lock()'");
        let why = apply(&parse(&rows).unwrap()[1]).unwrap_err();
        assert_eq!(why, "two edits of q/src/lib.rs overlap at \"lock()\"");
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(parse(&ROWS.replace("replace = ''", "replace = ''\nmany = true")).is_err());
        assert!(parse(&ROWS.replace("name = 'q::b'\n", "")).is_err());
    }
}
