//! PURE. Randomised tests of the algebra of field sets, and of applies.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::state::apply::comparison::Comparison;
use crate::state::apply::field_type::FieldType;
use crate::state::apply::managers::{Manager, Managers, Operation, Writer};
use crate::state::apply::merge::merge;
use crate::state::field_set::FieldSet;

const CASES: u64 = 500;

/// A linear congruential generator, whose seed is the number of the case.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn often(&mut self) -> bool {
        self.below(5) < 2
    }

    fn text(&mut self) -> Value {
        ["a", "b", "c"][self.below(3) as usize].into()
    }

    fn set(&mut self) -> Value {
        let mut items = vec!["x", "y", "z"];
        items.retain(|_| self.often());
        if self.often() {
            items.reverse();
        }
        json!(items)
    }

    fn configuration(&mut self) -> Value {
        let mut spec = Map::new();
        if self.often() {
            spec.insert("color".to_owned(), self.text());
        }
        if self.often() {
            spec.insert("tags".to_owned(), self.set());
        }
        if self.often() {
            spec.insert("plain".to_owned(), self.set());
        }
        if self.often() {
            spec.insert("reference".to_owned(), json!({"name": self.text()}));
        }
        if self.often() {
            let mut entries = Map::new();
            for key in ["k", "l"] {
                let entry = json!({(if self.often() { "a" } else { "b" }): self.text()});
                if self.often() {
                    entries.insert(key.to_owned(), entry);
                }
            }
            spec.insert("entries".to_owned(), Value::Object(entries));
        }
        if self.often() {
            let mut ports =
                vec![json!({"port": 1}), json!({"port": 1, "protocol": "UDP"}), json!({"port": 2})];
            ports.retain(|_| self.often());
            for port in &mut ports {
                if self.often() {
                    port["name"] = self.text();
                }
            }
            spec.insert("ports".to_owned(), ports.into());
        }
        if self.often() {
            spec.insert(
                "deep".to_owned(),
                json!({"er": {(if self.often() { "x" } else { "y" }): self.text()}}),
            );
        }
        // Empty lists and objects are left out, because the laws hold for them neither here nor on a real server: an empty list has no manager, and
        // an empty object is a field of its own.
        spec.retain(|_, value| value != &json!([]) && value != &json!({}));
        let mut configuration = json!({"metadata": {"name": "a"}});
        if !spec.is_empty() {
            configuration["spec"] = spec.into();
        }
        configuration
    }
}

fn schema() -> Value {
    let text = json!({"type": "string"});
    let port = json!({"properties": {"port": {}, "protocol": {"default": "TCP"}, "name": text}});
    let entry = json!({"properties": {"a": text, "b": text}});
    let spec = json!({"properties": {
        "color": text,
        "deep": {"properties": {"er": {"properties": {"x": text, "y": text}}}},
        "entries": {"additionalProperties": entry},
        "plain": {"items": text},
        "ports": {"items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]},
        "reference": {"x-kubernetes-map-type": "atomic", "properties": {"name": text}},
        "tags": {"items": text, "x-kubernetes-list-type": "set"},
    }});
    json!({"properties": {"spec": spec}})
}

fn writer(number: u64, operation: Operation) -> Writer {
    let api_version = if operation == Operation::Update { "v1".to_owned() } else { String::new() };
    let manager = Manager { name: format!("m{number}"), operation, api_version, subresource: String::new() };
    Writer { manager, api_version: "v1".to_owned(), time: "2026-01-01T00:00:00Z".to_owned() }
}

#[test]
fn sets_of_fields_are_sets_of_paths() {
    let schema = schema();
    let of = FieldType::Custom(Some(&schema));
    let paths = |set: &FieldSet| -> BTreeSet<String> { set.paths().into_iter().collect() };
    for case in 0..CASES {
        let mut random = Random(case);
        let sets = [(); 2].map(|()| FieldSet::of_object(&random.configuration(), of).with_parents(of));
        let [a, b] = &sets;
        let [in_a, in_b] = [paths(a), paths(b)];
        assert_eq!(paths(&a.union(b)), &in_a | &in_b, "{case}");
        assert_eq!(paths(&a.intersection(b)), &in_a & &in_b, "{case}");
        assert_eq!(paths(&a.difference(b)), &in_a - &in_b, "{case}");
        let is_below = |path: &String| in_b.iter().any(|root| path.starts_with(&**root));
        let left: BTreeSet<_> = in_a.iter().filter(|path| !is_below(path)).cloned().collect();
        assert_eq!(paths(&a.without(b)), left, "{case}");
        assert_eq!(FieldSet::from_json(&a.to_json()).as_ref(), Some(a), "{case}");
    }
}

#[test]
fn comparisons_separate_added_modified_and_removed_fields() {
    let schema = schema();
    let of = FieldType::Custom(Some(&schema));
    for case in 0..CASES {
        let mut random = Random(case);
        let [before, after] = [(); 2].map(|()| random.configuration());
        let (old, new) = (FieldSet::of_object(&before, of), FieldSet::of_object(&after, of));
        let Comparison { added, modified, removed } = Comparison::of(&before, &after, of);
        assert!(added.intersection(&old).is_empty() && removed.intersection(&new).is_empty(), "{case}");
        assert!(new.difference(&old).difference(&added.union(&modified)).is_empty(), "{case}");
        assert!(old.difference(&new).difference(&removed.union(&modified)).is_empty(), "{case}");
        assert_eq!(Comparison::of(&before, &before, of), Comparison::default());
        let back = Comparison::of(&after, &before, of);
        assert_eq!((back.added, back.modified, back.removed), (removed, modified, added), "{case}");
    }
}

/// Three managers apply random configurations, some of them with `force`. After every step, the object has the values that each manager applied last,
/// unless another manager has replaced them with `force`.
#[test]
fn applied_values_stay_until_another_manager_takes_them() {
    let schema = schema();
    let of = FieldType::Custom(Some(&schema));
    let none = FieldSet::default();
    for case in 0..CASES {
        let mut random = Random(case);
        let (mut object, mut managers) = (json!({}), Managers::default());
        let mut applied: [Value; 3] = [json!({}), json!({}), json!({})];
        for _ in 0..8 {
            let number = random.below(3);
            let config = random.configuration();
            let writer = writer(number, Operation::Apply);
            let force = random.often();
            let before = managers.clone();
            match managers.apply(&writer, &object, &config, of, &none, force) {
                Err(conflicts) => {
                    assert!(!force && !conflicts.0.is_empty(), "{case}");
                    managers = before;
                }
                Ok(after) => {
                    object = after;
                    applied[number as usize] = config.clone();
                    let mut again = managers.clone();
                    let same = again.apply(&writer, &object, &config, of, &none, false).unwrap();
                    assert_eq!(
                        (&same, &again),
                        (&object, &managers),
                        "{case}: the same apply again changes nothing"
                    );
                    if force {
                        // A forced apply replaces the values of other managers.
                        let differs = |other: &Value| {
                            Comparison::of(&object, &merge(&object, other, of), of) != Comparison::default()
                        };
                        for other in applied.iter_mut().filter(|other| differs(other)) {
                            *other = json!({});
                        }
                    }
                }
            }
            for config in &applied {
                let merged = merge(&object, config, of);
                assert_eq!(
                    Comparison::of(&object, &merged, of),
                    Comparison::default(),
                    "{case}: {config} in {object}"
                );
            }
        }
        for number in 0..3 {
            object = managers
                .apply(&writer(number, Operation::Apply), &object, &json!({}), of, &none, false)
                .unwrap();
        }
        assert!(managers.is_empty(), "{case}");
        assert_eq!(object, json!({"metadata": {"name": "a"}}), "{case}: a field without a manager");
    }
}

#[test]
fn an_update_takes_the_fields_that_it_changes() {
    let schema = schema();
    let of = FieldType::Custom(Some(&schema));
    let none = FieldSet::default();
    for case in 0..CASES {
        let mut random = Random(case);
        let (first, second) = (random.configuration(), random.configuration());
        let mut managers = Managers::default();
        let object =
            managers.apply(&writer(0, Operation::Apply), &json!({}), &first, of, &none, false).unwrap();
        managers.update(&writer(1, Operation::Update), &object, &second, of, &none);
        // A new apply by the first manager conflicts if and only if the update has modified fields of that manager. A forced apply restores these
        // fields.
        let changed = Comparison::of(&second, &merge(&second, &first, of), of);
        let mut tried = managers.clone();
        let retried = tried.apply(&writer(0, Operation::Apply), &second, &first, of, &none, false);
        let is_conflict = !changed.modified.is_empty();
        assert_eq!(retried.is_err(), is_conflict, "{case}: {first} {second}");
        let forced = managers.apply(&writer(0, Operation::Apply), &second, &first, of, &none, true).unwrap();
        let is_merged = Comparison::of(&forced, &merge(&forced, &first, of), of);
        assert_eq!(is_merged, Comparison::default(), "{case}");
    }
}

/// All writes have the same time, so their entries are merged in the order of the managers' names. The name of the merged entry sorts after all of
/// them.
#[test]
fn merged_entries_of_updates_lose_no_field() {
    let of = FieldType::Custom(None);
    let none = FieldSet::default();
    let (mut object, mut managers) = (json!({}), Managers::default());
    for number in 10..40 {
        let mut after = object.clone();
        after["spec"][format!("n{number}")] = number.into();
        let mut writer = writer(number, Operation::Update);
        writer.manager.name = format!("A{number}");
        managers.update(&writer, &object, &after, of, &none);
        object = after;
    }
    let entries = managers.to_json();
    assert_eq!(entries.as_array().map(Vec::len), Some(10), "{entries:#}");
    for number in 10..40 {
        let config = json!({"spec": {format!("n{number}"): 0}});
        let applied =
            managers.clone().apply(&writer(0, Operation::Apply), &object, &config, of, &none, false);
        assert_eq!(applied.unwrap_err().0.len(), 1, "{number}: a field without a manager");
    }
}
