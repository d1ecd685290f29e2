//! EDGE. The futures of the queue, one type per async operation. Cancel safety: the docs of each future say what happens if it is dropped.

pub(crate) mod add_when_room;
pub(crate) mod drain;
pub(crate) mod get;
pub(crate) mod get_many;
pub(crate) mod next_overdue;
#[cfg(feature = "stream")]
pub(crate) mod stream;
pub(crate) mod timeout;
pub(crate) mod wait_idle;
