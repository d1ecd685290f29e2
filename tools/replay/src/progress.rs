//! EDGE. A progress bar, which is displayed during a run if stderr is a terminal.
//!
//! Cancel safety: this module has no async code.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Clone, Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar with this number of positions.
    pub(crate) fn new(places: usize) -> Self {
        if !stderr().is_terminal() {
            return Self::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(places as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{prefix} [{bar:40}] {percent:>3} % {human_pos}/{human_len} {elapsed}",
        );
        bar.set_style(style.expect("the template is right").progress_chars("=> "));
        bar.set_prefix("pass 1");
        Self(bar)
    }

    /// Creates a progress bar that is not displayed.
    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Creates a display of several lines that can be redrawn; `None` if stderr is not a terminal.
    #[cfg(feature = "kube")]
    pub(crate) fn lines() -> Option<Self> {
        if !stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is right"));
        Some(Self(bar))
    }

    #[cfg(feature = "kube")]
    pub(crate) fn show(&self, lines: String) {
        self.0.set_message(lines);
        self.0.tick();
    }

    pub(crate) fn pass(&self, number: usize) {
        self.0.set_prefix(format!("pass {number}"));
    }

    pub(crate) fn at(&self, place: usize) {
        self.0.set_position(place as u64);
    }

    /// Clears the bar before the summary is printed.
    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}
