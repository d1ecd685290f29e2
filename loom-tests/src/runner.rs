//! Runs one model and checks the run against the model's claims. A run with only one interleaving fails, unless the floor of the model is 1.

use crate::engine::{self, Body, Explored};
use crate::report;

/// The claims about a model. The runner checks them against the run.
///
/// The fields are shown in the report and in `MODELS.md`. A run that contradicts `threads` or `floor` fails.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// `area::test`. The last part is the name of the test function; the whole name identifies the seeded fault in
    /// `loom-tests/faults`.
    pub name: &'static str,
    /// The number of threads, including the main thread: at most 5 under loom.
    pub threads: usize,
    /// The number of interleavings with at most three preemptions when the floor was recorded, possibly rounded down. A run with
    /// fewer interleavings fails, because the model then no longer exercises the code. A run with more than four times as many
    /// fails, too, and the floor must be recorded again. A model with a single interleaving has the floor 1.
    pub floor: u64,
    /// A short description of the fault that this model catches.
    pub catches: &'static str,
}

/// Checks `body` in every interleaving (loom), in many interleavings (shuttle), or in one run (neither).
///
/// The exploration is complete unless the variable `FLYBALL_MODEL_SECONDS` limits its time: the runner sets no cap of loom's other than this one.
/// An exploration that was stopped is reported as capped, and leaves a checkpoint from which the next run goes on if
/// `FLYBALL_MODEL_CHECKPOINT` names a file. Exceeding the branch limit panics.
///
/// # Panics
/// Panics if an interleaving panics, deadlocks or leaks, or if a claim of `model` does not hold.
///
/// # Examples
/// ```
/// use loom_tests::{Arc, Model, model, thread};
///
/// model(
///     Model { name: "doc::handle_is_shared", threads: 2, floor: 1, catches: "nothing: an example" },
///     || {
///         let shared = Arc::new(7);
///         let other = shared.clone();
///         let reader = thread::spawn(move || *other);
///         assert_eq!(*shared, reader.join().unwrap());
///     },
/// );
/// ```
#[track_caller]
pub fn model(model: Model, body: impl Fn() + Send + Sync + 'static) {
    models(model, [(String::new(), body)]);
}

/// Like [`model`], with many small bodies instead of one. Each body is explored completely and separately.
///
/// The number of interleavings is the sum over the bodies; the number of threads is the maximum. If a body fails, its name is printed.
///
/// # Panics
/// Panics like `model`.
#[track_caller]
pub fn models<B: Fn() + Send + Sync + 'static>(model: Model, bodies: impl IntoIterator<Item = (String, B)>) {
    let mut failing = Named(model.name, String::new());
    let bodies: Vec<_> = bodies.into_iter().collect();
    let many = bodies.len();
    let mut sum: Option<Explored> = None;
    for (at, (name, body)) in bodies.into_iter().enumerate() {
        failing.1 = name;
        let explored = engine::run(&model, Body { at, of: many }, body);
        sum = match (sum, explored) {
            (Some(sum), Some(explored)) => Some(sum.and(&explored)),
            (sum, explored) => sum.or(explored),
        };
    }
    failing.1.clear();
    if let Some(explored) = sum {
        if let Err(why) = judge(&model, &explored) {
            panic!("{why}");
        }
        report::append(&model, &explored);
    }
    std::mem::forget(failing);
}

/// Runs `body` once, without an exploration, in an environment in which the model's locks and atomics work. Use it to
/// compute the values with which a model compares its results.
pub fn once(body: impl Fn() + Send + Sync + 'static) {
    engine::once(body);
}

/// Prints the name of the model when an exploration unwinds, and the name of the body if there are several, because the
/// panic message of an interleaving contains neither.
struct Named(&'static str, String);

impl Drop for Named {
    fn drop(&mut self) {
        if !self.1.is_empty() {
            eprintln!("in the body {}", self.1);
        }
        eprintln!("model {} failed", self.0);
    }
}

/// The preemption bound at which the floors are recorded.
const FLOOR_PREEMPTIONS: usize = 3;

/// Checks the claims.
fn judge(model: &Model, explored: &Explored) -> Result<(), String> {
    let &Model { name, threads, floor, .. } = model;
    let &Explored { interleavings, preemptions, complete, .. } = explored;
    if !complete {
        return Ok(());
    }
    if explored.threads != threads {
        return Err(format!("{name}: {} threads ran, {threads} are declared", explored.threads));
    }
    if interleavings == 1 && floor != 1 {
        return Err(format!("{name}: one interleaving only; no lock or atomic of the model was reached"));
    }
    if !explored.floors_apply {
        return Ok(());
    }
    if preemptions.is_none_or(|bound| bound >= FLOOR_PREEMPTIONS) && interleavings < floor {
        return Err(format!("{name}: {interleavings} interleavings, below the recorded floor {floor}"));
    }
    let ceiling = if floor == 1 { 1 } else { floor.saturating_mul(4) };
    if preemptions == Some(FLOOR_PREEMPTIONS) && interleavings > ceiling {
        return Err(format!(
            "{name}: {interleavings} interleavings; record the floor again, it says {floor}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model { name: "a::b", threads: 3, floor: 100, catches: "" };

    fn explored(interleavings: u64) -> Explored {
        Explored {
            interleavings,
            threads: 3,
            preemptions: Some(3),
            seconds: 0.0,
            complete: true,
            floors_apply: true,
        }
    }

    #[test]
    fn a_run_as_declared_passes() {
        assert_eq!(judge(&MODEL, &explored(100)), Ok(()));
        assert_eq!(judge(&MODEL, &explored(400)), Ok(()));
    }

    #[test]
    fn fewer_interleavings_than_recorded_fail() {
        let why = judge(&MODEL, &explored(99)).unwrap_err();
        assert_eq!(why, "a::b: 99 interleavings, below the recorded floor 100");
    }

    #[test]
    fn a_floor_that_says_nothing_fails() {
        let why = judge(&MODEL, &explored(401)).unwrap_err();
        assert_eq!(why, "a::b: 401 interleavings; record the floor again, it says 100");
    }

    #[test]
    fn one_interleaving_must_be_declared() {
        let why = judge(&MODEL, &explored(1)).unwrap_err();
        assert_eq!(why, "a::b: one interleaving only; no lock or atomic of the model was reached");
        assert_eq!(judge(&Model { floor: 1, ..MODEL }, &explored(1)), Ok(()));
        assert!(judge(&Model { floor: 1, ..MODEL }, &explored(2)).is_err());
    }

    #[test]
    fn threads_are_counted() {
        let why = judge(&MODEL, &Explored { threads: 2, ..explored(100) }).unwrap_err();
        assert_eq!(why, "a::b: 2 threads ran, 3 are declared");
    }

    #[test]
    fn a_smaller_bound_has_no_floor_and_a_larger_one_no_ceiling() {
        assert_eq!(judge(&MODEL, &Explored { preemptions: Some(2), ..explored(2) }), Ok(()));
        assert_eq!(judge(&MODEL, &Explored { preemptions: None, ..explored(1_000_000) }), Ok(()));
        let why = judge(&MODEL, &Explored { preemptions: None, ..explored(99) }).unwrap_err();
        assert_eq!(why, "a::b: 99 interleavings, below the recorded floor 100");
    }

    #[test]
    fn a_capped_exploration_claims_nothing() {
        let capped = Explored { complete: false, ..explored(5) };
        assert_eq!(judge(&MODEL, &capped), Ok(()));
        assert!(
            !explored(5).and(&capped).complete
                && !Explored { complete: false, ..explored(1) }.and(&explored(5)).complete
        );
    }

    #[test]
    fn a_seeded_fault_is_not_caught_by_the_floor() {
        assert_eq!(judge(&MODEL, &Explored { floors_apply: false, ..explored(2) }), Ok(()));
        assert!(judge(&MODEL, &Explored { floors_apply: false, ..explored(1) }).is_err());
    }
}
