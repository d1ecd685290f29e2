//! EDGE. Sends the requests of an election to the API server.
//!
//! Cancel safety: a write whose future is dropped may still be executed; the candidate treats the outcome as unknown.

use std::future::Future;
use std::pin::Pin;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client};

use crate::candidate::lease_request::{LeaseRequest, LeaseResponse};
use crate::candidate::record::LeaderElectionRecord;
use crate::single_attempt::single_attempts;

/// Reads and writes the Lease of an election.
pub(crate) struct LeaseApi {
    client: Client,
    namespace: String,
    name: String,
    /// The Lease as last read or written. A write keeps the fields of this Lease that are not part of the record.
    last: Option<Lease>,
}

/// A response, the Lease that it contains, and its error. A conflict has no error.
pub(crate) struct LeaseReply {
    pub(crate) response: LeaseResponse,
    pub(crate) lease: Option<Lease>,
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
        let mut lease = self.last.clone().unwrap_or_default();
        Box::pin(async move {
            // The candidate decides when a request is repeated, not the client.
            let api = Api::<Lease>::namespaced(single_attempts(client), &namespace);
            let result = match request {
                LeaseRequest::Get => api.get(&name).await,
                LeaseRequest::Create(record) => {
                    let mut lease = Lease::default();
                    lease.metadata.name = Some(name.clone());
                    record.write_spec(lease.spec.get_or_insert_default());
                    api.create(&PostParams::default(), &lease).await
                }
                LeaseRequest::Update { record, version } => {
                    lease.metadata.resource_version = Some(version);
                    record.write_spec(lease.spec.get_or_insert_default());
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
fn reply(name: &str, result: kube::Result<Lease>) -> LeaseReply {
    match result {
        Ok(lease) => {
            let record = lease.spec.as_ref().map(LeaderElectionRecord::from_spec).unwrap_or_default();
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
