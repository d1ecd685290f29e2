//! The table. All writes take their versions from one sequence: each gives its row the next number. A deletion leaves a marker in the row.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flyball_informer_cache::Version;
use rusqlite::{Connection, Result};
use tokio::sync::watch;

const TABLES: &str = "
    CREATE TABLE sites (name TEXT PRIMARY KEY, port INTEGER NOT NULL, deleted INTEGER NOT NULL, version INTEGER NOT NULL);
    CREATE INDEX sites_by_version ON sites (version);
    CREATE TABLE sequence (version INTEGER NOT NULL, expired INTEGER NOT NULL); INSERT INTO sequence VALUES (1, 0);";

const NEXT_VERSION: &str = "UPDATE sequence SET version = version + 1 RETURNING version";

const WRITE: &str = "INSERT OR REPLACE INTO sites VALUES (?1, ?2, ?3, ?4)";

#[derive(Clone)]
pub(crate) struct Table {
    connection: Arc<Mutex<Connection>>,
    /// Notified after each write. If other processes write to the table, poll `sequence.version` instead.
    pub(crate) written: Arc<watch::Sender<()>>,
}

impl Table {
    pub(crate) fn in_memory() -> Result<Self> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(TABLES)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), written: Arc::new(watch::Sender::new(())) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, name: &str, port: u16) -> Result<Version> {
        self.write(name, port, false)
    }

    pub(crate) fn delete(&self, name: &str) -> Result<Version> {
        self.write(name, 0, true)
    }

    /// Updates the sequence and the row in one transaction, so that versions become visible in ascending order.
    fn write(&self, name: &str, port: u16, deleted: bool) -> Result<Version> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let version: u64 = transaction.query_row(NEXT_VERSION, [], |row| row.get(0))?;
        transaction.execute(WRITE, (name, port, deleted, version))?;
        transaction.commit()?;
        self.written.send_replace(());
        Ok(Version::new(version))
    }

    /// Deletes the deletion markers. A watch from an earlier version could miss a deletion, so it must fail with `Expired`.
    pub(crate) fn compact(&self) -> Result<()> {
        let sql = "BEGIN; UPDATE sequence SET expired = version; DELETE FROM sites WHERE deleted; COMMIT";
        self.lock().execute_batch(sql)
    }
}
