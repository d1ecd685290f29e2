//! The objects: config maps of about one KiB, named by number.

use anyhow::Result;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::{Api, Client};

/// Objects that a controller lists, and their number.
pub(crate) const MANY: Objects = Objects { namespace: "many", count: 10_000 };
/// Objects that change.
pub(crate) const CHANGING: Objects = Objects { namespace: "changing", count: 1_000 };

/// Objects in their own namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects {
    namespace: &'static str,
    pub(crate) count: usize,
}

impl Objects {
    pub(crate) fn api(self, client: &Client) -> Api<ConfigMap> {
        Api::namespaced(client.clone(), self.namespace)
    }

    pub(crate) async fn create(self, client: &Client) -> Result<()> {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(self.namespace.to_owned());
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let api = self.api(client);
        let create = |number| {
            let api = api.clone();
            async move { api.create(&PostParams::default(), &object(number)).await.map(drop) }
        };
        stream::iter(0..self.count).map(create).buffer_unordered(16).try_collect::<()>().await?;
        Ok(())
    }
}

pub(crate) fn name(number: usize) -> String {
    format!("config-{number:06}")
}

/// The number of an object. `None` for objects that this program did not create: clusters add their own config maps to
/// every namespace.
pub(crate) fn number(object: &ConfigMap) -> Option<usize> {
    object.metadata.name.as_ref()?.strip_prefix("config-")?.parse().ok()
}

fn object(number: usize) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name(number));
    let labels = ["app", "team", "tier"].map(|label| (label.to_owned(), format!("{label}-{}", number % 10)));
    object.metadata.labels = Some(labels.into());
    let data = (0..8).map(|line| (format!("setting-{line}"), format!("{number:08}-").repeat(9)));
    object.data = Some(data.collect());
    object
}
