//! Each policy against its slow, obvious model, step by step.

use testkit::random::cases;

use crate::{adaptive_driver, bucket_driver, limiter_driver, line_driver};

#[test]
fn a_limiter_does_what_its_oracle_says() {
    cases("limiter", 100_000, 700, limiter_driver::run);
}

#[test]
fn an_adaptive_limit_does_what_its_oracle_says() {
    cases("adaptive", 100_000, 700, adaptive_driver::run);
}

#[test]
fn a_bucket_does_what_its_oracle_says() {
    cases("bucket", 100_000, 700, bucket_driver::run);
}

#[test]
fn a_line_does_what_its_oracle_says() {
    cases("line", 100_000, 400, line_driver::run);
}
