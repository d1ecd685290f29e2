//! SHELL. Checks by name, and the page that a probe gets, in the API server's words. No lock: a check is asked whenever somebody asks.

use std::fmt::{Display, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Checks of one endpoint.
#[derive(Default)]
pub(super) struct Checks(Vec<(String, Check)>);

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

impl Checks {
    pub(super) fn add<E: Display>(
        &mut self,
        name: &str,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) {
        let check = move || check().map_err(|error| error.to_string());
        self.0.push((name.to_owned(), Box::new(check)));
    }

    /// Whether all pass, and what is to be said: one line for each that fails, and for each that passes if all are wanted.
    pub(super) fn page(&self, endpoint: &str, verbose: bool) -> (bool, String) {
        let (mut passed, mut page) = (true, String::new());
        for (name, check) in &self.0 {
            let result = catch_unwind(AssertUnwindSafe(check))
                .unwrap_or_else(|_| Err("the check has panicked".to_owned()));
            let line = match result {
                Ok(()) if verbose => writeln!(page, "[+]{name} ok"),
                Ok(()) => Ok(()),
                Err(reason) => {
                    passed = false;
                    // One line: reasons may be of many.
                    writeln!(page, "[-]{name} failed: {}", reason.replace(['\r', '\n'], " "))
                }
            };
            line.expect("a string takes everything");
        }
        match (passed, verbose) {
            (true, false) => page.push_str("ok"),
            (true, true) => page.push_str(&format!("{endpoint} check passed\n")),
            (false, _) => page.push_str(&format!("{endpoint} check failed\n")),
        }
        (passed, page)
    }
}
