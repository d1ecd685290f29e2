//! One watch for several controllers, as in kube-rs's `shared_stream_controllers`: there is only one reflector of pods. One controller annotates each
//! pod; a second controller counts the pods that each ConfigMap owns.

program! {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::StreamExt;
    use futures::future::join3;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::api::{Patch, PatchParams};
    use kube::runtime::controller::Action;
    use kube::runtime::reflector::{self, ReflectHandle, Store};
    use kube::runtime::{WatchStreamExt, watcher};
    use kube::{Api, Client, ResourceExt};
    use serde_json::json;

    const BUFFER: usize = 256;

    struct Context {
        client: Client,
        pods: Store<Pod>,
    }

    /// Runs both controllers until the future is dropped.
    ///
    /// # Panics
    /// Never panics: `subscribe` returns `Some`, because the store is created as a shared store.
    pub async fn run(client: Client) {
        let (reader, writer) = reflector::store_shared::<Pod>(BUFFER);
        let marked: ReflectHandle<Pod> = writer.subscribe().expect("the store is shared");
        let counted = writer.subscribe().expect("the store is shared");
        let pods = Api::<Pod>::default_namespaced(client.clone());
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let reflected = watcher(pods, watcher::Config::default())
            .default_backoff()
            .reflect_shared(writer)
            .for_each(|_| async {});

        let context = Arc::new(Context { client, pods: reader.clone() });
        let marks = Controller::for_shared_stream(marked, reader)
            .run(mark, error_policy, context.clone())
            .for_each(|_| async {});
        let counts = Controller::new(maps, watcher::Config::default())
            .owns_shared_stream(counted)
            .run(count, error_policy, context)
            .for_each(|_| async {});
        join3(reflected, marks, counts).await;
    }

    async fn mark(pod: Arc<Pod>, context: Arc<Context>) -> Result<Action, kube::Error> {
        if !pod.annotations().contains_key("marked") {
            let pods = Api::<Pod>::default_namespaced(context.client.clone());
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { "marked": "yes" } } }));
            pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(Action::await_change())
    }

    async fn count(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let owned = |pod: &&Arc<Pod>| pod.owner_references().iter().any(|owner| Some(&owner.uid) == map.uid().as_ref());
        let count = context.pods.state().iter().filter(owned).count().to_string();
        if map.data.as_ref().and_then(|data| data.get("pods")) != Some(&count) {
            let maps = Api::<ConfigMap>::default_namespaced(context.client.clone());
            let patch = Patch::Merge(json!({ "data": { "pods": count } }));
            maps.patch(&map.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(Action::await_change())
    }

    fn error_policy<K>(_: Arc<K>, _: &kube::Error, _: Arc<Context>) -> Action {
        Action::requeue(Duration::from_secs(1))
    }
}
