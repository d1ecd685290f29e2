//! Compares designs of the store's data structure: those of `benches::designs`, and plain maps for reference.
//!
//! `cargo run --release --manifest-path benches/peers/rust/Cargo.toml --bin store_designs` prints Markdown tables;
//! `--help` lists the sizes and rounds. In each round every design runs every measurement, so other load on the machine
//! affects all designs alike. A figure is the median of the rounds, with the minimum and the maximum in brackets. Times
//! are CPU times of the threads, except for the updates that run while another thread lists the objects.
//!
//! Keys are `Arc<str>` of 30 bytes. A lookup passes the same `Arc` that the store holds, as a queue with the store's keys does. There are two
//! indexes, of 1000 nodes and 100 namespaces. All designs are behind `RwLock<Arc<_>>`: a reader holds the lock during one search, or while it clones
//! the `Arc`; a writer copies the parts that a snapshot shares, and changes all other parts in place.

#![allow(clippy::disallowed_methods, reason = "a measurement is made on the machine's clock")]

mod maps;
mod report;
mod runs;
mod store;
mod world;

use std::fs;

use benches::designs::{btree, rows::Rows, shards, trie};
use clap::Parser;

use crate::report::Report;
use crate::world::World;

/// Compares designs of the store's data structure and prints Markdown tables.
#[derive(Debug, Parser)]
struct Options {
    /// Sizes, in objects.
    #[arg(long, value_delimiter = ',', default_value = "10000,100000,1000000")]
    objects: Vec<usize>,
    /// Rounds at the largest of the default sizes; the next smaller size gets one more round, and the smallest size two more.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also run the fourth design with other sizes of leaves and pages.
    #[arg(long)]
    variants: bool,
    /// Run only designs and maps whose name contains this text.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() {
    let options = Options::parse();
    for &objects in &options.objects {
        let world = World::new(objects);
        let rounds =
            options.rounds + [2, 1, 0][usize::from(objects > 10_000) + usize::from(objects > 100_000)];
        let (mut designs, mut peers) = (Report::default(), Report::default());
        let load = load();
        for round in 0..rounds {
            let first = round == 0;
            let mut run = |name: &'static str, work: fn(&World, bool) -> report::Figures| {
                if name.contains(&options.only) {
                    eprintln!("{objects} objects, round {} of {rounds}: {name}", round + 1);
                    designs.add(name, work(&world, first));
                }
            };
            run("trie", runs::all::<trie::Design>);
            run("shards", runs::all::<shards::Design>);
            run("btree", runs::all::<btree::Design>);
            run("rows 16", runs::all::<Rows<16, 64>>);
            run("rows 32", runs::all::<Rows<32, 64>>);
            if options.variants {
                run("rows 8", runs::all::<Rows<8, 64>>);
                run("rows 64", runs::all::<Rows<64, 64>>);
                run("rows 32, pages of 16", runs::all::<Rows<32, 16>>);
                run("rows 32, pages of 32", runs::all::<Rows<32, 32>>);
                run("rows 32, pages of 128", runs::all::<Rows<32, 128>>);
            }
            let mut run = |name: &'static str, work: fn(&World) -> report::Figures| {
                if name.contains(&options.only) {
                    peers.add(name, work(&world));
                }
            };
            run("hashbrown", maps::all::<maps::Plain>);
            run("dashmap", maps::all::<maps::Dash>);
            run("papaya", maps::all::<maps::Papaya>);
            run("imbl", maps::all::<maps::Imbl>);
            run("rpds", maps::all::<maps::Rpds>);
        }
        println!(
            "### {objects} objects\n\n{rounds} rounds, load average {load} before, {} after\n",
            self::load()
        );
        designs.print();
        peers.print();
    }
}

/// The load average of the last minute.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
