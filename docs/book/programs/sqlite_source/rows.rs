//! Reads the rows of the table as objects.

use std::collections::VecDeque;

use flyball_informer_cache::{Schema, SourceError, SourceErrorKind, Version};
use rusqlite::{Connection, Result, Row};

#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) version: u64,
    pub(crate) deleted: bool,
}

pub(crate) const SITES: Schema<String, Site> =
    Schema::new(|site: &Site| site.name.clone(), |site| Version::new(site.version));

/// Returns the version of the last write, and the expiry point: the markers of all deletions after this version still
/// exist.
pub(crate) fn sequence(connection: &Connection) -> Result<(u64, u64)> {
    connection.query_row("SELECT version, expired FROM sequence", [], |row| Ok((row.get(0)?, row.get(1)?)))
}

pub(crate) fn sites(connection: &Connection, filter: &str, from: u64) -> Result<VecDeque<Site>> {
    let sql = format!("SELECT name, port, version, deleted FROM sites WHERE {filter} ORDER BY version");
    let site = |row: &Row<'_>| {
        Ok(Site { name: row.get(0)?, port: row.get(1)?, version: row.get(2)?, deleted: row.get(3)? })
    };
    connection.prepare(&sql)?.query_map([from], site)?.collect()
}

pub(crate) fn failed(error: rusqlite::Error) -> SourceError {
    SourceError::new(SourceErrorKind::Internal, error)
}
