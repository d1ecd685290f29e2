//! Rebuilds pages on request. Several threads may request rebuilds; requests for a page that is already queued do not cause a second rebuild.

use flyball_workqueue::{Added, Queue};

/// Requests a rebuild of `page`. Returns `true` if the queue did not hold the page before.
pub fn request_rebuild(queue: &Queue<&'static str>, page: &'static str) -> bool {
    matches!(queue.add(page), Ok(Added::New))
}
