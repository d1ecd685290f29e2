//! Lists: pages and versions.

use serde_json::{Value, json};

use crate::server::{Reply, Server, labelled, names, version};

async fn three(on: &Server) -> Vec<Value> {
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        made.push(on.create("v1/configmaps", labelled(name, json!({"app": "x"}))).await);
    }
    made
}

async fn list(on: &Server, query: &str) -> Reply {
    on.get(&format!("v1/configmaps?labelSelector=app&{query}")).await
}

/// All pages of a list show the version of the first page: writes between two pages do not change the later pages.
pub async fn a_list_continues_at_its_version(on: &Server) {
    three(on).await;
    let first = list(on, "limit=2").await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"].get("remainingItemCount"), None, "not with a selector");
    on.create("v1/configmaps", labelled("bb", json!({"app": "x"}))).await;
    on.ask("DELETE", "v1/configmaps/c", Value::Null).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = list(on, &format!("limit=2&continue={token}")).await.ok();
    assert_eq!((names(&rest), version(&rest)), (vec!["c"], version(&first)));
    assert_eq!(rest["metadata"].get("continue"), None);
    assert_eq!(list(on, "limit=1&continue=nonsense").await.code, 400);
    let both = list(on, &format!("continue={token}&resourceVersion={}", version(&first))).await;
    both.is_error(400, "BadRequest", "specifying resource version is not allowed when using continue");
    let all = on.get("v1/configmaps?limit=1").await.ok();
    let left = all["metadata"]["remainingItemCount"].as_i64().unwrap();
    let total = on.get("v1/configmaps").await.ok()["items"].as_array().unwrap().len();
    assert_eq!(left + 1, i64::try_from(total).unwrap());
}

/// A list request can require exactly the given version, or a version that is not older, or can accept any version.
pub async fn lists_are_of_a_version(on: &Server) {
    let made = three(on).await;
    let old = version(&made[1]);
    let exact = list(on, &format!("resourceVersion={old}&resourceVersionMatch=Exact")).await.ok();
    assert_eq!((names(&exact), version(&exact)), (vec!["a", "b"], old));
    // A request with a limit and a version, but without `resourceVersionMatch`, returns exactly this version, for compatibility: limits are older
    // than `resourceVersionMatch`.
    let legacy = list(on, &format!("resourceVersion={old}&limit=5")).await.ok();
    assert_eq!(names(&legacy), ["a", "b"]);
    for query in [
        format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={}", version(&made[2])),
        "resourceVersionMatch=&resourceVersion=".to_owned(),
    ] {
        assert_eq!(names(&list(on, &query).await.ok()), ["a", "b", "c"], "{query}");
    }
    let current: u64 = version(&on.get("v1/configmaps").await.ok()).parse().unwrap();
    let future = current + 1_000_000;
    for path in [
        format!("v1/configmaps?resourceVersion={future}&resourceVersionMatch=NotOlderThan"),
        format!("v1/configmaps?resourceVersion={future}"),
        format!("v1/configmaps/a?resourceVersion={future}"),
    ] {
        let refused = on.get(&path).await;
        assert_eq!((refused.code, refused.body["reason"].as_str()), (504, Some("Timeout")), "{path}");
        refused.has_causes(&[("", "ResourceVersionTooLarge")]);
        let message = refused.body["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("Timeout: Too large resource version: {future}, current: ")),
            "{message}"
        );
        assert_eq!(refused.body["details"]["retryAfterSeconds"], 1, "{path}");
    }
    assert_eq!(list(on, "resourceVersion=nonsense").await.code, 400);
}

/// Contradictory parameters are refused. The error names the kind `ListOptions`.
pub async fn parameters_that_contradict_each_other_are_refused(on: &Server) {
    let forbidden = "resourceVersionMatch: Forbidden: resourceVersionMatch";
    for (query, why) in [
        ("resourceVersionMatch=Exact", format!("{forbidden} is forbidden unless resourceVersion is provided")),
        ("resourceVersionMatch=Exact&resourceVersion=0", format!("{forbidden} \"exact\" is forbidden for resourceVersion \"0\"")),
        (
            "resourceVersionMatch=x&resourceVersion=1",
            "resourceVersionMatch: Unsupported value: \"x\": supported values: \"Exact\", \"NotOlderThan\", \"\"".to_owned(),
        ),
        ("sendInitialEvents=true", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list".to_owned()),
    ] {
        let refused = on.get(&format!("v1/configmaps?{query}")).await;
        refused.is_error(422, "Invalid", &format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"));
    }
}
