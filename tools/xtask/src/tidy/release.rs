//! What a published crate carries: its own readme, changelog and both licences, as the root has them.

use anyhow::Result;

use crate::workspace::Workspace;

const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in workspace.published() {
        let folder = package.folder(workspace);
        for name in ["README.md", "CHANGELOG.md"] {
            let path = folder.join(name);
            match workspace.read(&path) {
                Ok(text) if text.lines().count() > 5 => {}
                Ok(_) => complaints.push(format!("{}: says next to nothing", path.display())),
                Err(_) => complaints.push(format!("{}: missing", path.display())),
            }
        }
        for name in LICENCES {
            let path = folder.join(name);
            match workspace.read(&path) {
                Ok(text) if text == workspace.read(name)? => {}
                Ok(_) => complaints.push(format!("{}: differs from the root's", path.display())),
                Err(_) => complaints.push(format!("{}: missing", path.display())),
            }
        }
    }
    Ok(complaints)
}
