//! The source. `list` reads the sequence and the rows in one transaction.

use std::collections::VecDeque;

use flyball_informer_cache::{ListRequest, Page, Source, SourceError, Version, WatchRequest};

use crate::rows::{Site, failed, sequence, sites};
use crate::table::Table;
use crate::watch::TableWatch;

pub(crate) struct TableSource(pub(crate) Table);

impl Source for TableSource {
    type Object = Site;
    type Watch = TableWatch;

    async fn list(&self, _: ListRequest) -> Result<Page<Site>, SourceError> {
        let mut connection = self.0.lock();
        let transaction = connection.transaction().map_err(failed)?;
        let (version, _) = sequence(&transaction).map_err(failed)?;
        let items = sites(&transaction, "NOT deleted AND version > ?1", 0).map_err(failed)?.into();
        Ok(Page { items, version: Version::new(version), continuation: None })
    }

    async fn watch(&self, request: WatchRequest) -> Result<TableWatch, SourceError> {
        let written = self.0.written.subscribe();
        Ok(TableWatch {
            table: self.0.clone(),
            written,
            from: request.from_version.get(),
            rows: VecDeque::new(),
        })
    }
}
