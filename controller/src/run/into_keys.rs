//! PURE. The types that a mapper may return.

use std::iter::once;

/// The return types of a mapper: a key, an [`Option`] of a key, or an iterable of keys, such as a [`Vec`]. The iterable must not borrow the change, so
/// collect an iterator over it.
///
/// `M` is a marker that distinguishes these cases; the compiler infers it. A `Result` is iterable, too, so a mapper that returns `Err` yields no key,
/// and the error is neither counted nor retried. Panic instead if the change must be mapped again.
///
/// # Examples
/// ```no_run
/// # use flyball_controller::{Controller, TokioTimer};
/// # use flyball_informer_cache::Informer;
/// # use flyball_workqueue::Queue;
/// # struct Pod { name: String, owner: Option<String>, volumes: Vec<String> }
/// # fn example(pods: Informer<String, Pod>) {
/// # let queue = Queue::<String>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// let controller = Controller::new(queue)
///     .watches(&pods, |change| change.key().clone())
///     .watches(&pods, |change| change.object().owner.clone())
///     .watches(&pods, |change| change.object().volumes.clone());
/// # }
/// ```
///
/// A mapper returns keys of the queue's type, so this does not compile:
/// ```compile_fail,E0277
/// # use flyball_controller::{Controller, TokioTimer};
/// # use flyball_informer_cache::Informer;
/// # use flyball_workqueue::Queue;
/// # fn example(pods: Informer<String, u32>) {
/// # let queue = Queue::<String>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// let controller = Controller::new(queue).watches(&pods, |change| **change.object()); // a `u32`
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "a mapper cannot return `{Self}` where keys are `{K}`",
    label = "returns neither a `{K}`, nor an `Option<{K}>`, nor several `{K}`",
    note = "a mapper returns a key of the queue, an `Option` of one, or an iterator of several"
)]
pub trait IntoKeys<K, M> {
    /// Returns the keys, in the order in which the iterable yields them.
    ///
    /// # Examples
    /// ```
    /// use flyball_controller::IntoKeys;
    ///
    /// fn keys<M>(returned: impl IntoKeys<u32, M>) -> Vec<u32> {
    ///     returned.into_keys().collect()
    /// }
    /// assert_eq!((keys(7), keys(Some(7)), keys([7, 8])), (vec![7], vec![7], vec![7, 8]));
    /// ```
    fn into_keys(self) -> impl Iterator<Item = K>;
}

/// The marker `M` of [`IntoKeys`] for a mapper that returns one key.
#[derive(Debug)]
pub struct OneKey;

/// The marker `M` of [`IntoKeys`] for a mapper that returns an iterable of keys.
#[derive(Debug)]
pub struct ManyKeys;

impl<K> IntoKeys<K, OneKey> for K {
    fn into_keys(self) -> impl Iterator<Item = K> {
        once(self)
    }
}

impl<K, I: IntoIterator<Item = K>> IntoKeys<K, ManyKeys> for I {
    fn into_keys(self) -> impl Iterator<Item = K> {
        self.into_iter()
    }
}
