//! A source whose objects are the rows of a table in SQLite. The program checks that the source keeps the contract of `Source`, then runs an informer
//! over a second table.

mod fixture;
mod rows;
mod source;
mod table;
mod watch;

use std::time::Duration;

use flyball_informer_cache::testing::check_source;
use flyball_informer_cache::{Informer, TokioTimer};

use crate::fixture::TableFixture;
use crate::rows::SITES;
use crate::source::TableSource;
use crate::table::Table;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut fixture = TableFixture(TableSource(Table::in_memory()?));
    check_source(&mut fixture, TokioTimer::current(), Duration::from_millis(500)).await?;
    println!("the contract holds");

    let table = Table::in_memory()?;
    table.put("blog", 8080)?;
    table.put("shop", 8081)?;
    let sites = Informer::builder(SITES, TableSource(table.clone())).start()?;
    sites.synced().await?;
    println!("listed: {} sites", sites.store().len());

    let mut changes = sites.subscribe();
    while changes.try_next().is_some() {} // skips the initial changes
    table.put("shop", 9000)?;
    let last = table.delete("blog")?;
    sites.store().wait_for_version(last).await?;
    while let Some(change) = changes.try_next() {
        println!("{:?} {}, port {}", change.kind(), change.key(), change.object().port);
    }
    Ok(())
}
