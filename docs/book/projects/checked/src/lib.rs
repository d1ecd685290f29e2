//! Work that several threads ask for, and one of them does.

use flyball_workqueue::{Added, Queue};

/// Asks for a rebuild of `page`. Says whether it was not asked for yet.
pub fn request_rebuild(queue: &Queue<&'static str>, page: &'static str) -> bool {
    matches!(queue.add(page), Ok(Added::New))
}
