//! Requests that the server does not support, and their responses: a case for each row of the table in the README.

use super::{config_map, config_maps, deployment, refused, server};
use flyball_kube_testing::ApiServer;
use http::{Request, header};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{EvictParams, LogParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::core::params::ValidationDirective;
use serde_json::{Value, from_value, json};

const README: &str = include_str!("../../README.md");

async fn raw(server: &ApiServer, path: &str, accept: &str, content: &str, body: Value) -> Status {
    let request = Request::builder().method(if body.is_null() { "GET" } else { "POST" }).uri(path);
    let request = request.header(header::ACCEPT, accept).header(header::CONTENT_TYPE, content);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    refused(server.client().request_text(request.body(body).unwrap()).await)
}

async fn apply_yaml(server: &ApiServer) -> Status {
    let request = Request::patch("/api/v1/namespaces/default/configmaps/a?fieldManager=tests")
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml");
    let body = b"apiVersion: v1\nkind: ConfigMap\n".to_vec();
    refused(server.client().request_text(request.body(body).unwrap()).await)
}

/// Returns the first column of each row of the table, with the responses to the requests of that row.
async fn answers(server: &ApiServer) -> Vec<(&'static str, Vec<Status>)> {
    let (maps, pods) = (config_maps(server), Api::<Pod>::default_namespaced(server.client()));
    let deployments = Api::<Deployment>::default_namespaced(server.client());
    let params = PatchParams::default();
    let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
    let ordered = Patch::Strategic(json!({"spec": {"$setElementOrder/containers": [{"name": "a"}]}}));
    let retained =
        Patch::Strategic(json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}));
    let strict =
        PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::default() };
    let nothing = Patch::Merge(json!({}));
    let json_type = "application/json";
    let list = "/api/v1/namespaces/default/configmaps";
    let get = async |path, accept| raw(server, path, accept, json_type, Value::Null).await;
    let post = async |content| raw(server, list, json_type, content, json!(config_map("b", "1"))).await;
    let review = from_value::<TokenReview>(json!({"metadata": {}, "spec": {"token": "x"}})).unwrap();
    let definition = json!({
        "metadata": {"name": "sites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
            "conversion": {"strategy": "Webhook"},
        },
    });
    let definition: CustomResourceDefinition = from_value(definition).unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    vec![
        (
            "subresources other than `status`",
            vec![
                refused(deployments.get_scale("a").await),
                refused(deployments.patch_scale("a", &params, &scale).await),
                refused(pods.evict("a", &EvictParams::default()).await),
                refused(pods.logs("a", &LogParams::default()).await),
                refused(pods.get_ephemeral_containers("a").await),
                get("/api/v1/namespaces/default/pods/a/exec?command=x", json_type).await,
                get("/api/v1/namespaces/default/pods/a/proxy/metrics/x", json_type).await,
            ],
        ),
        (
            "`$setElementOrder`, `$retainKeys` in strategic merge patches",
            vec![
                refused(pods.patch("a", &params, &ordered).await),
                refused(deployments.patch("a", &params, &retained).await),
            ],
        ),
        ("`fieldValidation=Strict`", vec![refused(maps.patch("a", &strict, &nothing).await)]),
        (
            "reviews of tokens and access",
            vec![refused(
                Api::<TokenReview>::all(server.client()).create(&PostParams::default(), &review).await,
            )],
        ),
        ("conversion webhooks", vec![refused(definitions.create(&PostParams::default(), &definition).await)]),
        ("OpenAPI", vec![get("/openapi/v2", json_type).await, get("/openapi/v3", json_type).await]),
        ("paths with `/watch/`", vec![get("/api/v1/watch/configmaps", json_type).await]),
        (
            "answers as a table, YAML, protobuf or CBOR",
            vec![
                get(list, "application/json;as=Table;v=v1;g=meta.k8s.io").await,
                get(list, "application/yaml").await,
                get(list, "application/vnd.kubernetes.protobuf").await,
                get(list, "application/cbor").await,
            ],
        ),
        (
            "bodies in YAML, protobuf or CBOR",
            vec![
                post("application/yaml").await,
                post("application/vnd.kubernetes.protobuf").await,
                post("application/cbor").await,
                apply_yaml(server).await,
            ],
        ),
        (
            "kinds that are not registered",
            vec![refused(Api::<Secret>::default_namespaced(server.client()).get("a").await)],
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_is_not_done_is_answered_with_an_error_that_says_so() {
    let server = server();
    server.register::<TokenReview>().register::<CustomResourceDefinition>();
    server.put(&config_map("a", "1"));
    server.put(&deployment(1));
    server.put(&from_value::<Pod>(json!({"metadata": {"name": "a"}, "spec": {"containers": []}})).unwrap());
    let version = server.resource_version();
    let answers = answers(&server).await;
    for (row, answers) in &answers {
        let start = format!("| {row} | ");
        let answer = README.lines().find_map(|line| line.strip_prefix(&start));
        let answer = answer.unwrap_or_else(|| panic!("the README has no row {start}"));
        let (code, message) = answer.split_once(" `").expect("a code and a message");
        let (message, _) = message.split_once('`').expect("the end of a message");
        // The row quotes the message of only one of the responses. The messages of the others differ only in the name of the feature.
        assert!(answers.iter().any(|answer| answer.message.starts_with(message)), "{row}: {answers:?}");
        let common = message.split(' ').take(4).collect::<Vec<_>>().join(" ");
        for answer in answers {
            assert_eq!(answer.code.to_string(), code, "{row}: {answer:?}");
            assert!(answer.message.starts_with(&common), "{row}: {answer:?}");
        }
    }
    assert_eq!(
        (server.resource_version(), server.list::<ConfigMap>().len()),
        (version, 1),
        "nothing was written"
    );

    let (_, table) = README.split_once("| not implemented | response |").expect("the table");
    let (table, _) = table.trim_start().split_once("\n\n").expect("the end of the table");
    let rows: Vec<_> =
        table.lines().skip(1).filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
    let tested: Vec<_> = answers.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, tested, "each row has its case");
}

#[tokio::test(start_paused = true)]
async fn a_table_with_another_form_beside_it_is_sent_in_the_other() {
    let server = server();
    server.put(&config_map("a", "1"));
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let request = Request::get("/api/v1/configmaps").header(header::ACCEPT, accept).body(Vec::new()).unwrap();
    let list: Value = server.client().request(request).await.unwrap();
    assert_eq!(list["kind"], "ConfigMapList");
}
