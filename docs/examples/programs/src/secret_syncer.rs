//! Cleans up objects that have no owner reference, like kube-rs's `secret_syncer`: each ConfigMap has a Secret with the same name, which the
//! finalizer of the ConfigMap must delete.

program! {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
    use kube::runtime::controller::Action;
    use kube::runtime::finalizer::{Error, Event, finalizer};
    use kube::runtime::watcher;
    use kube::{Api, Client, ResourceExt};

    const FINALIZER: &str = "example.com/secret-syncer";

    /// Runs the controller until the future is dropped.
    pub async fn run(client: Client) {
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        Controller::new(maps, watcher::Config::default())
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(2)), Arc::new(client))
            .for_each(|_| async {})
            .await;
    }

    async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, Error<kube::Error>> {
        let maps = Api::<ConfigMap>::default_namespaced((*client).clone());
        let secrets = Api::<Secret>::default_namespaced((*client).clone());
        finalizer(&maps, FINALIZER, map, |event| async {
            match event {
                Event::Apply(map) => apply(&map, &secrets).await,
                Event::Cleanup(map) => cleanup(&map, &secrets).await,
            }
        })
        .await
    }

    async fn apply(map: &ConfigMap, secrets: &Api<Secret>) -> Result<Action, kube::Error> {
        let name = map.name_any();
        if secrets.get_opt(&name).await?.is_none() {
            let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
            let secret = Secret { metadata, ..Secret::default() };
            secrets.create(&PostParams::default(), &secret).await?;
        }
        let content = Patch::Merge(serde_json::json!({ "stringData": map.data }));
        secrets.patch(&name, &PatchParams::default(), &content).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(map: &ConfigMap, secrets: &Api<Secret>) -> Result<Action, kube::Error> {
        match secrets.delete(&map.name_any(), &DeleteParams::default()).await {
            Ok(_) => Ok(Action::await_change()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Action::await_change()),
            Err(error) => Err(error),
        }
    }
}
