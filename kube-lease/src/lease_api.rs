//! EDGE. Sends the requests of an election to the API server.
//!
//! Cancel safety: a write whose future is dropped may still be executed; the candidate treats the outcome as unknown.

use std::future::Future;
use std::pin::Pin;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject, Status};
use kube::{Api, Client};
use serde_json::Value;

use crate::candidate::lease_request::{LeaseRequest, LeaseResponse};
use crate::candidate::record::LeaderElectionRecord;
use crate::single_attempt::single_attempts;

/// Reads and writes the Lease of an election.
///
/// A Lease is read as JSON and not as [`Lease`], because a type that cannot hold each time of a Lease (the last second of the year 9999) would fail to read
/// the Lease, and no candidate would ever lead again.
pub(crate) struct LeaseApi {
    client: Client,
    namespace: String,
    name: String,
    /// The Lease as last read or written. A write keeps the fields of this Lease that are not part of the record.
    last: Option<DynamicObject>,
}

/// A response, the Lease that it contains, and its error. A conflict has no error.
pub(crate) struct LeaseReply {
    pub(crate) response: LeaseResponse,
    pub(crate) lease: Option<DynamicObject>,
    pub(crate) error: Option<kube::Error>,
}

pub(crate) type PendingReply = Pin<Box<dyn Future<Output = LeaseReply> + Send>>;

// === impl LeaseApi ===

impl LeaseApi {
    pub(crate) fn new(client: Client, namespace: String, name: String) -> Self {
        Self { client, namespace, name, last: None }
    }

    pub(crate) fn send(&self, request: LeaseRequest) -> PendingReply {
        let (client, namespace, name) = (self.client.clone(), self.namespace.clone(), self.name.clone());
        let resource = ApiResource::erase::<Lease>(&());
        let last = self.last.clone();
        Box::pin(async move {
            // The candidate decides when a request is repeated, not the client.
            let api = Api::<DynamicObject>::namespaced_with(single_attempts(client), &namespace, &resource);
            let result = match request {
                LeaseRequest::Get => api.get(&name).await,
                LeaseRequest::Create(record) => {
                    let mut lease = DynamicObject::new(&name, &resource);
                    record.write_spec(&mut lease.data["spec"]);
                    api.create(&PostParams::default(), &lease).await
                }
                LeaseRequest::Update { record, version } => {
                    let mut lease = last.unwrap_or_else(|| DynamicObject::new(&name, &resource));
                    lease.metadata.resource_version = Some(version);
                    record.write_spec(&mut lease.data["spec"]);
                    api.replace(&name, &PostParams::default(), &lease).await
                }
            };
            reply(&name, result)
        })
    }

    /// Stores the Lease of a reply.
    pub(crate) fn store(&mut self, reply: &mut LeaseReply) {
        if let Some(lease) = reply.lease.take() {
            self.last = Some(lease);
        }
    }
}

/// Converts the result of a request for the Lease `name` to a reply.
fn reply(name: &str, result: kube::Result<DynamicObject>) -> LeaseReply {
    match result {
        Ok(lease) => {
            let record = LeaderElectionRecord::from_spec(lease.data.get("spec").unwrap_or(&Value::Null));
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            LeaseReply { response: LeaseResponse::Found { record, version }, lease: Some(lease), error: None }
        }
        Err(kube::Error::Api(status)) if status.code == 404 && is_about(name, &status) => {
            LeaseReply { response: LeaseResponse::NotFound, lease: None, error: None }
        }
        // Another candidate has written the Lease first. This is not logged as a warning.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            LeaseReply { response: LeaseResponse::Failed, lease: None, error: None }
        }
        Err(error) => LeaseReply { response: LeaseResponse::Failed, lease: None, error: Some(error) },
    }
}

/// Returns whether a status is about the Lease `name`. A 404 that is not, such as that of a missing namespace, of an API that is not served or of a proxy,
/// says nothing about the Lease.
fn is_about(name: &str, status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| details.name == name && details.kind == "leases")
}
