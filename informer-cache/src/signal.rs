//! SHELL. One-time signals, and wakers that are woken once no lock is held.

pub(crate) mod stop_signal;
pub(crate) mod synced;
pub(crate) mod wakers;
