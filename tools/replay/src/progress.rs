//! EDGE. A progress bar on the terminal during a run. Without a terminal, there is no bar.
//!
//! Cancel safety: nothing here waits.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Clone, Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar with this many positions.
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

    /// A progress bar that is not displayed.
    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// A status of several lines that is redrawn; `None` without a terminal.
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
