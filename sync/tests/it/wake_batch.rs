//! Tests `WakeBatch`: wakers that are woken together.

use std::sync::Arc;

use flyball_sync::waiting::WakeBatch;
use testkit::wakers::{Counting, Panicking};

#[test]
fn wakes_all_even_if_one_panics() {
    let (counter, waker) = Counting::waker();
    let mut batch = WakeBatch::new();
    batch.push(waker.clone());
    batch.push(Arc::new(Panicking).into());
    batch.push(waker);
    assert!(batch.wake().is_err());
    assert_eq!(counter.wakes(), 2);
    assert!(batch.is_empty() && batch.wake().is_ok());
}

#[test]
fn is_full_at_its_capacity() {
    let (counter, waker) = Counting::waker();
    let mut batch = WakeBatch::new();
    for _ in 0..WakeBatch::CAPACITY {
        assert!(!batch.is_full());
        batch.push(waker.clone());
    }
    assert!(batch.is_full() && batch.wake().is_ok() && !batch.is_full());
    assert_eq!(counter.wakes(), WakeBatch::CAPACITY);
}
