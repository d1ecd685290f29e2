//! Reads the folder `loom-tests/faults`, which contains one seeded fault per model. A seeded fault replaces text in shipped code.
//!
//! The folder has one file per source file: `workqueue/queue/add.toml` contains the faults whose first edit is in `workqueue/src/queue/add.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::workspace::Workspace;

mod functions;

use functions::Function;

pub(crate) const FOLDER: &str = "loom-tests/faults";

/// The seeded fault of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The model's name.
    pub(crate) name: String,
    /// The file that lists the fault.
    pub(crate) listed_in: PathBuf,
    edits: Vec<Edit>,
}

/// A replacement of text in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    /// The path of the file, relative to the root of the workspace.
    file: PathBuf,
    /// The function that contains the text: `get`, or `Queue::get` if several functions of the file have this name. `None` for text outside of
    /// functions.
    function: Option<String>,
    /// The text to replace, which must occur exactly once in the function or, without a function, in the file.
    find: String,
    replace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    fault: Vec<FaultEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultEntry {
    name: String,
    edits: Vec<EditEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditEntry {
    /// The source file, if it is another one than that of the first edit.
    file: Option<PathBuf>,
    function: Option<String>,
    find: String,
    replace: String,
}

/// Returns all faults, in the order of their files.
pub(crate) fn read(workspace: &Workspace) -> Result<Vec<Fault>> {
    let files = workspace.files()?;
    let listed = files.iter().filter(|file| file.starts_with(FOLDER));
    let faults = listed.map(|file| parse(file, &workspace.read(file)?)).collect::<Result<Vec<_>>>()?;
    Ok(faults.concat())
}

/// Parses the file `listed_in` of the folder.
pub(crate) fn parse(listed_in: &Path, text: &str) -> Result<Vec<Fault>> {
    let source =
        source_of(listed_in).with_context(|| format!("{} names no source file", listed_in.display()))?;
    let read = |entry: FaultEntry| {
        let first = entry.edits.first().with_context(|| format!("{} has no edits", entry.name))?;
        ensure!(
            first.file.is_none(),
            "{}: the first edit is in {}, so the fault belongs into the file for it",
            entry.name,
            source.display()
        );
        let edits = entry.edits.into_iter().map(|edit| Edit {
            file: edit.file.unwrap_or_else(|| source.clone()),
            function: edit.function,
            find: edit.find,
            replace: edit.replace,
        });
        Ok(Fault { edits: edits.collect(), name: entry.name, listed_in: listed_in.to_owned() })
    };
    let faults = toml::from_str::<Document>(text).map_err(anyhow::Error::from);
    let faults = faults.and_then(|document| document.fault.into_iter().map(read).collect::<Result<Vec<_>>>());
    faults.with_context(|| listed_in.display().to_string())
}

/// The source file for a file of the folder: `workqueue/src/queue/add.rs` for `workqueue/queue/add.toml`.
fn source_of(listed_in: &Path) -> Option<PathBuf> {
    let path = listed_in.strip_prefix(FOLDER).ok()?;
    let mut components = path.components();
    let package = components.next()?;
    let source = Path::new(package.as_os_str()).join("src").join(components.as_path());
    (path.extension()? == "toml" && components.next().is_some()).then(|| source.with_extension("rs"))
}

impl Fault {
    #[cfg(test)]
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), listed_in: PathBuf::new(), edits: Vec::new() }
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

    /// Returns the changed files with their new texts. Returns an error if a text to replace does not occur exactly once in its function.
    ///
    /// The text of every edit is looked up in the original file, so the order of the edits does not matter.
    pub(crate) fn apply(&self, read: impl Fn(&Path) -> Option<String>) -> Result<Edited, String> {
        let mut edited = Edited::new();
        for file in self.files() {
            let text = read(file).ok_or_else(|| format!("{} cannot be read", file.display()))?;
            let edits: Vec<&Edit> = self.edits.iter().filter(|edit| edit.file == file).collect();
            edited.insert(file.to_owned(), replaced(&text, &edits)?);
        }
        Ok(edited)
    }
}

/// The changed files, with their new texts.
pub(crate) type Edited = BTreeMap<PathBuf, String>;

fn replaced<'e>(text: &str, edits: &[&'e Edit]) -> Result<String, String> {
    let functions = functions::of(text).map_err(|why| format!("{}: {why}", edits[0].file.display()))?;
    let found = |edit: &&'e Edit| Ok((edit.at(text, &functions)?, *edit));
    let mut spans = edits.iter().map(found).collect::<Result<Vec<_>, String>>()?;
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
    /// The position of the text to replace. Returns an error if the text does not occur exactly once in the functions of the given name.
    fn at(&self, text: &str, functions: &[Function]) -> Result<usize, String> {
        let Self { file, function, find, replace } = self;
        let place = match function {
            Some(function) => format!("`{function}` of {}", file.display()),
            None => file.display().to_string(),
        };
        if find == replace {
            return Err(format!("replaces {:?} in {place} by itself", self.shown()));
        }
        let spans: Vec<_> = match function {
            Some(name) => {
                functions.iter().filter(|of| of.is_called(name)).map(|of| of.span.clone()).collect()
            }
            None => std::iter::once(0..text.len()).collect(),
        };
        if spans.is_empty() {
            return Err(format!("there is no {place}"));
        }
        // Two occurrences of the text may overlap. In this case, `str::matches` would find only the first of them.
        let starts = spans.into_iter().flat_map(|span| {
            let end = span.end;
            span.filter(move |at| text.is_char_boundary(*at) && text[*at..end].starts_with(&**find))
        });
        // A function may contain another one of the same name.
        let starts: BTreeSet<usize> = starts.collect();
        match starts.len() {
            1 => Ok(starts.into_iter().sum()),
            0 => Err(format!("{:?} in {place} is not found", self.shown())),
            _ => Err(format!("{:?} in {place} is found more than once", self.shown())),
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
function = 'f'
find = '''
    notify();
'''
replace = ''

[[fault]]
name = 'q::b'
edits = [
    { function = 'Q::g', find = 'lock();', replace = 'peek();' },
    { find = 'fn f', replace = 'fn h' },
]
";
    const CODE: &str =
        "fn f() {\n    lock();\n    notify();\n}\nimpl Q {\n    fn g() {\n        lock();\n    }\n}\n";

    fn parse(text: &str) -> Result<Vec<Fault>> {
        super::parse(Path::new("loom-tests/faults/q/a/b.toml"), text)
    }

    fn apply(fault: &Fault) -> Result<String, String> {
        let mut edited = fault.apply(|_| Some(CODE.to_owned()))?;
        Ok(edited.remove(Path::new("q/src/a/b.rs")).expect("it is the file that is edited"))
    }

    #[test]
    fn edits_replace_what_they_find() {
        let faults = parse(ROWS).unwrap();
        assert_eq!(faults[0].name, "q::a");
        assert_eq!(apply(&faults[0]).unwrap(), CODE.replace("    notify();\n", ""));
        let expected = CODE.replace("fn f", "fn h").replace("        lock", "        peek");
        assert_eq!(apply(&faults[1]).unwrap(), expected);
    }

    #[test]
    fn text_that_is_not_found_exactly_once_is_an_error() {
        let error = |function: Option<&str>, find: &str| {
            let (file, function) = ("q/src/a/b.rs".into(), function.map(str::to_owned));
            let edit = Edit { file, function, find: find.to_owned(), replace: "x".to_owned() };
            apply(&Fault { edits: vec![edit], ..Fault::new("q::a") }).unwrap_err()
        };
        assert_eq!(error(None, "\nwait();\n"), "\"wait();\" in q/src/a/b.rs is not found");
        assert_eq!(error(None, "lock"), "\"lock\" in q/src/a/b.rs is found more than once");
        assert_eq!(error(Some("f"), "();\n"), "\"();\" in `f` of q/src/a/b.rs is found more than once");
        assert_eq!(error(Some("g"), "notify"), "\"notify\" in `g` of q/src/a/b.rs is not found");
        assert_eq!(error(Some("P::g"), "lock"), "there is no `P::g` of q/src/a/b.rs");
        assert_eq!(error(None, "x"), "replaces \"x\" in q/src/a/b.rs by itself");
        assert_eq!(error(None, ""), "\"\" in q/src/a/b.rs is found more than once");
    }

    #[test]
    fn edits_do_not_overlap() {
        let rows = ROWS.replace("'fn f'", "'    lock();\n    }'");
        let rows = rows.replace("'    lock();\n    }'", "\"    lock();\\n    }\"");
        let why = apply(&parse(&rows).unwrap()[1]).unwrap_err();
        assert_eq!(why, "two edits of q/src/a/b.rs overlap at \"lock();\"");
    }

    #[test]
    fn a_fault_is_listed_with_the_file_of_its_first_edit() {
        let other = "file = 'q/src/c.rs', find = 'fn f'";
        let fault = &parse(&ROWS.replace("find = 'fn f'", other)).unwrap()[1];
        assert_eq!(fault.files(), BTreeSet::from([Path::new("q/src/a/b.rs"), Path::new("q/src/c.rs")]));
        assert!(parse(&ROWS.replace("function = 'f'", "file = 'q/src/c.rs'")).is_err());
        let source = |path: &str| source_of(&Path::new(FOLDER).join(path));
        assert_eq!(source("q/lib.toml"), Some("q/src/lib.rs".into()));
        assert!(source("q.toml").is_none() && source("q/README.md").is_none());
    }

    #[test]
    fn unknown_fields_and_missing_ones_are_refused() {
        assert!(parse(&ROWS.replace("replace = ''", "replace = ''\nmany = true")).is_err());
        assert!(parse(&ROWS.replace("name = 'q::b'\n", "")).is_err());
        assert!(parse("[[fault]]\nname = 'q::a'\nedits = []\n").is_err());
    }
}
