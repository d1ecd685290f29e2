//! PURE. The error response to an apply that conflicts with other managers.

use kube::core::Status;
use kube::core::response::StatusCause;

use crate::state::apply::managers::{Conflicts, Manager, Operation};
use crate::status_error;

pub(crate) fn status(conflicts: &Conflicts) -> Box<Status> {
    let by_manager = conflicts.0.iter().map(|(manager, fields)| (title(manager), fields.paths()));
    let by_manager: Vec<_> = by_manager.collect();
    let causes = by_manager.iter().flat_map(|(manager, paths)| {
        paths.iter().map(move |path| StatusCause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {manager}"),
            field: path.clone(),
        })
    });
    let causes: Vec<_> = causes.collect();
    let message = match &causes[..] {
        [cause] => format!("Apply failed with 1 conflict: {}: {}", cause.message, cause.field),
        _ => {
            let lines = by_manager.iter().flat_map(|(manager, paths)| {
                let heading = format!("conflicts with {manager}:");
                [heading].into_iter().chain(paths.iter().map(|path| format!("- {path}")))
            });
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.collect::<Vec<_>>().join("\n"))
        }
    };
    status_error::apply_conflict(&message, causes)
}

/// Formats a manager as it appears in messages.
fn title(manager: &Manager) -> String {
    let Manager { name, operation, api_version, subresource } = manager;
    let subresource =
        if subresource.is_empty() { String::new() } else { format!(" with subresource {subresource:?}") };
    match operation {
        Operation::Apply => format!("{name:?}{subresource}"),
        Operation::Update => format!("{name:?}{subresource} using {api_version}"),
    }
}
