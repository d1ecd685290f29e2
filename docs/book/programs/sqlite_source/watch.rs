//! The stream of a watch. It delivers the rows with versions after its own, then waits for the next write.

use std::collections::VecDeque;

use flyball_informer_cache::{SourceError, SourceErrorKind, WatchEvent, WatchStream};
use tokio::sync::watch::Receiver;

use crate::rows::{Site, failed, sequence, sites};
use crate::table::Table;

pub(crate) struct TableWatch {
    pub(crate) table: Table,
    pub(crate) written: Receiver<()>,
    pub(crate) from: u64,
    pub(crate) rows: VecDeque<Site>,
}

impl TableWatch {
    fn read(&mut self) -> Result<(), SourceError> {
        let mut connection = self.table.lock();
        let transaction = connection.transaction().map_err(failed)?;
        if self.from < sequence(&transaction).map_err(failed)?.1 {
            return Err(SourceErrorKind::Expired.into());
        }
        self.rows = sites(&transaction, "version > ?1", self.from).map_err(failed)?;
        Ok(())
    }
}

impl WatchStream for TableWatch {
    type Object = Site;

    async fn next(&mut self) -> Option<Result<WatchEvent<Site>, SourceError>> {
        while self.rows.is_empty() {
            self.written.borrow_and_update(); // before the read, so that a write during the read ends the wait below
            if let Err(error) = self.read() {
                return Some(Err(error));
            }
            if self.rows.is_empty() && self.written.changed().await.is_err() {
                return None;
            }
        }
        let site = self.rows.pop_front()?;
        self.from = site.version;
        Some(Ok(if site.deleted { WatchEvent::Deleted(site) } else { WatchEvent::Modified(site) }))
    }
}
