//! Names and annotations.

use serde_json::{Value, json};

use crate::applies::apply;
use crate::definitions::Definition;
use crate::server::{Reply, Server, config_map};

fn annotated(annotations: Value) -> Value {
    let mut map = config_map("a", "1");
    map["metadata"]["annotations"] = annotations;
    map
}

/// A generated name has at most 63 characters, so `generateName` is cut to 58, even for kinds whose names may have 253 characters.
pub async fn long_generated_names_are_cut(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let stem = "a".repeat(70);
    let mut map = config_map("", "1");
    let mut site = sites.object("", json!({}));
    for object in [&mut map, &mut site] {
        object["metadata"] = json!({"generateName": stem});
    }
    for (path, object) in [("v1/configmaps", map), (&*sites.path(), site)] {
        let made = on.create(path, object).await;
        let name = made["metadata"]["name"].as_str().unwrap();
        assert!(name.len() == 63 && name.starts_with(&stem[..58]), "{name}");
        assert_eq!(made["metadata"]["generateName"], stem);
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "b".repeat(58)}});
    assert_eq!(on.create("v1/configmaps", map).await["metadata"]["name"].as_str().unwrap().len(), 63);
}

/// The name of a new CronJob has at most 52 characters, because the names of its Jobs are 11 characters longer.
pub async fn names_of_cron_jobs_are_short(on: &Server) {
    let job = |name: &str| {
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "image"}]}});
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
            "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": template}}},
        })
    };
    let long = "a".repeat(53);
    let refused = on.ask("POST", "batch/v1/cronjobs", job(&long)).await;
    let why = format!("metadata.name: Invalid value: {long:?}: must be no more than 52 characters");
    refused.is_error(422, "Invalid", &format!("CronJob.batch {long:?} is invalid: {why}"));
    on.create("batch/v1/cronjobs", job(&long[1..])).await;
}

/// The keys of annotations have the form of label keys, except that upper-case letters are allowed in the prefix.
pub async fn keys_of_annotations_are_validated(on: &Server) {
    let name = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
                (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
                     and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let long = "a".repeat(64);
    for (key, problems) in [
        ("a b", &[format!("name part {name}")][..]),
        ("", &["name part must be non-empty".to_owned(), format!("name part {name}")]),
        (&long, &["name part must be no more than 63 bytes".to_owned()]),
        ("/a", &["prefix part must be non-empty".to_owned()]),
        ("-/a", &[format!("prefix part {subdomain}")]),
        (
            "a/b/c",
            &[format!(
                "a valid label key {name} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )],
        ),
    ] {
        let refused = on.ask("POST", "v1/configmaps", annotated(json!({key: "any text"}))).await;
        let each = |field: &str| {
            let each: Vec<_> = problems
                .iter()
                .map(|why| format!("metadata.{field}: Invalid value: {key:?}: {why}"))
                .collect();
            if let [one] = &each[..] { one.clone() } else { format!("[{}]", each.join(", ")) }
        };
        refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {}", each("annotations")));
        let mut labelled = config_map("a", "1");
        labelled["metadata"]["labels"] = json!({key: "a"});
        let refused = on.ask("POST", "v1/configmaps", labelled).await;
        refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {}", each("labels")));
    }
    let made = on.create("v1/configmaps", annotated(json!({"Example.com/a_B": "any text\n", "b": ""}))).await;
    assert_eq!(made["metadata"]["annotations"]["Example.com/a_B"], "any text\n");
    let refused = on.merge("v1/configmaps/a", json!({"metadata": {"annotations": {"a b": "1"}}})).await;
    let why = format!("metadata.annotations: Invalid value: \"a b\": name part {name}");
    refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {why}"));
}

/// The keys and values of all annotations together have at most 256 KiB.
pub async fn annotations_are_limited_to_256_kib(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let fits = "x".repeat(256 * 1024 - 1);
    let too_long = json!({"a": fits, "b": ""});
    let why = "metadata.annotations: Too long: may not be more than 262144 bytes";
    let refused = on.ask("POST", "v1/configmaps", annotated(too_long.clone())).await;
    refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {why}"));
    refused.has_causes(&[("metadata.annotations", "FieldValueTooLong")]);
    let mut site = sites.object("a", json!({}));
    site["metadata"]["annotations"] = too_long;
    let refused = on.ask("POST", &sites.path(), site).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (422, Some("Invalid")));
    on.create("v1/configmaps", annotated(json!({"a": fits}))).await;
    let refused = on.merge("v1/configmaps/a", json!({"metadata": {"annotations": {"b": ""}}})).await;
    refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {why}"));
}

/// The values of labels and annotations are strings. A null becomes an empty string.
pub async fn labels_and_annotations_are_strings(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let sites_path = sites.path();
    for field in ["labels", "annotations"] {
        let with = |mut object: Value, value: Value| {
            object["metadata"][field] = json!({"a": value});
            object
        };
        for (path, object, parent) in [
            ("v1/configmaps", config_map("a", "1"), "ObjectMeta.metadata"),
            (&*sites_path, sites.object("a", json!({})), "ObjectMeta"),
        ] {
            let kind = object["kind"].as_str().unwrap();
            let why = |found: &str| {
                format!("json: cannot unmarshal {found} into Go struct field {parent}.{field} of type string")
            };
            let not_decoded = |reply: &Reply, found: &str| {
                let message =
                    format!("{kind} in version \"v1\" cannot be handled as a {kind}: {}", why(found));
                reply.is_error(400, "BadRequest", &message);
            };
            for (value, found) in
                [(json!(1), "number"), (json!(true), "bool"), (json!({}), "object"), (json!([]), "array")]
            {
                let refused = on.ask("POST", path, with(object.clone(), value)).await;
                not_decoded(&refused, found);
            }
            let made = on.create(path, with(object.clone(), Value::Null)).await;
            assert_eq!(made["metadata"][field], json!({"a": ""}));
            let here = format!("{path}/a");
            let refused = on.ask("PUT", &here, with(made, json!(1))).await;
            not_decoded(&refused, "number");
            let refused = on.merge(&here, json!({"metadata": {field: {"a": 1}}})).await;
            assert_eq!((refused.code, refused.body["reason"].as_str()), (422, Some("Invalid")));
            refused.has_causes(&[("patch", "FieldValueInvalid")]);
            let message = refused.body["message"].as_str().unwrap();
            assert!(
                message.starts_with(" \"\" is invalid: patch: Invalid value: \"{")
                    && message.ends_with(&why("number")),
                "{message}"
            );
            let refused = apply(on, &here, "one", with(object, json!(1))).await;
            let message = refused.body["message"].as_str().unwrap();
            let why =
                format!(".metadata.{field}.a: expected string, got &value.valueUnstructured{{Value:1}}");
            assert!(refused.code == 500 && message.ends_with(&why), "{refused:?}");
            on.ask("DELETE", &here, Value::Null).await.ok();
        }
    }
}
