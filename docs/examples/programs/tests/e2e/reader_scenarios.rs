//! Scenarios for programs without a controller: both engines must print the same lines, and send the same responses.

use std::sync::Arc;
use std::time::Duration;

use example_programs::readers::{flyball, kube_runtime};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Secret};
use kube::api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, from_value, json};

use super::life::{InTurn, Life, World, on_both};

type Lines = Arc<Mutex<Vec<String>>>;

/// Returns the lines that both engines print. The lines are sorted, because the order of events of different kinds is not defined.
async fn printed<W: World>(
    world: &W,
    kubes: impl FnOnce(Client) -> BoxStream<'static, String>,
    ours: impl FnOnce(Client) -> BoxStream<'static, String>,
    scenario: impl AsyncFn(&Life),
) -> Vec<String> {
    let of_kube = Lines::default();
    let of_ours = Lines::default();
    let into = |lines: &Lines, stream: BoxStream<'static, String>| {
        let lines = lines.clone();
        let note = move |line| {
            lines.lock().push(line);
            std::future::ready(())
        };
        stream.for_each(note).boxed()
    };
    on_both(
        world,
        |client| into(&of_kube, kubes(client)),
        // `ours` starts an informer, so it must be called in a tokio task: `on_both` does this.
        |client| into(&of_ours, ours(client)),
        scenario,
    )
    .await;
    let sorted = |lines: &Lines| {
        let mut lines = lines.lock().clone();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&of_ours), sorted(&of_kube));
    sorted(&of_ours)
}

fn watched(data: &str) -> Value {
    json!({"metadata": {"labels": {"watched": "yes"}}, "data": {"k": data}})
}

pub(crate) async fn dynamic(world: &impl World) {
    let kind = || ApiResource::erase::<ConfigMap>(&());
    let lines = printed(
        world,
        |client| kube_runtime::dynamic(client, kind()).boxed(),
        |client| flyball::dynamic(client, kind()).boxed(),
        async |life: &Life| {
            life.create::<ConfigMap>("a", watched("1")).await;
            life.create::<ConfigMap>("other", json!({})).await;
            life.settle().await;
            life.merge::<ConfigMap>("a", watched("2")).await;
            life.settle().await;
            life.delete::<ConfigMap>("a").await;
        },
    )
    .await;
    assert_eq!(lines, [r#"a {"k":"1"}"#, r#"a {"k":"2"}"#, r#"a {"k":"2"}"#], "the last is its deletion");
}

pub(crate) async fn events(world: &impl World) {
    let event = |name: &str, namespace: String| -> Event {
        from_value(json!({"metadata": {"name": name}, "reason": name, "message": "happened",
            "involvedObject": {"kind": "ConfigMap", "namespace": namespace, "name": "a"}}))
        .unwrap()
    };
    let lines = printed(
        world,
        |client| kube_runtime::events(client).boxed(),
        |client| flyball::events(client).boxed(),
        async |life: &Life| {
            let events = Api::<Event>::default_namespaced(life.client());
            for name in ["begun", "ended"] {
                let event = event(name, life.client().default_namespace().to_owned());
                events.create(&PostParams::default(), &event).await.unwrap();
            }
            life.settle().await;
            events.delete("begun", &DeleteParams::default()).await.unwrap();
        },
    )
    .await;
    assert_eq!(lines, ["begun: happened", "ended: happened"]);
}

pub(crate) async fn multi(world: &impl World) {
    let lines = printed(
        world,
        |client| kube_runtime::multi(client).boxed(),
        |client| flyball::multi(client).boxed(),
        async |life: &Life| {
            life.create::<ConfigMap>("a", watched("1")).await;
            life.create::<Secret>("b", json!({"metadata": {"labels": {"watched": "yes"}}})).await;
            life.settle().await;
            life.merge::<ConfigMap>("a", watched("2")).await;
            life.delete::<Secret>("b").await;
        },
    )
    .await;
    assert_eq!(lines, ["config map a", "config map a", "secret b"]);
}

pub(crate) async fn nodes(world: &impl World) {
    let lines = printed(
        &InTurn(world),
        |client| kube_runtime::nodes(client).boxed(),
        |client| flyball::nodes(client).boxed(),
        async |life: &Life| {
            let nodes = Api::<Node>::all(life.client());
            let metadata = json!({"name": "watched", "labels": {"watched": "yes"}});
            let node: Node = from_value(json!({ "metadata": metadata })).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
            for (ready, reason) in [("True", "Ready"), ("False", "Full"), ("True", "Ready"), ("False", "Hot")]
            {
                let condition = json!({"type": "Ready", "status": ready, "reason": reason});
                let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
                nodes.patch_status("watched", &PatchParams::default(), &status).await.unwrap();
                life.settle().await;
            }
            nodes.delete("watched", &DeleteParams::default()).await.unwrap();
        },
    )
    .await;
    assert_eq!(lines, ["watched: Full", "watched: Hot"]);
}

pub(crate) async fn versions(world: &impl World) {
    let answers = [Lines::default(), Lines::default()];
    let [of_kube, of_ours] = answers.clone();
    // A kube-runtime store does not report changes, so the test polls the server, and records each response that differs from the previous one.
    macro_rules! asking {
        ($engine:ident, $lines:ident) => {
            |client| {
                Box::pin(async move {
                    let server = $engine::Server::start(client).await;
                    let mut answer = String::new();
                    loop {
                        let new = server.versions().join(", ");
                        if new != answer {
                            $lines.lock().push(new.clone());
                            answer = new;
                        }
                        // The scenario waits longer than this between two changes, so the test sees the response after each change.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                })
            }
        };
    }
    on_both(world, asking!(kube_runtime, of_kube), asking!(flyball, of_ours), async |life: &Life| {
        let deployment = |image: &str| {
            let pod = json!({"containers": [{"name": "main", "image": image}]});
            let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod});
            json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}})
        };
        life.create::<Deployment>("a", deployment("web:1")).await;
        life.settle().await;
        life.merge::<Deployment>("a", deployment("web:2")).await;
        life.settle().await;
        life.create::<Deployment>("b", deployment("web")).await;
        life.settle().await;
        life.delete::<Deployment>("a").await;
    })
    .await;
    for answers in answers {
        assert_eq!(*answers.lock(), ["a 1", "a 2", "a 2, b latest", "b latest"]);
    }
}
