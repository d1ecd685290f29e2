//! SHELL. Named checks, and the response to a probe in the format of the Kubernetes API server. There is no lock, because every request runs the
//! checks itself.

use std::fmt::{Display, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The checks of one endpoint.
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

    /// Returns whether all checks pass, and a page with one line for each failed check. With `verbose`, the page also
    /// has a line for each passed check.
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
                    // The reason is printed on one line, even if its text has several lines.
                    writeln!(page, "[-]{name} failed: {}", reason.replace(['\r', '\n'], " "))
                }
            };
            line.expect("writing to a string cannot fail");
        }
        match (passed, verbose) {
            (true, false) => page.push_str("ok"),
            (true, true) => page.push_str(&format!("{endpoint} check passed\n")),
            (false, _) => page.push_str(&format!("{endpoint} check failed\n")),
        }
        (passed, page)
    }
}
