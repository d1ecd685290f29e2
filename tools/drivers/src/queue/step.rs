//! A step of an operation sequence, for failure messages.

use std::fmt;

use testkit::queue_op::QueueOp;

/// One step. A step is formatted only if it fails, because formatting millions of successful steps would take too long.
pub(crate) struct Step<'a> {
    pub(crate) number: usize,
    pub(crate) op: &'a QueueOp,
}

impl Step<'_> {
    /// Prints the step if the environment variable `FLYBALL_TRACE` is set, so that you can read all steps of a failing sequence.
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
