//! A step of an operation sequence, which a failure message names.

use std::fmt;

use testkit::queue_op::QueueOp;

/// One step. It is formatted only for a failure, because millions of steps succeed.
pub(crate) struct Step<'a> {
    pub(crate) number: usize,
    pub(crate) op: &'a QueueOp,
}

impl Step<'_> {
    /// Prints the step if `FLYBALL_TRACE` is set. Use this to read the shortest failing sequence.
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
