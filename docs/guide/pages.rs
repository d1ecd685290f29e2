//! Every example of the guide and of the root README is compiled and run here, by `cargo test`.

/// The root README.
#[doc = include_str!("../../README.md")]
pub mod readme {}

/// The queue alone.
#[doc = include_str!("src/queue.md")]
pub mod queue {}

/// A thread pool without a runtime.
#[doc = include_str!("src/threads.md")]
pub mod threads {}

/// Workers on tokio.
#[doc = include_str!("src/tokio.md")]
pub mod tokio {}

/// Your queue or ours.
#[doc = include_str!("src/swap.md")]
pub mod swap {}

/// The limiter alone.
#[doc = include_str!("src/limiter.md")]
pub mod limiter {}

/// A tower layer.
#[doc = include_str!("src/tower.md")]
pub mod tower {}

/// The cache alone.
#[doc = include_str!("src/cache.md")]
pub mod cache {}

/// Together.
#[doc = include_str!("src/together.md")]
pub mod together {}

/// kube-runtime's reconcile functions; checked as a program of its own, in `docs/examples/kube-reconcile`.
#[doc = include_str!("src/kube-reconcile.md")]
pub mod kube_reconcile {}
