//! EDGE. Makes calls in batches of growing size. This is useful if a call that fails indicates that the others will fail, too, for example because of
//! a quota.
//!
//! Cancel safety: dropping the future drops the calls in progress.

use futures::future::join_all;

/// Makes `count` calls, in concurrent batches of one, two, four and so on. If a call fails, no batch after the current one starts, so a server that
/// refuses the calls receives only a few.
///
/// # Errors
/// Returns the first error of the batch in which a call has failed.
pub(crate) async fn slow_start<E, F: Future<Output = Result<(), E>>>(
    count: usize,
    mut call: impl FnMut() -> F,
) -> Result<(), E> {
    let mut left = count;
    let mut batch = 1;
    while left > 0 {
        let size = batch.min(left);
        let results = join_all((0..size).map(|_| call())).await;
        results.into_iter().collect::<Result<(), E>>()?;
        left -= size;
        batch *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn calls(count: usize, fails_at: usize) -> (usize, Result<(), usize>) {
        let made = Cell::new(0);
        let result = slow_start(count, || {
            made.set(made.get() + 1);
            let number = made.get();
            async move { if number == fails_at { Err(number) } else { Ok(()) } }
        })
        .await;
        (made.get(), result)
    }

    #[tokio::test]
    async fn a_failure_ends_the_batch_and_the_start() {
        for (count, fails_at, made) in
            [(0, 9, 0), (10, 99, 10), (10, 1, 1), (10, 2, 3), (10, 4, 7), (10, 9, 10), (100, 17, 31)]
        {
            let expected = if fails_at <= made { Err(fails_at) } else { Ok(()) };
            assert_eq!(calls(count, fails_at).await, (made, expected), "{count} calls, {fails_at} fails");
        }
    }
}
