//! The indexed store, and other stores that keep the newest objects of a source.
//!
//! | file | |
//! |---|---|
//! | pods | the objects of every run, and their indexes |
//! | cache | the operations that every store has, so that each workload is written once |
//! | ours, kube, maps | the stores |
//! | single | one operation after the other, and the heap memory of a store |
//! | get | point reads by several threads |
//! | beside | writes while another thread lists the objects |
//! | operations | single operations with their latency tails, at any size |
//! | readers | an informer while many threads list the objects |
//! | replace, stall | a relist while another thread reads objects |
//!
//! Objects are generated before the clock starts. A read accesses a field of each object that it found, as real readers
//! do, unless the documentation of the run says that it does not.

mod beside;
mod cache;
mod get;
mod kube;
mod maps;
mod operations;
mod ours;
mod pods;
mod readers;
mod replace;
mod single;
mod stall;

use crate::Figures;
use crate::options::{Options, Party, Run};
use crate::store::cache::{Lists, Replaces, Writes};
use crate::store::kube::Kube;
use crate::store::maps::{Dash, Papaya};
use crate::store::ours::{Collected, Ours};

/// Returns `None` if this run does not exist for `party`.
pub(crate) fn run(options: &Options, run: Run, party: Party) -> Option<Figures> {
    match (party, run) {
        (Party::Ours, Run::StoreReaders) => Some(readers::readers(options)),
        (Party::Ours, _) => indexed::<Ours>(options, run),
        (Party::OursCollected, Run::StoreByIndex) => {
            Some(single::by_index(options, |store: &Ours| Collected(store.store())))
        }
        (Party::OursView, Run::StoreGet) => Some(get::get(options, |store: &Ours| store.snapshot())),
        (Party::Kube, _) => indexed::<Kube>(options, run),
        (Party::Dashmap, _) => by_key::<Dash>(options, run),
        (Party::Papaya, _) => by_key::<Papaya>(options, run),
        _ => None,
    }
}

fn indexed<C: Replaces<Reader: Lists>>(options: &Options, run: Run) -> Option<Figures> {
    match run {
        Run::StoreByIndex => Some(single::by_index(options, C::reader)),
        Run::StoreList => Some(single::list::<C>(options)),
        Run::StoreBeside => Some(beside::beside::<C>(options)),
        Run::StoreOperations => Some(operations::operations::<C>(options)),
        Run::StoreReplace => Some(replace::replace::<C>(options)),
        _ => by_key::<C>(options, run),
    }
}

/// The runs that even a map without indexes and views supports.
fn by_key<C: Writes>(options: &Options, run: Run) -> Option<Figures> {
    match run {
        Run::StoreAdd => Some(single::add::<C>(options)),
        Run::StoreUpdate => Some(single::update::<C>(options)),
        Run::StoreGet => Some(get::get(options, C::reader)),
        Run::StoreBytes => Some(single::bytes::<C>(options)),
        _ => None,
    }
}
