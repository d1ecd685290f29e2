//! Conversions of selectors: a converted selector selects the same objects, and the conversion of a selector that the target type cannot express
//! returns an error.

use std::collections::BTreeMap;

use flyball_informer_cache::{Selector, SelectorOperator};
use flyball_kube::{SelectorError, SelectorExt};
use flyball_kube_testing::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::ListParams;
use kube::core::{Expression, Selector as KubeSelector, SelectorExt as _};
use kube::{Api, ResourceExt};
use testkit::random::Random;

const KEYS: [&str; 3] = ["a", "b", "example.com/c"];
const VALUES: [&str; 5] = ["", "x", "y", "7", "12"];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

fn some_values(random: &mut Random) -> Vec<String> {
    (0..random.below(4)).map(|_| pick(random, &VALUES).to_owned()).collect()
}

fn labels(random: &mut Random) -> BTreeMap<String, String> {
    let count = random.below(4);
    (0..count).map(|_| (pick(random, &KEYS).to_owned(), pick(random, &VALUES).to_owned())).collect()
}

fn random_selector(random: &mut Random) -> Selector {
    (0..random.below(4)).fold(Selector::everything(), |all, _| {
        let key = pick(random, &KEYS);
        match random.below(8) {
            0 => all.equals(key, pick(random, &VALUES)),
            1 => all.not_equals(key, pick(random, &VALUES)),
            2 | 3 => all.in_set(key, some_values(random)),
            4 => all.not_in(key, some_values(random)),
            5 => all.exists(key),
            6 => all.does_not_exist(key),
            _ if random.below(3) > 0 => all.exists(key),
            _ => all.greater_than(key, 8),
        }
    })
}

fn kubes(random: &mut Random) -> KubeSelector {
    let expression = |random: &mut Random| {
        let (key, value) = (pick(random, &KEYS).to_owned(), pick(random, &VALUES).to_owned());
        match random.below(6) {
            0 => Expression::In(key, some_values(random).into_iter().collect()),
            1 => Expression::NotIn(key, some_values(random).into_iter().collect()),
            2 => Expression::Equal(key, value),
            3 => Expression::NotEqual(key, value),
            4 => Expression::Exists(key),
            _ => Expression::DoesNotExist(key),
        }
    };
    (0..random.below(4)).map(|_| expression(random)).collect()
}

fn label_selector(random: &mut Random) -> LabelSelector {
    let requirement = |random: &mut Random| LabelSelectorRequirement {
        key: pick(random, &KEYS).to_owned(),
        operator: pick(random, &["In", "NotIn", "Exists", "DoesNotExist", "Gt"]).to_owned(),
        values: [None, Some(some_values(random))][random.below(2) as usize].clone(),
    };
    LabelSelector {
        match_labels: Some(labels(random)),
        match_expressions: Some((0..random.below(3)).map(|_| requirement(random)).collect()),
    }
}

fn matches(selector: &Selector, labels: &BTreeMap<String, String>) -> bool {
    selector.matches(|key| labels.get(key).map(String::as_str))
}

/// Returns whether only the caches' `Selector` can express the selector.
fn is_inexpressible(selector: &Selector) -> bool {
    selector.requirements().is_none_or(|all| {
        all.iter().any(|one| {
            matches!(one.operator, SelectorOperator::GreaterThan(_) | SelectorOperator::LessThan(_))
        })
    })
}

#[test]
fn conversions_agree_on_random_labels_and_round_trip() {
    let (mut converted, mut refused) = (0, 0);
    for seed in 0..20_000 {
        let random = &mut Random::new(seed);
        let (selector, kube, spec) = (random_selector(random), kubes(random), label_selector(random));
        let all_labels: Vec<_> = (0..8).map(|_| labels(random)).collect();

        let from_kube = Selector::from_kube(&kube);
        for labels in &all_labels {
            assert_eq!(matches(&from_kube, labels), kube.matches(labels), "{seed}: {kube:?}, {labels:?}");
        }

        match (selector.to_kube(), selector.to_label_selector()) {
            (Ok(kube), Ok(spec)) => {
                converted += 1;
                assert!(!is_inexpressible(&selector), "{seed}: {selector}");
                assert_eq!(Selector::from_kube(&kube), selector, "{seed}");
                assert_eq!(Selector::from_label_selector(&spec).as_ref(), Ok(&selector), "{seed}");
                // For comparison, kube's own code also converts the `LabelSelector`.
                let by_kube = KubeSelector::try_from(spec).unwrap();
                for labels in &all_labels {
                    assert_eq!(kube.matches(labels), matches(&selector, labels), "{seed}: {selector}");
                    assert_eq!(by_kube.matches(labels), matches(&selector, labels), "{seed}: {selector}");
                }
            }
            (Err(kube), Err(spec)) => {
                refused += 1;
                assert!(is_inexpressible(&selector), "{seed}: {selector}");
                assert_eq!(kube, spec);
            }
            other => panic!("{seed}: {selector}: {other:?}"),
        }

        let fits = |one: &LabelSelectorRequirement| {
            let empty = one.values.as_ref().is_none_or(Vec::is_empty);
            matches!((&*one.operator, empty), ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true))
        };
        let valid = spec.match_expressions.iter().flatten().all(fits);
        let from_spec = Selector::from_label_selector(&spec);
        assert_eq!(from_spec.is_ok(), valid, "{seed}: {spec:?}");
        if let Ok(from_spec) = from_spec {
            let by_kube = KubeSelector::try_from(spec).unwrap();
            for labels in &all_labels {
                assert_eq!(matches(&from_spec, labels), by_kube.matches(labels), "{seed}: {from_spec}");
            }
        }
    }
    assert!(converted > 8_000 && refused > 1_000, "{converted} converted, {refused} refused");
}

#[test]
fn an_unsupported_selector_is_an_error_with_the_label() {
    assert_eq!(Selector::nothing().to_kube(), Err(SelectorError::Nothing));
    let less = Selector::everything().exists("a").less_than("cpu", 7);
    let error = less.to_label_selector().unwrap_err();
    assert_eq!(error, SelectorError::Comparison { key: "cpu".into() });
    assert_eq!(error.to_string(), "a comparison of the label \"cpu\" has no such form");
    let unknown = LabelSelectorRequirement { key: "a".into(), operator: "Gt".into(), values: None };
    let spec = LabelSelector { match_expressions: Some(vec![unknown]), match_labels: None };
    let error = Selector::from_label_selector(&spec).unwrap_err();
    assert_eq!(error.to_string(), "unknown operator \"Gt\" for the label \"a\"");
    assert_eq!(Selector::everything().to_label_selector(), Ok(LabelSelector::default()));
    assert!(Selector::from_label_selector(&LabelSelector::default()).unwrap().is_everything());
}

/// The in-memory API server has its own parser of selectors. It must accept the same text as the cache's parser, and select the same objects.
#[tokio::test(start_paused = true)]
async fn the_server_in_memory_selects_what_the_cache_selects() {
    let server = ApiServer::new();
    server.register::<ConfigMap>();
    let api = Api::<ConfigMap>::default_namespaced(server.client());
    let random = &mut Random::new(1);
    for number in 0..40 {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("m{number}"));
        *map.labels_mut() = labels(random);
        server.put(&map);
    }
    let pieces = [
        "a", "b", "x", "7", "=", "==", "!=", "!", " in ", " notin ", "(", ")", ",", ">", "<", " ", "a/b/c",
        "-",
    ];
    let (mut selected, mut refused) = (0, 0);
    for _ in 0..4_000 {
        let text = match random.below(2) {
            0 => random_selector(random).to_string(),
            _ => (0..random.below(8)).map(|_| pick(random, &pieces)).collect(),
        };
        match (text.parse::<Selector>(), api.list(&ListParams::default().labels(&text)).await) {
            (Ok(selector), Ok(list)) => {
                selected += 1;
                let wanted: Vec<_> =
                    server.list().into_iter().filter(|map: &ConfigMap| selector.selects(map)).collect();
                let names = |maps: &[ConfigMap]| maps.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
                assert_eq!(names(&list.items), names(&wanted), "{text:?}");
            }
            (Err(_), Err(kube::Error::Api(status))) if status.code == 400 => refused += 1,
            (own, served) => panic!("{text:?}: {own:?}, {served:?}"),
        }
    }
    assert!(selected > 1_000 && refused > 500, "{selected} selected, {refused} refused");
}

#[test]
fn rejects_invalid_labels() {
    let with = |key: &str, value: &str| LabelSelector {
        match_labels: Some([(key.to_owned(), value.to_owned())].into()),
        match_expressions: None,
    };
    for (key, value) in [
        ("", "x"),
        ("a b", "x"),
        ("a", "x y"),
        ("a", "-x"),
        ("a,b", "x"),
        ("a=b", "x"),
        ("!a", "x"),
        ("a/b/c", "x"),
    ] {
        let refused = Selector::from_label_selector(&with(key, value)).unwrap_err();
        assert!(matches!(refused, SelectorError::Label { .. }), "{key:?}, {value:?}: {refused}");
    }
    let longest = "x".repeat(63);
    assert!(Selector::from_label_selector(&with(&format!("example.com/{longest}"), &longest)).is_ok());
    assert!(Selector::from_label_selector(&with("a", &"x".repeat(64))).is_err());
    let nothing = LabelSelector::default();
    assert!(Selector::from_label_selector(&nothing).is_ok_and(|selector| selector.is_everything()));
}
