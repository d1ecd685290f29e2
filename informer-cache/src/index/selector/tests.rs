//! Tests of the selector: the cases of Kubernetes' own selector tests, and further cases.

use super::{Selector, label};

fn parsed(text: &str) -> Selector {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

type Labels<'a> = &'a [(&'a str, &'a str)];

fn matches(selector: &str, labels: Labels<'_>) -> bool {
    parsed(selector).matches(|key| labels.iter().find(|label| label.0 == key).map(|label| label.1))
}

#[test]
fn parses_and_prints_texts() {
    let table = [
        ("", ""),
        (" \t\r\n", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("x!=a,y=b", "x!=a,y=b"),
        ("x=", "x="),
        ("x= ", "x="),
        ("x=,z= ", "x=,z="),
        ("x= ,z= ", "x=,z="),
        ("x==", "x="),
        ("!x", "!x"),
        ("! x", "!x"),
        ("x>1", "x>1"),
        ("x > 1 , z < 5", "x>1,z<5"),
        ("x>007", "x>7"),
        ("x>9223372036854775807", "x>9223372036854775807"),
        ("\rx", "x"),
        ("a ", "a"),
        ("this-is-a-dns.domain.com/key-with-dash", "this-is-a-dns.domain.com/key-with-dash"),
        ("example.com/x in (so,what)", "example.com/x in (so,what)"),
        ("0.1.2.domain/99 notin (10.10.100.1, t.t)", "0.1.2.domain/99 notin (10.10.100.1,t.t)"),
        ("foo  in\t (abc)", "foo=abc"),
        ("x notin\n (abc)", "x!=abc"),
        ("x  notin\t\t\t(def,abc)", "x notin (abc,def)"),
        ("x in(a,b)", "x in (a,b)"),
        ("x in ()", "x="),
        ("x notin ( )", "x!="),
        ("x in (,)", "x="),
        ("x in (abc,)", "x in (,abc)"),
        ("x notin (, a)", "x notin (,a)"),
        ("x in (,,a)", "x in (,a)"),
        ("x in (,,)", "x="),
        ("x in (a,,)", "x in (,a)"),
        ("x in (foo,,baz),y,z notin ()", "x in (,baz,foo),y,z!="),
        ("x in (a,,,b)", "x in (,a,b)"),
        ("x in (a,,,)", "x in (,a)"),
        ("x in (a,a,a)", "x=a"),
        ("x=a,x==a,x in (a)", "x=a"),
        ("x=a,x=b", "x=a,x=b"),
        ("z,x notin (abc,def),bar,w in (),a", "a,bar,w=,x notin (abc,def),z"),
        ("a in (x,y,notin, z,in)", "a in (in,notin,x,y,z)"),
        ("notin=in", "notin=in"),
        ("in in (in),notin notin (notin)", "in=in,notin!=notin"),
        ("in", "in"),
        ("!notin", "!notin"),
        ("X=A_b.c-9", "X=A_b.c-9"),
    ];
    for (text, printed) in table {
        let selector = parsed(text);
        assert_eq!(selector.to_string(), printed, "{text:?}");
        assert_eq!(parsed(printed), selector, "{text:?}");
    }
}

#[test]
fn rejects_invalid_texts_with_position_and_expectation() {
    let (key, value) = (super::parse::requirements(",").unwrap_err().expected, "a value: at most 63");
    let table = [
        ("x=a||y=b", 2, value),
        ("x==a==b", 4, "`,` or the end"),
        ("!x=a", 2, "`,` or the end"),
        ("!x in (a)", 3, "`,` or the end"),
        ("x=a b", 4, "`,` or the end"),
        ("x<a", 2, "a whole number"),
        ("x>", 2, "a whole number"),
        ("x>,y", 2, "a whole number"),
        ("x>-1", 2, "a whole number"),
        ("x>+1", 2, "a whole number"),
        ("x>9223372036854775808", 2, "a whole number"),
        ("x>=1", 2, "a whole number"),
        (",", 0, key),
        (",x,y", 0, key),
        ("x,", 2, key),
        ("x,,y", 2, key),
        ("a in (xyz),", 11, key),
        ("a in (xyz)b notin ()", 10, "`,` or the end"),
        ("x nott in (y)", 2, "`=`, `==`"),
        ("x y", 2, "`=`, `==`"),
        ("x!y", 1, "`=`, `==`"),
        ("x in", 4, "`(`"),
        ("x in a", 5, "`(`"),
        ("x in (a", 7, "`,` or `)`"),
        ("x in (", 6, "`,` or `)`"),
        ("a notin(", 8, "`,` or `)`"),
        ("a notin(,,", 10, "`,` or `)`"),
        ("x=)", 2, "`,` or the end"),
        ("a in (xyz abc)", 10, "`,` or `)`"),
        ("x in (=)", 6, value),
        ("x in ((a))", 6, value),
        ("a (", 2, "`=`, `==`"),
        ("(", 0, key),
        (")", 0, key),
        ("!", 1, key),
        ("!!x", 1, key),
        ("=a", 0, key),
        ("x=(a)", 2, value),
        ("x=!", 2, value),
        ("-x", 0, key),
        ("x.", 0, key),
        ("/x", 0, key),
        ("a/", 0, key),
        ("a/b/c", 0, key),
        ("Example.com/x", 0, key),
        ("a..b/x", 0, key),
        ("-a/x", 0, key),
        ("é", 0, key),
        ("x=é", 2, value),
        ("x=-a", 2, value),
        ("x\u{a0}", 0, key),
        ("x\0", 0, key),
        ("<nothing>", 0, key),
    ];
    for (text, position, expected) in table {
        let error = text.parse::<Selector>().expect_err(text);
        assert_eq!(error.position(), position, "{error}");
        assert!(error.expected().starts_with(expected), "{error}");
        assert_eq!(error.text(), text);
    }
    let error = "app in web".parse::<Selector>().unwrap_err();
    assert_eq!(error.to_string(), "\"app in web\" is not a label selector: at byte 7, expected `(`");
}

#[test]
fn matches_labels() {
    let both = [("foo", "bar"), ("baz", "blah")];
    let table: [(&str, Labels<'_>, bool); 46] = [
        ("", &[("x", "y")], true),
        ("", &[], true),
        ("x=y", &[("x", "y")], true),
        ("x=y,z=w", &[("x", "y"), ("z", "w")], true),
        ("x!=y,z!=w", &[("x", "z"), ("z", "a")], true),
        ("x!=y", &[], true),
        ("x notin (y,z)", &[("y", "x")], true),
        ("x notin (y,z)", &[("x", "z")], false),
        ("x notin (y,z)", &[("x", "")], true),
        ("notin=in", &[("notin", "in")], true),
        ("x", &[("x", "z")], true),
        ("x", &[("x", "")], true),
        ("!x", &[("y", "z")], true),
        ("!x", &[("x", "")], false),
        ("x>1", &[("x", "2")], true),
        ("x>1", &[("x", "1")], false),
        ("x>1", &[("x", "v2")], false),
        ("x>1", &[("x", "")], false),
        ("x>1", &[], false),
        ("x>1", &[("x", "+2")], true),
        ("x>1", &[("x", "9223372036854775808")], false),
        ("x<1", &[("x", "0")], true),
        ("x<1", &[("x", "-9")], true),
        ("x<1", &[("x", "1_0")], false),
        ("x<1", &[], false),
        ("x=z", &[], false),
        ("x=", &[], false),
        ("x=", &[("x", "")], true),
        ("x!=", &[], true),
        ("x!=", &[("x", "")], false),
        ("x=y", &[("x", "z")], false),
        ("x=y,z=w", &[("x", "w"), ("z", "w")], false),
        ("x!=y,z!=w", &[("x", "z"), ("z", "w")], false),
        ("x", &[("y", "z")], false),
        ("!x", &[("x", "z")], false),
        ("x>1", &[("x", "0")], false),
        ("x<1", &[("x", "2")], false),
        ("x in (foo),y notin (alpha)", &[("x", "foo"), ("y", "baz")], true),
        ("x in (foo),y in (alpha)", &[("x", "foo"), ("y", "baz")], false),
        ("x notin (),y", &[("y", "")], true),
        ("x notin (),!y", &[("y", "")], false),
        ("x in ()", &[("y", "baz")], false),
        ("x=a,x=b", &[("x", "a")], false),
        ("x=a,!x", &[("x", "a")], false),
        ("foo=bar,baz=blah", &both, true),
        ("foo=bar,foobar=bar,baz=blah", &both, false),
    ];
    for (selector, labels, expected) in table {
        assert_eq!(matches(selector, labels), expected, "{selector:?} and {labels:?}");
    }
}

#[test]
fn builder_methods_equal_parsed_texts() {
    let everything = Selector::everything;
    let table = [
        (everything(), ""),
        (everything().equals("x", "a"), "x=a"),
        (everything().not_equals("x", "a"), "x!=a"),
        (everything().in_set("x", ["b", "a", "b"]), "x in (a,b)"),
        (everything().not_in("x", vec![String::from("a"), String::new()]), "x notin (,a)"),
        (everything().exists("x").does_not_exist("y"), "!y,x"),
        (everything().greater_than("x", 7).less_than("x", 9), "x>7,x<9"),
        (everything().equals("z", "1").and(parsed("a,z=1")), "z=1,a"),
        (everything().not_in("x", [""; 0]), ""),
    ];
    for (selector, text) in table {
        assert_eq!(selector, parsed(text));
        assert_eq!(selector.is_everything(), text.is_empty());
        assert!(!selector.is_nothing());
    }
    assert_eq!(format!("{:?}", parsed("x=a")), "Selector(x=a)");
    assert_eq!(Selector::default(), everything());
}

#[test]
fn nothing_matches_no_object_and_does_not_parse() {
    let nothing = Selector::nothing();
    let label = |_: &str| Some("a");
    for selector in [
        nothing.clone(),
        Selector::nothing().exists("x"),
        Selector::everything().and(nothing.clone()),
        Selector::everything().equals("x", "a").in_set("y", [""; 0]),
    ] {
        assert!(selector.is_nothing() && !selector.is_everything());
        assert!(!selector.matches(label) && !selector.matches(|_| None));
        assert_eq!(selector, nothing);
    }
    // Kubernetes prints a selector that matches nothing as the empty string, which its parser reads as a selector that matches everything.
    assert!(nothing.to_string().parse::<Selector>().is_err());
}

#[test]
fn invalid_labels_match_but_never_parse_as_other_selectors() {
    for text in ["a,b", "a b", "a)", "", "(", "!x", "\"", "é", "a\nb", "x=y", "-", &"a".repeat(64)] {
        let value = Selector::everything().equals("x", text);
        assert!(value.matches(|_| Some(text)));
        let key = Selector::everything().exists(text).in_set("y", ["a", text]);
        assert!(key.matches(|key| Some(if key == "y" { text } else { "" })));
        for selector in [value, key] {
            let read: Result<Selector, _> = selector.to_string().parse();
            assert!(read.is_err() || read == Ok(selector), "{text:?}");
        }
    }
    assert!(Selector::everything().less_than("x", -1).to_string().parse::<Selector>().is_err());
}

#[test]
fn checks_lengths_of_keys_and_values() {
    let (name, prefix) = ("a".repeat(63), "a".repeat(253));
    for key in [name.clone(), format!("{prefix}/{name}"), "A_b-c.d".into(), "0".into(), "a-b.c-d/E".into()] {
        assert!(label::is_key(&key), "{key}");
        assert_eq!(parsed(&format!("{key}={name}")).to_string(), format!("{key}={name}"));
    }
    for key in [format!("{name}a"), format!("{prefix}a/x"), "a_b/x".into(), "a.-b/x".into(), "".into()] {
        assert!(!label::is_key(&key), "{key}");
    }
    assert!(label::is_value("") && !label::is_value(&format!("{name}a")) && !label::is_value("a/b"));
}
