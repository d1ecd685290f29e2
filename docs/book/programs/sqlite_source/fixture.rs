//! The fixture of the conformance test, that is, the functions with which the test changes the table.

use flyball_informer_cache::Schema;
use flyball_informer_cache::testing::SourceFixture;

use crate::rows::{SITES, Site};
use crate::source::TableSource;

pub(crate) struct TableFixture(pub(crate) TableSource);

impl SourceFixture for TableFixture {
    type Source = TableSource;
    type Key = String;

    fn schema(&self) -> Schema<String, Site> {
        SITES
    }

    fn source(&self) -> &TableSource {
        &self.0
    }

    fn key(&self, number: u32) -> String {
        format!("site-{number}")
    }

    async fn put(&mut self, number: u32) {
        self.0.0.put(&self.key(number), 80).expect("the table can be written");
    }

    async fn delete(&mut self, number: u32) {
        self.0.0.delete(&self.key(number)).expect("the table can be written");
    }

    async fn compact(&mut self) {
        self.0.0.compact().expect("the table can be written");
    }
}
