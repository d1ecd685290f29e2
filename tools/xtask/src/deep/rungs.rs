//! The rungs: what each shows, its bar, its parts, and how a slice of it runs.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use super::slices::{self, Done, Work};
use super::sources::ALL;
use crate::e2e::binaries;
use crate::features;
use crate::fuzz;
use crate::models::{self, Checker};
use crate::workspace::{Workspace, cargo};

/// One kind of evidence.
#[derive(Debug)]
pub(super) struct Rung {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// What is counted for each item.
    pub(super) unit: &'static str,
    pub(super) bar: Bar,
    pub(super) parts: fn(&Workspace) -> Result<Vec<Part>>,
    /// Returns the name of a missing tool, with how to install it; `None` if no tool is missing.
    pub(super) missing: fn(&Workspace) -> Option<String>,
    /// The crates and programs whose versions the ledger states, besides the compiler.
    pub(super) tools: &'static [&'static str],
    /// Runs one slice.
    pub(super) run: fn(&Work<'_>) -> Result<Done>,
}

/// How much work each item of a rung needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bar {
    /// This number of units, summed over all slices.
    Each(u64),
    /// The exploration of the model is complete.
    Explored,
}

/// The part of a rung that covers one crate.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) package: String,
    /// What is counted separately.
    pub(super) items: Vec<String>,
}

/// The rungs, in the order of the page. Bars are the numbers of a full run; see `CONTRIBUTING.md`.
pub(super) const RUNGS: &[Rung] = &[
    Rung {
        name: "faults",
        what: "Every model completes at 3 preemptions and catches its seeded fault",
        unit: "faults caught",
        bar: Bar::Each(1),
        parts: |workspace| by_crate(workspace, usize::MAX),
        missing: nothing,
        tools: &["loom"],
        run: slices::faults,
    },
    Rung {
        name: "random",
        what: "Random operations of each core give the same results as its oracle",
        unit: "cases of each test",
        bar: Bar::Each(10_000_000),
        parts: |_| Ok(whole(&["flyball-ratelimit", "flyball-workqueue", "flyball-informer-cache"])),
        missing: nothing,
        tools: &[],
        run: |work| slices::cases(work, &[]),
    },
    Rung {
        name: "simulation",
        what: "Controllers and leader elections keep their promises in random runs with faults, on virtual time",
        unit: "runs of each test",
        bar: Bar::Each(1_000_000),
        parts: |_| Ok(whole(&["flyball-controller", "flyball-kube-lease", "flyball-kube"])),
        missing: nothing,
        tools: &[],
        run: |work| slices::cases(work, &["simulation", "leader_random", "in_random_elections"]),
    },
    Rung {
        name: "newest-kube",
        what: "The delay of an `Action` is read with the newest kube that the manifests allow",
        unit: "runs",
        bar: Bar::Each(1),
        parts: |_| Ok(whole(&["flyball-kube"])),
        missing: nothing,
        tools: &[],
        run: slices::newest_kube,
    },
    Rung {
        name: "fuzz",
        what: "Operations that a coverage-guided fuzzer generates give the same results as the oracles",
        unit: "executions",
        bar: Bar::Each(1_000_000_000),
        parts: targets,
        missing: cargo_fuzz,
        tools: &["cargo-fuzz"],
        run: |work| slices::fuzz(work, false),
    },
    Rung {
        name: "fuzz-asan",
        what: "The same under the address sanitizer",
        unit: "executions",
        bar: Bar::Each(100_000_000),
        parts: targets,
        missing: cargo_fuzz,
        tools: &["cargo-fuzz"],
        run: |work| slices::fuzz(work, true),
    },
    Rung {
        name: "shuttle",
        what: "Every model passes under random and under PCT schedules",
        unit: "schedules of each kind",
        bar: Bar::Each(10_000_000),
        parts: |workspace| by_crate(workspace, usize::MAX),
        missing: nothing,
        tools: &["shuttle"],
        run: slices::shuttle,
    },
    Rung {
        name: "loom-4",
        what: "Every model passes in every interleaving with at most 4 preemptions",
        unit: "interleavings",
        bar: Bar::Explored,
        parts: |workspace| by_crate(workspace, usize::MAX),
        missing: nothing,
        tools: &["loom"],
        run: |work| slices::loom(work, Some(4)),
    },
    Rung {
        name: "loom-unbounded",
        what: "Every model of at most three threads passes in every interleaving",
        unit: "interleavings",
        bar: Bar::Explored,
        parts: |workspace| by_crate(workspace, 3),
        missing: nothing,
        tools: &["loom"],
        run: |work| slices::loom(work, None),
    },
    Rung {
        name: "parity",
        what: "New scripts get the same answers from flyball, client-go and the reference",
        unit: "scripts",
        bar: Bar::Each(1_000_000),
        parts: |_| Ok(whole(&["flyball-workqueue", "flyball-ratelimit", "flyball-informer-cache"])),
        missing: go,
        tools: &["go"],
        run: slices::parity,
    },
    Rung {
        name: "e2e",
        what: "The tests on a real Kubernetes API server pass",
        unit: "runs",
        bar: Bar::Each(1),
        parts: |_| Ok(whole(&[ALL])),
        missing: |workspace| if binaries::cached(workspace) { None } else { go(workspace) },
        tools: &["go"],
        run: slices::e2e,
    },
    Rung {
        name: "book",
        what: "Every program of the book runs as a separate project, with the dependencies that its page lists",
        unit: "runs",
        bar: Bar::Each(1),
        parts: |_| Ok(whole(&[ALL])),
        missing: mdbook,
        tools: &[],
        run: slices::book,
    },
    Rung {
        name: "faults-unseen",
        what: "The ordinary tests of a crate pass with each of its seeded faults, so that only the model finds the fault",
        unit: "faults that the tests do not find",
        bar: Bar::Each(1),
        parts: |workspace| by_crate(workspace, usize::MAX),
        missing: nothing,
        tools: &[],
        run: slices::unseen,
    },
    Rung {
        name: "features",
        what: "Every set of features compiles, and the tests pass with none, with each alone and with all",
        unit: "runs",
        bar: Bar::Each(1),
        parts: |workspace| {
            let part = |package: &crate::workspace::Package| {
                let items = features::sets(package).into_iter().map(|set| features::name(&set)).collect();
                Part { package: package.name.clone(), items }
            };
            Ok(workspace.published().map(part).collect())
        },
        missing: nothing,
        tools: &[],
        run: slices::features,
    },
    Rung {
        name: "deny",
        what: "Licences, sources and known vulnerabilities of all dependencies",
        unit: "runs",
        bar: Bar::Each(1),
        parts: |_| Ok(whole(&[ALL])),
        missing: cargo_deny,
        tools: &["cargo-deny"],
        run: slices::deny,
    },
];

/// One part per crate, which is its only item.
fn whole(packages: &[&str]) -> Vec<Part> {
    let part = |name: &&str| Part { package: (*name).to_owned(), items: vec![(*name).to_owned()] };
    packages.iter().map(part).collect()
}

/// The models with at most this number of threads, by the crate that they check.
fn by_crate(workspace: &Workspace, threads: usize) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for model in models::declared(workspace, None)?.into_iter().filter(|model| model.threads <= threads) {
        let package = model.package();
        match parts.iter_mut().find(|part| part.package == package) {
            Some(part) => part.items.push(model.name),
            None => parts.push(Part { package: package.to_owned(), items: vec![model.name] }),
        }
    }
    Ok(parts)
}

/// The fuzz targets, by the crate whose driver they call.
fn targets(workspace: &Workspace) -> Result<Vec<Part>> {
    let all = fuzz::targets(&workspace.read("fuzz/Cargo.toml")?);
    let part = |(package, names): (&str, &[&str])| Part {
        package: package.to_owned(),
        items: all.iter().filter(|target| names.contains(&target.as_str())).cloned().collect(),
    };
    Ok(TARGETS.iter().map(|(package, names)| part((package, names))).collect())
}

const TARGETS: [(&str, &[&str]); 4] = [
    ("flyball-ratelimit", &["bucket_math", "bucket_ops", "limiter_ops", "limiter_simulation"]),
    ("flyball-workqueue", &["queue_ops", "order_ops", "deadlines", "queue_simulation"]),
    (
        "flyball-informer-cache",
        &[
            "reflector_inputs",
            "relist",
            "selector",
            "store_ops",
            "subscription",
            "ttl_ops",
            "cache_simulation",
        ],
    ),
    ("flyball-controller", &["controller_ops"]),
];

/// The checker with which the models of a rung are built.
pub(super) fn checker(rung: &str) -> Checker {
    if rung == "shuttle" { Checker::Shuttle } else { Checker::Loom }
}

fn nothing(_: &Workspace) -> Option<String> {
    None
}

fn go(_: &Workspace) -> Option<String> {
    let install = "install Go 1.26 or newer, see go.dev/dl";
    (!answers(Command::new("go").arg("version"))).then(|| format!("Go is missing: {install}"))
}

fn cargo_fuzz(workspace: &Workspace) -> Option<String> {
    missing_subcommand(workspace, "fuzz", "cargo install --locked cargo-fuzz@0.13.2")
}

fn mdbook(workspace: &Workspace) -> Option<String> {
    let here = workspace.target.join("ci/bin/mdbook");
    let found =
        [Path::new("mdbook"), &here].iter().any(|program| answers(Command::new(program).arg("--version")));
    (!found).then(|| "mdbook is missing: `.ci/run book` installs it".to_owned())
}

/// `cargo deny` compares the dependencies with a database that it fetches. Without a network, nothing would be checked.
fn cargo_deny(workspace: &Workspace) -> Option<String> {
    let fetches = || {
        let mut fetch = cargo();
        fetch.args(["deny", "fetch", "db"]);
        slices::with_tools(workspace, fetch).is_ok_and(|mut fetch| answers(&mut fetch))
    };
    missing_subcommand(workspace, "deny", "cargo install --locked cargo-deny@0.20.2").or_else(|| {
        (!fetches()).then(|| "the database of known vulnerabilities cannot be fetched".to_owned())
    })
}

fn missing_subcommand(workspace: &Workspace, name: &str, install: &str) -> Option<String> {
    let program = format!("cargo-{name}");
    let here = workspace.target.join("ci/bin").join(&program);
    let found = |program: &Path| answers(Command::new(program).args([name, "--version"]));
    (!found(Path::new(&program)) && !found(&here)).then(|| format!("{program} is missing: `{install}`"))
}

fn answers(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
pub(super) fn sample(name: &'static str, bar: Bar) -> Rung {
    Rung {
        name,
        what: "A test",
        unit: "runs",
        bar,
        parts: |_| Ok(Vec::new()),
        missing: nothing,
        tools: &[],
        run: |_| Ok(Done::default()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// In CI, each rung is a job of its own. A rung that the matrix leaves out would never run there.
    #[test]
    fn the_workflow_runs_every_rung() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.github/workflows/deep.yml");
        let workflow = std::fs::read_to_string(path).unwrap();
        let lists: Vec<&str> =
            workflow.lines().filter_map(|line| line.trim().strip_prefix("rung: ")).collect();
        let names: Vec<&str> = RUNGS.iter().map(|rung| rung.name).collect();
        assert_eq!(lists, [format!("[{}]", names.join(", "))]);
    }

    #[test]
    fn rungs_have_names_of_their_own() {
        let names: BTreeSet<&str> = RUNGS.iter().map(|rung| rung.name).collect();
        assert_eq!(names.len(), RUNGS.len());
    }

    #[test]
    fn every_part_has_items_and_every_fuzz_target_is_in_one() {
        let workspace = Workspace::open().unwrap();
        for rung in RUNGS {
            let parts = (rung.parts)(&workspace).unwrap();
            let packages: BTreeSet<&str> = parts.iter().map(|part| part.package.as_str()).collect();
            assert_eq!(packages.len(), parts.len(), "{}", rung.name);
            for part in &parts {
                assert!(!part.items.is_empty(), "{}: {}", rung.name, part.package);
                let known = |name: &str| workspace.published().any(|package| package.name == name);
                assert!(part.package == ALL || known(&part.package), "{}", part.package);
            }
        }
        let listed: usize = targets(&workspace).unwrap().iter().map(|part| part.items.len()).sum();
        assert_eq!(listed, fuzz::targets(&workspace.read("fuzz/Cargo.toml").unwrap()).len());
    }
}
