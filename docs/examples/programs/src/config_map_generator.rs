//! Generates objects from other objects, like kube-rs's `configmapgen_controller`: for each Secret with the label `generate=true`, the controller
//! creates a ConfigMap with the same name and content. The Secret owns the ConfigMap.

program! {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
    use kube::runtime::controller::{self, Action};
    use kube::runtime::watcher;
    use kube::{Api, Client, Resource, ResourceExt};

    /// The context of a reconcile.
    struct Context {
        client: Client,
    }

    /// Runs the controller until SIGTERM or Ctrl-C, with at most two reconciles at once.
    pub async fn run(client: Client) {
        let secrets = Api::<Secret>::default_namespaced(client.clone());
        let config_maps = Api::<ConfigMap>::default_namespaced(client.clone());
        Controller::new(secrets, watcher::Config::default().labels("generate=true"))
            .owns(config_maps, watcher::Config::default())
            .with_config(controller::Config::default().concurrency(2))
            .shutdown_on_signal()
            .run(reconcile, error_policy, Arc::new(Context { client }))
            .for_each(|_| async {})
            .await;
    }

    async fn reconcile(secret: Arc<Secret>, context: Arc<Context>) -> Result<Action, kube::Error> {
        let namespace = secret.namespace().unwrap_or_default();
        let config_maps = Api::<ConfigMap>::namespaced(context.client.clone(), &namespace);
        let data = secret.data.iter().flatten();
        let data = data.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned()));
        let wanted = ConfigMap {
            metadata: ObjectMeta {
                name: Some(secret.name_any()),
                owner_references: Some(secret.controller_owner_ref(&()).into_iter().collect()),
                ..ObjectMeta::default()
            },
            data: Some(data.collect()),
            ..ConfigMap::default()
        };
        match config_maps.get_opt(&secret.name_any()).await? {
            None => {
                config_maps.create(&PostParams::default(), &wanted).await?;
            }
            Some(there) if there.data != wanted.data => {
                let patch = Patch::Merge(serde_json::json!({ "data": wanted.data }));
                config_maps.patch(&secret.name_any(), &PatchParams::default(), &patch).await?;
            }
            Some(_) => {}
        }
        Ok(Action::requeue(Duration::from_secs(300)))
    }

    fn error_policy(_: Arc<Secret>, _: &kube::Error, _: Arc<Context>) -> Action {
        Action::requeue(Duration::from_secs(1))
    }
}
