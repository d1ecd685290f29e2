//! SHELL. The connections that are open, and which of them makes room for another.
//!
//! | guarded by | |
//! |---|---|
//! | who is connected, and the order of their last requests | one lock: written by the accept loop, by each request, and at a connection's end |

use std::net::IpAddr;
use std::sync::Arc;

use tokio::task::AbortHandle;

use flyball_sync::locks::Mutex;

/// The open connections of a server. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Open(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// Counts connections and requests.
    count: u64,
    rows: Vec<Row>,
}

struct Row {
    id: u64,
    peer: IpAddr,
    /// Of its last request, or of its beginning.
    last: u64,
    task: AbortHandle,
}

impl Open {
    /// Adds the connection that `start` starts under an id of its own. Closes others first, so that there are `most` afterwards.
    pub(super) fn add(&self, peer: IpAddr, most: usize, start: impl FnOnce(Connection) -> AbortHandle) {
        let full = || self.0.lock().rows.len() >= most.max(1);
        while full() && self.close_one() {}
        // Started under the lock: its end, on another thread, finds its row.
        let mut table = self.0.lock();
        table.count += 1;
        let id = table.count;
        let task = start(Connection { open: self.clone(), id });
        table.rows.push(Row { id, peer, last: id, task });
    }

    /// Closes the connection that has been quiet for longest, of the peer that has most of them: the first to spare, and that of a flood. Says whether there was one.
    pub(super) fn close_one(&self) -> bool {
        let mut table = self.0.lock();
        let of_peer = |row: &Row| table.rows.iter().filter(|other| other.peer == row.peer).count();
        let rows = table.rows.iter().enumerate();
        let spare = rows.max_by_key(|(_, row)| (of_peer(row), u64::MAX - row.last)).map(|(at, _)| at);
        let closed = spare.map(|at| table.rows.swap_remove(at));
        drop(table);
        // Outside the lock, which the connection's end takes.
        closed.map(|row| row.task.abort()).is_some()
    }
}

/// One of them; it is taken out when this is dropped.
pub(super) struct Connection {
    open: Open,
    id: u64,
}

impl Connection {
    /// A request has come.
    pub(super) fn asked(&self) {
        let mut table = self.open.0.lock();
        table.count += 1;
        let now = table.count;
        if let Some(row) = table.rows.iter_mut().find(|row| row.id == self.id) {
            row.last = now;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.0.lock().rows.retain(|row| row.id != self.id);
    }
}
