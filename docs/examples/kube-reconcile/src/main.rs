//! Uses flyball's queue to run reconcile functions that were written for kube-runtime. The program needs no cluster: it creates
//! objects in memory and fills the store of a reflector itself. tokio's clock is paused, so the program does not really wait.
//!
//! `cargo run -p kube-reconcile`

#![allow(clippy::disallowed_types, reason = "user code may use std's locks")]

mod run;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flyball_workqueue::DrainOptions;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_runtime::controller::Action;
use kube_runtime::reflector::{self, ObjectRef};
use kube_runtime::watcher::Event;
use tokio::time::Instant;

// === existing code, written for kube-runtime ===

#[derive(Debug)]
struct Unreachable;

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the database cannot be reached")
    }
}

impl std::error::Error for Unreachable {}

/// The reconciles that have run: the name of each object, and the second in which it was reconciled.
struct Context {
    start: Instant,
    runs: Mutex<Vec<(String, u64)>>,
}

async fn reconcile(object: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Unreachable> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let mut runs = context.runs.lock().expect("no reconcile panics while it holds the lock");
    runs.push((name.clone(), context.start.elapsed().as_secs()));
    let times = runs.iter().filter(|(other, _)| *other == name).count();
    drop(runs);
    match name.as_str() {
        "steady" => Ok(Action::requeue(Duration::from_secs(60))),
        "failing" if times < 4 => Err(Unreachable),
        "panicking" if times < 2 => panic!("a bug in the reconciler"),
        _ => Ok(Action::await_change()),
    }
}

fn error_policy(_: Arc<ConfigMap>, error: &Unreachable, _: Arc<Context>) -> Action {
    eprintln!("will be tried again: {error}");
    Action::requeue(Duration::from_secs(2))
}

// === new code ===

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    let (store, mut writer) = reflector::store::store::<ConfigMap>();
    let queue = run::queue();
    // In a program with a cluster, the events come from the stream `watcher(api, config)`: pass each event to the writer, and then add the key of its
    // object to the queue. Add the keys of a list only after the store contains the whole list, so that no reconcile reads an old state.
    let objects = ["quiet", "steady", "failing", "panicking"].map(config_map);
    writer.apply_watcher_event(&Event::Init);
    for object in &objects {
        writer.apply_watcher_event(&Event::InitApply(object.clone()));
    }
    writer.apply_watcher_event(&Event::InitDone);
    for object in &objects {
        queue.add(ObjectRef::from_obj(object)).expect("the queue is open");
    }
    queue.add(ObjectRef::new("gone").within("default")).expect("the queue is open"); // the object was deleted before its key ran

    let context = Arc::new(Context { start: Instant::now(), runs: Mutex::default() });
    let user = async {
        tokio::time::sleep(Duration::from_secs(150)).await;
        // Waits until no key is Ready or running, and returns the waiting keys.
        queue.drain(DrainOptions::unlimited()).await
    };
    let reconciles = run::run(&queue, &store, 4, reconcile, error_policy, context.clone());
    let ((), left) = tokio::join!(reconciles, user);

    let mut runs = context.runs.lock().expect("no reconcile panics while it holds the lock").clone();
    runs.sort();
    let expected = [
        // `error_policy` always returns 2 s; the backoff of the key is 1 s, then 2 s, then 4 s. The longer of the two delays applies.
        ("failing", 0),
        ("failing", 2),
        ("failing", 4),
        ("failing", 8),
        // After a panic only the backoff of this key applies, and other keys are not affected.
        ("panicking", 0),
        ("panicking", 1),
        ("quiet", 0),
        ("steady", 0),
        ("steady", 60),
        ("steady", 120),
    ];
    assert_eq!(runs, expected.map(|(name, at)| (name.to_owned(), at)));
    assert_eq!(left.waiting, [ObjectRef::from_obj(&objects[1])]);
    println!("{} reconciles in {} s of virtual time", runs.len(), context.start.elapsed().as_secs());
}

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("default".to_owned()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}
