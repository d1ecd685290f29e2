//! Where in a life a difference showed.

use std::fmt;

use testkit::queue_op::QueueOp;

/// One step. It is written out where it failed, and nowhere else: millions do not.
pub(crate) struct Step<'a> {
    pub(crate) number: usize,
    pub(crate) op: &'a QueueOp,
}

impl Step<'_> {
    /// `FLYBALL_TRACE` shows every step of a life, to read the shortest one that fails.
    pub(crate) fn trace(&self) {
        if *TRACE {
            eprintln!("{self}");
        }
    }
}

static TRACE: std::sync::LazyLock<bool> =
    std::sync::LazyLock::new(|| std::env::var_os("FLYBALL_TRACE").is_some());

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, {:?}", self.number, self.op)
    }
}
