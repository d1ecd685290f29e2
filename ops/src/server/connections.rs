//! SHELL. The open connections, and the choice of the connection to close when there are too many.
//!
//! | guarded by | |
//! |---|---|
//! | the open connections, and the order of their last requests | one lock: written by the accept loop, by each request, and when a connection ends |

use std::net::IpAddr;
use std::sync::Arc;

use tokio::task::AbortHandle;

use flyball_sync::locks::Mutex;

/// The open connections of a server. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// The number of connections and requests so far, which is used as a clock.
    count: u64,
    rows: Vec<Row>,
}

struct Row {
    id: u64,
    peer: IpAddr,
    /// The value of `count` at the last request of this connection, or at its start if it has had no request.
    last: u64,
    /// `None` until the task is started.
    task: Option<AbortHandle>,
}

impl Connections {
    /// Closes connections until fewer than `max` are open. Then calls `start`, which starts the task of the new connection, and adds that connection.
    pub(super) fn add(&self, peer: IpAddr, max: usize, start: impl FnOnce(Connection) -> AbortHandle) {
        let full = || self.0.lock().rows.len() >= max.max(1);
        while full() && self.close_one() {}
        let mut table = self.0.lock();
        table.count += 1;
        let id = table.count;
        // The row is added before the task is started, because the connection may end on another thread immediately, and must then find the row to
        // remove it.
        table.rows.push(Row { id, peer, last: id, task: None });
        drop(table);
        // The task is started outside the lock, because a runtime that is shutting down drops a new task immediately, and dropping the `Connection`
        // takes the lock.
        let task = start(Connection { all: self.clone(), id });
        let mut table = self.0.lock();
        if let Some(row) = table.rows.iter_mut().find(|row| row.id == id) {
            row.task = Some(task);
            return;
        }
        drop(table);
        // Another thread has closed the connection in the meantime, or the connection has ended.
        task.abort();
    }

    /// Closes the least recently used connection of the peer with the most connections, so that a peer that opens many connections causes only its
    /// own connections to be closed. Returns whether a connection was closed.
    pub(super) fn close_one(&self) -> bool {
        let mut table = self.0.lock();
        let of_peer = |row: &Row| table.rows.iter().filter(|other| other.peer == row.peer).count();
        let rows = table.rows.iter().enumerate();
        let spare = rows.max_by_key(|(_, row)| (of_peer(row), u64::MAX - row.last)).map(|(at, _)| at);
        let closed = spare.map(|at| table.rows.swap_remove(at));
        drop(table);
        // `abort` is called outside the lock, because it may drop the `Connection`, which takes the lock.
        let Some(row) = closed else { return false };
        if let Some(task) = row.task {
            task.abort();
        }
        true
    }
}

/// One open connection; dropping it removes its row.
pub(super) struct Connection {
    all: Connections,
    id: u64,
}

impl Connection {
    /// Marks the connection as used, because a request has arrived.
    pub(super) fn requested(&self) {
        let mut table = self.all.0.lock();
        table.count += 1;
        let now = table.count;
        if let Some(row) = table.rows.iter_mut().find(|row| row.id == self.id) {
            row.last = now;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.0.lock().rows.retain(|row| row.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_runtime_that_shuts_down_may_drop_a_connection_at_its_start() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let open = Connections::default();
        let (own, (added, wait)) = (open.clone(), channel());
        thread::spawn(move || {
            own.add(IpAddr::from([127, 0, 0, 1]), 1, |this| {
                handle.spawn(async move { drop(this) }).abort_handle()
            });
            let _ = added.send(());
        });
        assert_eq!(wait.recv_timeout(Duration::from_secs(10)), Ok(()), "a deadlock");
        assert!(open.0.lock().rows.is_empty());
    }
}
