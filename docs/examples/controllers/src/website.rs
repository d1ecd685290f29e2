//! EDGE. The controller of an application: the pods of a website serve its page, and a Service makes it available under the name of the website. The
//! controller uses kube-runtime's helpers for finalizers and events.
//!
//! Cancel safety: if a reconcile is dropped, some parts may not have been applied. The next reconcile applies all parts again.

mod parts;
mod resource;

use std::fmt::Debug;
use std::sync::Arc;

use flyball_kube::{Config, Controller, ReconcileStream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Error as Finalized, Event as FinalizerEvent, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

pub use self::parts::{address, page, servers, status};
pub use self::resource::{Website, WebsiteSpec, WebsiteStatus};
use crate::error::Error;
use crate::program::{Clock, retry};

/// The name of this controller, as the manager of the fields that it applies, and as the reporter of its events.
const MANAGER: &str = "website-controller";
/// The finalizer that keeps a deleted website until the event about its deletion has been published.
const FINALIZER: &str = "examples.flyball.rs/website";

/// The context of a reconcile.
struct Context {
    client: Client,
    clock: Clock,
    recorder: Recorder,
}

/// Runs a controller of websites.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn run(
    controller: Controller<Website>,
    client: Client,
    clock: Clock,
) -> ReconcileStream<Website, Finalized<Error>> {
    let recorder = Recorder::new(client.clone(), Reporter { controller: MANAGER.to_owned(), instance: None });
    let context = Context { client: client.clone(), clock, recorder };
    let all = watcher::Config::default();
    controller
        .with_config(Config::recommended())
        .owns(Api::<ConfigMap>::all(client.clone()), all.clone())
        .owns(Api::<Service>::all(client.clone()), all.clone())
        .owns(Api::<Deployment>::all(client), all)
        .run(reconcile, retry, Arc::new(context))
}

async fn reconcile(site: Arc<Website>, context: Arc<Context>) -> Result<Action, Finalized<Error>> {
    let sites = Api::<Website>::namespaced(context.client.clone(), &site.namespace().unwrap_or_default());
    finalizer(&sites, FINALIZER, site, async |wish| match wish {
        FinalizerEvent::Apply(site) => context.apply(&site, &sites).await,
        FinalizerEvent::Cleanup(site) => context.clean_up(&site).await,
    })
    .await
}

impl Context {
    async fn apply(&self, site: &Website, sites: &Api<Website>) -> Result<Action, Error> {
        self.apply_part(site, &page(site)?).await?;
        self.apply_part(site, &address(site)?).await?;
        let servers = self.apply_part(site, &servers(site)?).await?;
        let status = status(site, &servers, (self.clock)());
        if site.status.as_ref() != Some(&status) {
            if parts::became_ready(site.status.as_ref(), &status) {
                self.publish_event(site, "Serving", "Roll").await?;
            }
            let patch = Patch::Merge(json!({ "status": status }));
            sites.patch_status(&site.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(Action::await_change())
    }

    /// Only publishes an event. The parts need no cleanup, because the garbage collector deletes them with the website, which owns them.
    async fn clean_up(&self, site: &Website) -> Result<Action, Error> {
        self.publish_event(site, "Deleted", "Delete").await?;
        Ok(Action::await_change())
    }

    /// Applies a part with server-side apply: creates the object, or sets the wanted fields of the existing object. The controller becomes the
    /// manager of these fields.
    async fn apply_part<K>(&self, site: &Website, part: &K) -> Result<K, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let api = Api::<K>::namespaced(self.client.clone(), &site.namespace().unwrap_or_default());
        let params = PatchParams::apply(MANAGER).force();
        Ok(api.patch(&site.name_any(), &params, &Patch::Apply(part)).await?)
    }

    async fn publish_event(&self, site: &Website, reason: &str, action: &str) -> Result<(), Error> {
        let event = Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: None,
            action: action.to_owned(),
            secondary: None,
        };
        Ok(self.recorder.publish(&event, &site.object_ref(&())).await?)
    }
}
