//! Each policy against its slow, obvious model, step by step.

use testkit::random::cases;

use crate::{adaptive_driver, bucket_driver, keyed_driver, limiter_driver, line_driver};

/// An unoptimised build runs a tenth; `.ci/run` runs all, optimised.
const LIVES: u64 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };

#[test]
fn a_limiter_does_what_its_oracle_says() {
    cases("limiter", LIVES, 700, limiter_driver::run);
}

#[test]
fn an_adaptive_limit_does_what_its_oracle_says() {
    cases("adaptive", LIVES, 700, adaptive_driver::run);
}

#[test]
fn a_bucket_does_what_its_oracle_says() {
    cases("bucket", LIVES, 700, bucket_driver::run);
}

#[test]
fn every_key_has_a_bucket_as_its_oracle_says() {
    cases("keyed", LIVES, 400, keyed_driver::run);
}

#[test]
fn a_line_does_what_its_oracle_says() {
    cases("line", LIVES, 400, line_driver::run);
}
