//! Compares each policy with its oracle after every step.

use drivers::bucket::{keyed, token_bucket, wait_queue};
use drivers::limiter::{aimd, policies};
use testkit::random::{cases, cases_in_parallel, thorough};

fn sequences() -> u64 {
    if thorough() { 100_000 } else { 10_000 }
}

#[test]
fn a_limiter_does_what_its_oracle_says() {
    cases("limiter", sequences(), 700, policies::run);
}

#[test]
fn an_adaptive_limit_does_what_its_oracle_says() {
    cases("adaptive", sequences(), 700, aimd::run);
}

#[test]
fn a_bucket_does_what_its_oracle_says() {
    cases("bucket", sequences(), 700, token_bucket::run);
}

#[test]
fn every_key_has_a_bucket_that_agrees_with_its_oracle() {
    cases_in_parallel("keyed", sequences(), 400, keyed::run);
}

#[test]
fn a_wait_queue_agrees_with_its_oracle() {
    cases("line", sequences(), 400, wait_queue::run);
}
