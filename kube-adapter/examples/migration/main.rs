//! One controller, run by kube-runtime and by flyball: the functions `before` and `after` show the difference.
//!
//! Both functions run against an API server in memory, with the same sequence of changes, and must leave the same objects.
//!
//! `cargo run -p flyball-kube --example migration`

mod notes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube_testing::ApiServer;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

use crate::notes::{Context, Note, NoteSpec, error_policy, reconcile};

/// The program with kube-runtime.
async fn before(client: Client, end: impl Future<Output = ()> + Send + Sync + 'static) {
    use kube::runtime::{Controller, watcher};

    Controller::new(Api::<Note>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .graceful_shutdown_on(end)
        .run(reconcile, error_policy, Arc::new(Context { client }))
        .for_each(|result| async move { println!("  {}", describe(&result)) })
        .await;
}

/// The program with flyball.
async fn after(client: Client, end: impl Future<Output = ()> + Send + Sync + 'static) {
    use flyball_kube::Controller;
    use kube::runtime::watcher;

    Controller::new(Api::<Note>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .graceful_shutdown_on(end)
        .run(reconcile, error_policy, Arc::new(Context { client }))
        .for_each(|result| async move { println!("  {}", describe(&result)) })
        .await;
}

fn describe<O: std::fmt::Debug, E: std::fmt::Display>(result: &Result<O, E>) -> String {
    match result {
        Ok(_) => "reconciled".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Creates notes, changes one, and deletes a ConfigMap that the controller must restore. Returns, for each ConfigMap, its text and the length in the
/// status of its note.
async fn live(server: &ApiServer) -> BTreeMap<String, (String, usize)> {
    let client = server.client();
    let notes = Api::<Note>::namespaced(client.clone(), "default");
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let settle = || sleep(Duration::from_secs(5));
    let note = |name: &str, text: &str| Note::new(name, NoteSpec { text: text.to_owned() });

    for (name, text) in [("a", "one"), ("b", "two"), ("empty", "")] {
        notes.create(&Default::default(), &note(name, text)).await.expect("the name is new");
    }
    settle().await;
    let mut changed = notes.get("b").await.expect("the note exists");
    changed.spec.text = "twenty".to_owned();
    notes.replace("b", &Default::default(), &changed).await.expect("no other client writes the spec");
    maps.delete("a", &Default::default()).await.expect("the ConfigMap exists");
    settle().await;

    let lengths: BTreeMap<_, _> = (server.list::<Note>().iter())
        .map(|note| (note.name_any(), note.status.as_ref().map_or(0, |status| status.length)))
        .collect();
    let text = |map: &ConfigMap| map.data.as_ref().map(|data| data["text"].clone()).unwrap_or_default();
    let maps = server.list::<ConfigMap>();
    maps.iter().map(|map| (map.name_any(), (text(map), lengths[&map.name_any()]))).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    let mut outcomes = Vec::new();
    for flyball in [false, true] {
        println!("{}:", if flyball { "flyball" } else { "kube-runtime" });
        let server = ApiServer::new();
        server.register::<Note>().register::<ConfigMap>();
        let (say, end) = tokio::sync::oneshot::channel::<()>();
        let end = async { drop(end.await) };
        let controller = match flyball {
            false => tokio::spawn(before(server.client(), end)),
            true => tokio::spawn(after(server.client(), end)),
        };
        outcomes.push(live(&server).await);
        say.send(()).expect("the controller runs");
        controller.await.expect("the controller ends gracefully");
    }
    let expected = [("a", "one", 3), ("b", "twenty", 6)];
    let expected = expected.map(|(name, text, length)| (name.to_owned(), (text.to_owned(), length)));
    assert_eq!(outcomes[0], BTreeMap::from(expected));
    assert_eq!(outcomes[1], outcomes[0]);
    println!("both leave the same behind");
}
