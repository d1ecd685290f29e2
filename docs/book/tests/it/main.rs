//! Tests of the book: its programs, its tables and its manifests.

mod manifests;
mod metrics;
mod migration;
mod names;
mod programs;
