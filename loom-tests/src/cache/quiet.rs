//! Shared by the models of informers: a source with at most one object, and a clock that does not advance.

use std::task::Waker;

use flyball_informer_cache::{
    Informer, InformerBuilder, ListRequest, Page, Schema, Source, SourceError, Version, WatchEvent,
    WatchRequest, WatchStream,
};
use flyball_sync::{Clock, Nanos, Timer};

const SCHEMA: Schema<u8, u8> = Schema::new(|object| *object, |_| Version::ZERO);

/// A clock that does not advance, so no deadline passes.
#[derive(Debug)]
pub struct FrozenClock;

impl Clock for FrozenClock {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Timer for FrozenClock {
    fn wake_at(&self, _: Nanos, _: &Waker) {}
}

/// A source that lists its object, or never responds if it has no object. Its watches deliver nothing.
#[derive(Debug)]
pub struct Quiet(Option<u8>);

impl Source for Quiet {
    type Object = u8;
    type Watch = Silence;

    async fn list(&self, _: ListRequest) -> Result<Page<u8>, SourceError> {
        match self.0 {
            Some(object) => Ok(Page { items: vec![object], version: Version::new(1), continuation: None }),
            None => std::future::pending().await,
        }
    }

    async fn watch(&self, _: WatchRequest) -> Result<Silence, SourceError> {
        Ok(Silence)
    }
}

/// A watch that delivers nothing.
#[derive(Debug)]
pub struct Silence;

impl WatchStream for Silence {
    type Object = u8;

    async fn next(&mut self) -> Option<Result<WatchEvent<u8>, SourceError>> {
        std::future::pending().await
    }
}

/// Builds an informer of a source that lists this object, or that never responds.
pub fn builder(object: Option<u8>) -> InformerBuilder<u8, u8, Quiet, FrozenClock> {
    Informer::builder(SCHEMA, Quiet(object)).seed(1).reader_slots(0, 1).timer(FrozenClock)
}

/// Creates an informer of a source that lists this object, or that never responds, and returns the informer with its run future.
pub fn informer(object: Option<u8>) -> (Informer<u8, u8>, impl Future<Output = ()> + Send + 'static) {
    builder(object).build().unwrap()
}
