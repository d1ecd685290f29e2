//! A controller of a custom kind, like controller-rs: it has a finalizer, a status, events that a `Recorder` publishes, and diagnostics for a web
//! page. In this program the kind is ConfigMap instead of a custom kind, and the status is an annotation.

program! {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{ListParams, Patch, PatchParams};
    use kube::runtime::controller::Action;
    use kube::runtime::events::{Event, EventType, Recorder, Reporter};
    use kube::runtime::finalizer::{Event as Finalizer, finalizer};
    use kube::runtime::watcher;
    use kube::{Api, Client, Resource, ResourceExt};

    const FINALIZER: &str = "example.com/documents";

    /// The diagnostics of the controller, which a web server can show.
    #[derive(Debug, Clone, Default)]
    pub struct Diagnostics {
        reconciles: Arc<AtomicU64>,
    }

    impl Diagnostics {
        /// Returns the number of reconciles that have begun.
        #[must_use]
        pub fn reconciles(&self) -> u64 {
            self.reconciles.load(Ordering::Relaxed)
        }
    }

    /// The reason why a reconcile of a document failed.
    #[derive(Debug)]
    pub struct Error(String);

    impl std::fmt::Display for Error {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl std::error::Error for Error {}

    impl From<kube::Error> for Error {
        fn from(error: kube::Error) -> Self {
            Self(error.to_string())
        }
    }

    struct Context {
        client: Client,
        recorder: Recorder,
        diagnostics: Diagnostics,
    }

    /// Runs the controller until the future is dropped.
    ///
    /// # Errors
    /// Returns an error if the kind cannot be listed.
    pub async fn run(client: Client, diagnostics: Diagnostics) -> Result<(), Error> {
        let documents = Api::<ConfigMap>::default_namespaced(client.clone());
        documents.list(&ListParams::default().limit(1)).await?;
        let reporter = Reporter { controller: "documents".to_owned(), instance: None };
        let recorder = Recorder::new(client.clone(), reporter);
        Controller::new(documents, watcher::Config::default().any_semantic())
            .run(reconcile, error_policy, Arc::new(Context { client, recorder, diagnostics }))
            .filter_map(async |result| result.ok())
            .for_each(|_| futures::future::ready(()))
            .await;
        Ok(())
    }

    async fn reconcile(document: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
        context.diagnostics.reconciles.fetch_add(1, Ordering::Relaxed);
        let namespace = document.namespace().unwrap_or_default();
        let documents = Api::<ConfigMap>::namespaced(context.client.clone(), &namespace);
        finalizer(&documents, FINALIZER, document, |event| async {
            match event {
                Finalizer::Apply(document) => apply(&document, &documents, &context).await,
                Finalizer::Cleanup(document) => cleanup(&document, &context).await,
            }
        })
        .await
        .map_err(|error| Error(error.to_string()))
    }

    async fn apply(document: &ConfigMap, documents: &Api<ConfigMap>, context: &Context) -> Result<Action, Error> {
        let name = document.name_any();
        if name == "illegal" {
            return Err(Error("illegal document".to_owned()));
        }
        let hide = document.data.iter().flatten().any(|(key, value)| key == "hide" && value == "true");
        let hidden = document.annotations().get("hidden").is_some_and(|hidden| hidden == "true");
        if hide && !hidden {
            publish(document, context, "HideRequested", "Hiding").await?;
        }
        if hide != hidden {
            let status = Patch::Merge(serde_json::json!({ "metadata": { "annotations": { "hidden": hide.to_string() } } }));
            documents.patch(&name, &PatchParams::default(), &status).await?;
        }
        Ok(Action::requeue(Duration::from_secs(5 * 60)))
    }

    async fn cleanup(document: &ConfigMap, context: &Context) -> Result<Action, Error> {
        publish(document, context, "DeleteRequested", "Deleting").await?;
        Ok(Action::await_change())
    }

    async fn publish(document: &ConfigMap, context: &Context, reason: &str, action: &str) -> Result<(), Error> {
        let event = Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some(format!("{action} `{}`", document.name_any())),
            action: action.to_owned(),
            secondary: None,
        };
        Ok(context.recorder.publish(&event, &document.object_ref(&())).await?)
    }

    fn error_policy(_: Arc<ConfigMap>, _: &Error, _: Arc<Context>) -> Action {
        Action::requeue(Duration::from_secs(5 * 60))
    }
}
