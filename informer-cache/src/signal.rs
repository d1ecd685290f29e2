//! SHELL. One-time signals, and wakers that are woken after all locks are released.

pub(crate) mod stop_signal;
pub(crate) mod synced;
pub(crate) mod wakers;
