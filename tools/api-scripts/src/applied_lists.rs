//! Server-side apply of lists and maps. The type of a built-in kind, or the schema of a custom kind, determines whether a list or map is merged or
//! replaced.

use serde_json::{Value, json};

use crate::applies::{HERE, apply, empty, is_conflict, managers};
use crate::definitions::Definition;
use crate::server::{Server, deployment};

/// Server-side apply merges two sorts of lists: lists whose items have keys, and sets. It replaces other lists.
pub async fn an_apply_merges_lists_by_their_keys(on: &Server) {
    let here = "apps/v1/deployments/web";
    let config = |spec: Value| {
        let template = json!({"template": {"spec": spec}});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": template})
    };
    let mut whole = deployment("web", 1);
    let main = &mut whole["spec"]["template"]["spec"]["containers"][0];
    main["args"] = json!(["x"]);
    main["env"] = json!([{"name": "A", "value": "1"}]);
    main["ports"] = json!([{"containerPort": 80}]);
    whole["spec"]["template"]["spec"]["nodeSelector"] = json!({"x": "y"});
    let made = apply(on, here, "one", whole.clone()).await.ok();
    let main = json!({
        ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
        "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
    });
    let template = json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": main}, "f:nodeSelector": {}},
    });
    let fields = json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": template}});
    assert_eq!(managers(&made), [json!(["one", "Apply", null, fields])]);

    let other = json!({"nodeSelector": {"z": "z"}, "containers": [{
        "name": "main", "image": "other", "args": ["y"], "env": [{"name": "A", "value": "2"}],
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
    }]});
    let refused = apply(on, here, "two", config(other)).await;
    let main = ".spec.template.spec.containers[name=\"main\"]";
    let fields = [
        ".spec.template.spec.nodeSelector",
        &format!("{main}.args"),
        &format!("{main}.image"),
        &format!("{main}.env[name=\"A\"].value"),
    ];
    is_conflict(&refused, "\"one\"", &fields);

    let side = json!({"containers": [
        {"name": "side", "image": "image"},
        {"name": "main", "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 80, "protocol": "UDP"}]},
    ]});
    let merged = apply(on, here, "two", config(side)).await.ok();
    let spec = |object: &Value| object["spec"]["template"]["spec"].clone();
    let names = |list: &Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|item| item["name"].clone()).collect()
    };
    assert_eq!(names(&spec(&merged)["containers"]), ["side", "main"]);
    let main = &spec(&merged)["containers"][1];
    assert_eq!(
        (&main["image"], &main["args"], names(&main["env"])),
        (&json!("image"), &json!(["x"]), vec![json!("A"), json!("B")])
    );
    assert_eq!(main["ports"].as_array().unwrap().len(), 2);
    // The second manager applies a configuration with fewer fields. A field that it no longer contains is removed, unless the first manager has
    // applied it, too.
    let fewer = config(json!({"containers": [{"name": "main", "env": [{"name": "C", "value": "3"}]}]}));
    let merged = apply(on, here, "two", fewer).await.ok();
    assert_eq!(names(&spec(&merged)["containers"]), ["main"]);
    let main = &spec(&merged)["containers"][0];
    assert_eq!(
        (names(&main["env"]), main["ports"].as_array().unwrap().len()),
        (vec![json!("A"), json!("C")], 1)
    );
    whole["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("args");
    let merged = apply(on, here, "one", whole).await.ok();
    let main = &spec(&merged)["containers"][0];
    assert_eq!((main.get("args"), names(&main["env"])), (None, vec![json!("A"), json!("C")]));
}

/// Finalizers are a set. Owner references have the key `uid`. Service ports have two keys.
pub async fn metadata_and_services_have_lists_with_keys(on: &Server) {
    let finalizers = |list: Value| {
        let mut config = empty();
        config["metadata"]["finalizers"] = list;
        config
    };
    apply(on, HERE, "one", finalizers(json!(["flyball.test/b", "flyball.test/a"]))).await.ok();
    let both = apply(on, HERE, "two", finalizers(json!(["flyball.test/c", "flyball.test/a"]))).await.ok();
    assert_eq!(both["metadata"]["finalizers"], json!(["flyball.test/b", "flyball.test/c", "flyball.test/a"]));
    let left = apply(on, HERE, "one", empty()).await.ok();
    assert_eq!(left["metadata"]["finalizers"], json!(["flyball.test/c", "flyball.test/a"]));
    let owner = |name: &str, uid: &str| json!({"apiVersion": "flyball.test/v1", "kind": "Owner", "name": name, "uid": uid});
    let owned = |owners: Value| {
        let mut config = empty();
        config["metadata"]["ownerReferences"] = owners;
        config
    };
    // The server does not serve the kind of this owner. Therefore the garbage collector cannot look the owner up, and does not delete the object.
    let none = owner("x", "00000000-0000-4000-8000-00000000000a");
    let first = apply(on, HERE, "one", owned(json!([none]))).await.ok();
    let fields = json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"00000000-0000-4000-8000-00000000000a\"}": {}}}});
    assert!(managers(&first).contains(&json!(["one", "Apply", null, fields])), "{:?}", managers(&first));

    let service = |ports: Value| {
        let spec = json!({"selector": {"a": "b"}, "ports": ports});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec})
    };
    let here = "v1/services/s";
    apply(on, here, "one", service(json!([{"name": "a", "port": 80}]))).await.ok();
    let both =
        apply(on, here, "two", service(json!([{"name": "b", "port": 80, "protocol": "UDP"}]))).await.ok();
    assert_eq!(both["spec"]["ports"].as_array().unwrap().len(), 2);
    let mut other = service(json!([{"name": "c", "port": 80, "protocol": "TCP"}]));
    other["spec"]["selector"] = json!({"c": "d"});
    let refused = apply(on, here, "three", other).await;
    assert_eq!(refused.code, 409, "{refused:?}");
    let field = ".spec.ports[port=80,protocol=\"TCP\"].name";
    let causes = refused.body["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.iter().filter(|cause| cause["field"] == ".spec.selector").count(), 2);
    assert_eq!(causes.iter().filter(|cause| cause["field"] == field).count(), 1);
    on.merge(HERE, json!({"metadata": {"finalizers": null}})).await.ok();
}

/// The schema defines which lists have keys, and which maps are replaced as a whole.
pub async fn custom_resources_merge_by_their_schema(on: &Server) {
    let text = json!({"type": "string"});
    let port = json!({"type": "object", "required": ["port"], "properties": {
        "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": text,
    }});
    let spec = json!({"type": "object", "properties": {
        "color": text,
        "deep": {"type": "object", "properties": {"er": {"type": "object", "properties": {"x": text}}}},
        "entries": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": text, "b": text}}},
        "open": {"type": "object", "additionalProperties": true},
        "plain": {"type": "array", "items": text},
        "ports": {"type": "array", "items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]},
        "reference": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"kind": text, "name": text}},
        "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
    }});
    let sites = Definition::new(on, "Site").property("spec", spec).create(on).await;
    let here = format!("{}/s", sites.path());
    let config = |spec: Value| sites.object("s", spec);
    let all = json!({
        "color": "red", "deep": {"er": {"x": "1"}}, "entries": {"k": {"a": "1"}}, "open": {"x": {"y": "1"}}, "plain": ["1"],
        "ports": [{"port": 1, "protocol": "TCP", "name": "n"}], "reference": {"name": "r"}, "tags": ["x", "y"],
    });
    let made = apply(on, &here, "one", config(all)).await.ok();
    let fields = json!({"f:spec": {
        "f:color": {}, "f:deep": {"f:er": {"f:x": {}}}, "f:entries": {"f:k": {".": {}, "f:a": {}}},
        "f:open": {"f:x": {".": {}, "f:y": {}}}, "f:plain": {},
        "f:ports": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}},
        "f:reference": {}, "f:tags": {"v:\"x\"": {}, "v:\"y\"": {}},
    }});
    assert_eq!(managers(&made), [json!(["one", "Apply", null, fields])]);

    let other = json!({
        "color": "red", "entries": {"k": {"a": "2", "b": "2"}}, "plain": ["1", "2"], "ports": [{"port": 1, "name": "m"}],
        "reference": {"name": "r", "kind": "k"}, "tags": ["x", "z"],
    });
    let refused = apply(on, &here, "two", config(other)).await;
    let fields =
        [".spec.plain", ".spec.reference", ".spec.entries.k.a", ".spec.ports[port=1,protocol=\"TCP\"].name"];
    is_conflict(&refused, "\"one\"", &fields);
    let more =
        json!({"entries": {"k": {"b": "2"}}, "ports": [{"port": 1, "protocol": "UDP"}], "tags": ["z", "x"]});
    let merged = apply(on, &here, "two", config(more)).await.ok();
    let spec = &merged["spec"];
    assert_eq!(
        (&spec["tags"], &spec["entries"]),
        (&json!(["z", "x", "y"]), &json!({"k": {"a": "1", "b": "2"}}))
    );
    let left = apply(on, &here, "one", config(json!({"color": "red"}))).await.ok();
    let expected = json!({
        "color": "red", "entries": {"k": {"b": "2"}}, "ports": [{"port": 1, "protocol": "UDP"}], "tags": ["z", "x"],
    });
    assert_eq!(left["spec"], expected);

    let unknown = apply(on, &here, "one", config(json!({"colour": "red"}))).await;
    let type_of = format!("{}, Kind=Site", sites.object("s", json!({}))["apiVersion"].as_str().unwrap());
    let failed = |why: &str| format!("failed to create typed patch object (/s; {type_of}): {why}");
    assert_eq!(
        (unknown.code, unknown.body["message"].as_str().unwrap()),
        (500, &*failed(".spec.colour: field not declared in schema"))
    );
    let twice =
        apply(on, &here, "one", config(json!({"ports": [{"port": 1}, {"port": 1}], "tags": ["a", "a"]})))
            .await;
    // A real server reports the errors of an object's fields in the random order of a Go map.
    let mut lines: Vec<_> = twice.body["message"].as_str().unwrap().split('\n').collect();
    lines[1..].sort_unstable();
    let why = "errors:\n  .spec.ports: duplicate entries for key [port=1,protocol=\"TCP\"]\n  \
               .spec.tags: duplicate entries for key [=\"a\"]";
    assert_eq!((twice.code, lines.join("\n")), (500, failed(why)));
}

/// If the definition has no schema for a field, objects are merged and lists are replaced.
pub async fn custom_resources_without_a_schema_have_atomic_lists(on: &Server) {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let sites = Definition::new(on, "Site").property("spec", open).create(on).await;
    let here = format!("{}/s", sites.path());
    let config = |spec: Value| sites.object("s", spec);
    let made = apply(on, &here, "one", config(json!({"a": {"b": 1}, "list": [{"name": "x"}]}))).await.ok();
    let fields = json!({"f:spec": {"f:a": {".": {}, "f:b": {}}, "f:list": {}}});
    assert_eq!(managers(&made), [json!(["one", "Apply", null, fields])]);
    let merged = apply(on, &here, "two", config(json!({"a": {"c": 2}}))).await.ok();
    assert_eq!(merged["spec"]["a"], json!({"b": 1, "c": 2}));
    let refused = apply(on, &here, "two", config(json!({"list": [{"name": "y"}]}))).await;
    is_conflict(&refused, "\"one\"", &[".spec.list"]);
    on.create(&format!("{}?fieldManager=creator", sites.path()), sites.object("t", json!({"a": {"b": 1}})))
        .await;
    let there = format!("{}/t", sites.path());
    let applied = apply(on, &there, "one", sites.object("t", json!({"a": {"b": 1}}))).await.ok();
    let fields = json!({"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}}});
    assert_eq!(managers(&applied)[0], json!(["creator", "Update", null, fields]));
    let left = apply(on, &here, "one", config(json!({"a": {}}))).await.ok();
    assert_eq!(left["spec"], json!({"a": {"c": 2}}));
    let left = apply(on, &here, "two", config(json!({}))).await.ok();
    assert_eq!(left["spec"]["a"], Value::Null);
}
