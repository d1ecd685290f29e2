//! Checks the YAML blocks of the page `production.md`: they can be parsed, and each rule of a role is complete.

use serde_json::Value;

#[test]
fn manifests_can_be_read() {
    let page = include_str!("../../src/production.md");
    let blocks: Vec<Value> = page
        .split("```yaml\n")
        .skip(1)
        .map(|block| serde_saphyr::from_str(block.split("```").next().unwrap()).unwrap())
        .collect();
    let rules: Vec<_> = blocks.iter().filter_map(Value::as_array).flatten().collect();
    let resources: Vec<_> = rules.iter().map(|rule| rule["resources"][0].as_str().unwrap()).collect();
    assert!(["notes", "configmaps", "leases", "events"].iter().all(|name| resources.contains(name)));
    for rule in rules {
        assert_eq!(rule.as_object().unwrap().len(), 3, "{rule}");
        assert!(rule["apiGroups"].is_array(), "{rule}");
        let known = ["get", "list", "watch", "create", "update", "patch", "delete"];
        let verbs = rule["verbs"].as_array().unwrap();
        assert!(verbs.iter().all(|verb| known.contains(&verb.as_str().unwrap())), "{rule}");
    }
    let deployment = blocks.iter().find(|block| block["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    // 25 s: `shutdown_grace` and `abort_after` together.
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 25);
    assert_eq!(pod["containers"][0]["readinessProbe"]["httpGet"]["path"], "/readyz");
}
