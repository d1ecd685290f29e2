//! Errors of the server and of the connection: their `SourceErrorKind`, and the kube errors to which they are converted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{
    ListRequest, ListVersion, Source, SourceError, SourceErrorKind, Version, WatchRequest, WatchStream,
};
use flyball_kube::{ApiError, ApiSource, Controller};
use futures_util::StreamExt;
use http::HeaderMap;
use http::header::{HeaderValue, RETRY_AFTER};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::{Action, Error};
use kube::runtime::watcher::{self, Config};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::scripted_server::{Answer, Script};

const LIST: ListRequest = ListRequest { min_version: ListVersion::Any, limit: None, continuation: None };
const WATCH: WatchRequest =
    WatchRequest { from_version: Version::new(7), streaming_list: false, timeout: Duration::from_secs(300) };

fn source(answer: Answer) -> ApiSource<ConfigMap> {
    ApiSource::new(Api::all(Script::of([answer]).client()), Config::default())
}

fn failure(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message, "details": details})
}

fn api_error(error: &SourceError) -> &ApiError {
    error.cause().and_then(|cause| cause.downcast_ref()).unwrap()
}

#[tokio::test]
async fn the_kind_of_an_answer_is_client_gos() {
    use SourceErrorKind::{Expired, Internal, Other, VersionTooLarge};
    let busy = |seconds: Option<u64>| SourceErrorKind::TooManyRequests {
        retry_after: seconds.map(Duration::from_secs),
    };
    let none = json!({});
    let large = "Too large resource version";
    let causes = |reason: &str, message: &str| json!({"causes": [{"reason": reason, "message": message}]});
    let answers = [
        (failure(410, "Expired", "too old", &none), Expired),
        (failure(410, "Gone", "gone", &none), Expired),
        (failure(410, "", "gone", &none), Expired),
        (failure(400, "Expired", "an odd code", &none), Expired),
        // The next three statuses are this error as Kubernetes servers send it: from version 1.19 on, in 1.17 and 1.18, and before 1.17.
        (failure(504, "Timeout", large, &causes("ResourceVersionTooLarge", large)), VersionTooLarge),
        (failure(504, "Timeout", "timed out", &causes("", large)), VersionTooLarge),
        (failure(504, "Timeout", "Too large resource version: 9, current: 8", &none), VersionTooLarge),
        (failure(504, "Timeout", "slow", &causes("", "slow")), Other),
        (failure(400, "BadRequest", large, &none), Other),
        (failure(429, "TooManyRequests", "wait", &json!({"retryAfterSeconds": 3})), busy(Some(3))),
        (failure(429, "", "wait", &none), busy(None)),
        (failure(500, "InternalError", "etcd", &none), Internal),
        (failure(500, "", "etcd", &none), Internal),
        (failure(500, "ServerTimeout", "slow", &none), Other),
        (failure(403, "Forbidden", "no", &none), Other),
        (failure(404, "NotFound", "no such kind", &none), Other),
    ];
    for (status, kind) in answers {
        let error = source(Answer::status(&status)).list(LIST).await.unwrap_err();
        assert_eq!(error.kind(), kind, "a list: {status}");
        assert_eq!(api_error(&error).status().unwrap().message, status["message"]);
        assert!(matches!(api_error(&error).watcher_error(), watcher::Error::InitialListFailed(_)));

        let error = source(Answer::status(&status)).watch(WATCH).await.err().unwrap();
        assert_eq!(error.kind(), kind, "a watch: {status}");
        assert!(matches!(api_error(&error).watcher_error(), watcher::Error::WatchStartFailed(_)));

        // The watch receives the status within an event, or as a line of its own, as some proxies send it.
        for line in [json!({"type": "ERROR", "object": status}), status.clone()] {
            let (answer, lines) = Answer::watch();
            let mut watch = source(answer).watch(WATCH).await.unwrap();
            lines.raw(&format!("{line}\n"));
            let error = watch.next().await.unwrap().unwrap_err();
            assert_eq!(error.kind(), kind, "{line}");
            assert!(matches!(api_error(&error).watcher_error(), watcher::Error::WatchError(_)));
        }
    }
}

#[tokio::test]
async fn respects_the_retry_after_header_of_flow_control() {
    let busy = |words: String, header: &'static str| {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(header))]);
        Answer::Text(429, headers, words)
    };
    let retry = |error: SourceError| match error.kind() {
        SourceErrorKind::TooManyRequests { retry_after } => retry_after,
        other => panic!("{other:?}"),
    };
    let plain = || "Too many requests, please try again later.\n".to_owned();
    let refusal = failure(429, "TooManyRequests", "wait", &json!({"retryAfterSeconds": 3})).to_string();
    let error = source(busy(plain(), "17")).list(LIST).await.unwrap_err();
    assert_eq!(api_error(&error).status().unwrap().message, plain().trim());
    assert_eq!(retry(error), Some(Duration::from_secs(17)));
    let error = source(busy(plain(), "17")).watch(WATCH).await.err().unwrap();
    assert_eq!(retry(error), Some(Duration::from_secs(17)));
    // The delay in the body takes precedence over the delay in the `Retry-After` header.
    assert_eq!(
        retry(source(busy(refusal, "17")).list(LIST).await.unwrap_err()),
        Some(Duration::from_secs(3))
    );
    let date = "Wed, 21 Oct 2026 07:28:00 GMT";
    assert_eq!(retry(source(busy(plain(), date)).list(LIST).await.unwrap_err()), None);
}

#[tokio::test]
async fn no_answer_is_refused_however_deep_it_is_wrapped() {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, InvalidData, TimedOut, UnexpectedEof};
    let wrapped = |kind: io::ErrorKind| Answer::Failed(io::Error::other(io::Error::new(kind, "connect")));
    for kind in [ConnectionRefused, ConnectionReset, TimedOut, UnexpectedEof] {
        let error = source(wrapped(kind)).list(LIST).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::ConnectionRefused, "{kind}");
        let error = source(wrapped(kind)).watch(WATCH).await.err().unwrap();
        assert_eq!(error.kind(), SourceErrorKind::ConnectionRefused, "{kind}");
    }
    // An error of this kind occurs, for example, if the server's certificate is not trusted.
    let error = source(wrapped(InvalidData)).list(LIST).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Other);
}

/// Uses kube's own client over a socket: the server closes the connection during the first request, and no longer listens at the second request.
#[tokio::test]
async fn a_closed_and_a_missing_server_are_errors() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let source = ApiSource::<ConfigMap>::new(Api::all(client), Config::default());
    let hang_up = async {
        let (connection, _) = listener.accept().await.unwrap();
        while connection.try_read(&mut [0; 4096]).is_err() {
            connection.readable().await.unwrap();
        }
    };
    let (answer, ()) = tokio::join!(source.list(LIST), hang_up);
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::ConnectionRefused, "{error}");
    drop(listener);
    let error = source.list(LIST).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::ConnectionRefused, "{error}");
}

#[tokio::test]
async fn an_answer_that_is_no_list_is_an_error_and_not_an_empty_list() {
    for text in ["", "<html>", "{}", r#"{"kind": "Table", "rows": []}"#, r#"{"items": {}}"#] {
        let answer = Answer::Text(200, HeaderMap::new(), text.to_owned());
        let error = source(answer).list(LIST).await.expect_err(text);
        assert_eq!(error.kind(), SourceErrorKind::Other);
        let cause = api_error(&error).kube_error().unwrap();
        assert!(matches!(cause, kube::Error::SerdeError(_)), "{text}: {cause}");
    }
    let nothing = Answer::Text(200, HeaderMap::new(), r#"{"items": null}"#.to_owned());
    assert_eq!(source(nothing).list(LIST).await.unwrap().items, []);
}

/// Returns the first failure of a controller's cache, as the stream reports it.
async fn first_failure(answers: impl IntoIterator<Item = Answer>) -> watcher::Error {
    let controller = Controller::new(Api::<ConfigMap>::all(Script::of(answers).client()), Config::default());
    let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, io::Error>(Action::await_change());
    let mut results = controller.run(reconcile, |_, _, _| Action::await_change(), Arc::new(()));
    match results.next().await {
        Some(Err(Error::QueueError(error))) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_reports_a_failure_as_kubes_watcher_does() {
    let forbidden = || Answer::status(&failure(403, "Forbidden", "no", &json!({})));
    let empty = || Answer::json(&json!({"metadata": {"resourceVersion": "7"}, "items": []}));
    match first_failure([forbidden()]).await {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => assert!(status.is_forbidden()),
        other => panic!("{other:?}"),
    }
    match first_failure([empty(), forbidden()]).await {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => assert!(status.is_forbidden()),
        other => panic!("{other:?}"),
    }
    let (answer, lines) = Answer::watch();
    lines.send("ERROR", &failure(410, "Expired", "old", &json!({})));
    match first_failure([empty(), answer]).await {
        watcher::Error::WatchError(status) => assert_eq!((status.code, &*status.message), (410, "old")),
        other => panic!("{other:?}"),
    }
    // This error does not implement `Clone`, so the converted error shares it.
    let refused = first_failure([Answer::Failed(io::ErrorKind::ConnectionRefused.into())]).await;
    assert_eq!(
        refused.to_string(),
        "failed to perform initial object list: ServiceError: connection refused",
        "each part of the message once"
    );
    match refused {
        watcher::Error::InitialListFailed(kube::Error::Service(error)) => {
            let error = error.downcast_ref::<ApiError>().unwrap();
            assert_eq!(error.kind(), SourceErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
    // No request is answered.
    match first_failure([]).await {
        watcher::Error::WatchFailed(error) => {
            assert_eq!(error.to_string(), "ServiceError: no answer in time");
        }
        other => panic!("{other:?}"),
    }
}
