//! Several threads request rebuilds of pages; concurrent requests for the same page cause one rebuild.

use flyball_workqueue::{Added, Queue};

/// Requests a rebuild of `page`. Returns `true` if the queue did not hold the page.
pub fn request_rebuild(queue: &Queue<&'static str>, page: &'static str) -> bool {
    matches!(queue.add(page), Ok(Added::New))
}
