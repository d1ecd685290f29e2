//! EDGE. An election's questions, asked of the API server.
//!
//! Cancel safety: a question whose future is dropped may still be answered by a write; the candidate reckons with it.

use std::future::Future;
use std::pin::Pin;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;

use crate::lease_request::{Answer, Ask};
use crate::record::Record;

/// The Lease of an election.
pub(crate) struct Leases {
    api: Api<Lease>,
    name: String,
    /// As last read or written: what it says besides is written back as it was.
    last: Option<Lease>,
}

/// An answer, the Lease it told of, and the error if it was one that says more than "not now".
pub(crate) struct Told {
    pub(crate) answer: Answer,
    pub(crate) lease: Option<Lease>,
    pub(crate) error: Option<kube::Error>,
}

pub(crate) type Request = Pin<Box<dyn Future<Output = Told> + Send>>;

// === impl Leases ===

impl Leases {
    pub(crate) fn new(api: Api<Lease>, name: String) -> Self {
        Self { api, name, last: None }
    }

    pub(crate) fn ask(&self, ask: Ask) -> Request {
        let (api, name) = (self.api.clone(), self.name.clone());
        let mut lease = self.last.clone().unwrap_or_default();
        Box::pin(async move {
            let answer = match ask {
                Ask::Get => api.get(&name).await,
                Ask::Create(record) => {
                    let mut lease = Lease::default();
                    lease.metadata.name = Some(name);
                    record.write_to(lease.spec.get_or_insert_default());
                    return told(false, api.create(&PostParams::default(), &lease).await);
                }
                Ask::Update { record, version } => {
                    lease.metadata.resource_version = Some(version);
                    record.write_to(lease.spec.get_or_insert_default());
                    api.replace(&name, &PostParams::default(), &lease).await
                }
            };
            told(true, answer)
        })
    }

    pub(crate) fn learn(&mut self, told: &mut Told) {
        if let Some(lease) = told.lease.take() {
            self.last = Some(lease);
        }
    }
}

/// `may_lack`: that there is none is an answer, and not that there is no such namespace.
fn told(may_lack: bool, answer: kube::Result<Lease>) -> Told {
    match answer {
        Ok(lease) => {
            let record = lease.spec.as_ref().map(Record::of).unwrap_or_default();
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            Told { answer: Answer::Found { record, version }, lease: Some(lease), error: None }
        }
        Err(kube::Error::Api(status)) if status.code == 404 && may_lack => {
            Told { answer: Answer::NotFound, lease: None, error: None }
        }
        // Somebody else was first: no news.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Told { answer: Answer::Failed, lease: None, error: None }
        }
        Err(error) => Told { answer: Answer::Failed, lease: None, error: Some(error) },
    }
}
