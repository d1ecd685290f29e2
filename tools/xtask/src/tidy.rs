//! `cargo xtask tidy`: checks the rules of this repository that no compiler checks.
//!
//! Each rule has its own file. The file states the reason for the rule, and tests the rule with lines that break it.

use anyhow::Result;

use crate::process;
use crate::workspace::Workspace;

mod budget;
mod commits;
mod evidence;
mod habits;
mod language;
mod layers;
pub(crate) mod links;
mod orderings;
mod paths;
mod public_types;
mod readme;
mod real_paths;
mod release;
mod shared_files;
mod source;
mod sync_only;
mod untested;

use source::Source;

/// A rule for one file of shipped code.
type Rule = fn(&Source) -> Vec<String>;

const SHIPPED: [Rule; 4] = [budget::check, layers::check, sync_only::check, orderings::check];

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "each line above names its file and the rule; CONTRIBUTING.md has the rules";

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut complaints = Vec::new();
    let files = workspace.files()?;
    let history = commits::History::read(workspace);
    for file in &files {
        // Files that are not UTF-8 are skipped.
        let Ok(text) = workspace.read(file) else { continue };
        let name = file.to_string_lossy();
        complaints.extend(paths::check(&name, &text));
        if name.ends_with(".md") || name.ends_with(".rs") {
            complaints.extend(habits::check_docs(&name, &text));
        }
        complaints.extend(language::check_page(&name, &text));
        if name.ends_with(".md") {
            complaints.extend(history.iter().flat_map(|history| commits::check(&name, &text, history)));
            let exists = |path: &_| workspace.root.join(path).exists();
            complaints.extend(links::check(&name, &text, exists, |path| workspace.read(path).ok()));
        }
        if !name.ends_with(".rs") {
            continue;
        }
        let source = match Source::read(&name, &text) {
            Ok(source) => source,
            Err(error) => {
                complaints.push(format!("{name}:{}: {error}", error.span().start().line));
                continue;
            }
        };
        complaints.extend(habits::check(&source));
        complaints.extend(shared_files::check(&source));
        complaints.extend(language::check(&source));
        let shipped =
            workspace.published().any(|package| file.starts_with(package.folder(workspace).join("src")));
        if shipped && !source.is_test() {
            complaints.extend(SHIPPED.iter().flat_map(|rule| rule(&source)));
        }
    }
    complaints.extend(release::check(workspace)?);
    complaints.extend(readme::check(workspace)?);
    complaints.extend(public_types::check(workspace)?);
    complaints.extend(real_paths::check(workspace, &files)?);
    complaints.extend(evidence::check(workspace, &files)?);
    complaints.extend(untested::check(workspace, &files)?);
    process::verdict(&complaints, WHAT_TO_DO)?;
    eprintln!("{} files are tidy", files.len());
    Ok(())
}
