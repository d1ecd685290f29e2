//! `cargo xtask shuttle`: runs every model under random and PCT schedules.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::loom;
use crate::models::{self, Checker, Extent};
use crate::process::{self, Ended};
use crate::workspace::Workspace;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only models whose name contains this text.
    name: Option<String>,
    /// Each model is run with this number of random schedules, and with the same number of PCT schedules.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    iterations: u64,
    /// A model fails if it has not completed after this number of seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
}

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "`cargo xtask shuttle NAME` runs one model; its log, target/models/logs/NAME.shuttle.log, has the seed of the schedule";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let models = models::declared(workspace, options.name.as_deref())?;
    ensure!(!models.is_empty(), "no model is called {:?}", options.name.as_deref().unwrap_or(""));
    let extent = Extent::Holding(&models);
    let Ok(binaries) = models::build(workspace, &workspace.root, Checker::Shuttle, extent)? else {
        bail!("the models do not compile");
    };
    let failures = process::on_all_processors(&models, |model| -> Result<Option<String>> {
        let log = loom::log_file(workspace, &format!("{}.shuttle", model.name))?;
        let mut command = loom::command(model, &binaries)?;
        command.env("FLYBALL_SHUTTLE_ITERATIONS", options.iterations.to_string());
        Ok(match process::run_logged(&mut command, &log, Duration::from_secs(options.limit))? {
            Ended::By(status) if status.success() => {
                println!("{} passes", model.name);
                None
            }
            Ended::By(_) => Some(format!("{}\n{}", model.name, process::tail(&log, 40))),
            Ended::Late => Some(format!("{}: timed out after {} s", model.name, options.limit)),
        })
    })?;
    let failures: Vec<_> = failures.into_iter().collect::<Result<_>>()?;
    let complaints: Vec<_> = failures.into_iter().flatten().collect();
    process::verdict(&complaints, WHAT_TO_DO)?;
    eprintln!(
        "{} models, {} random and {} PCT schedules each",
        models.len(),
        options.iterations,
        options.iterations
    );
    Ok(())
}
