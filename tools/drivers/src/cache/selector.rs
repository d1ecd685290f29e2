//! Decodes arbitrary bytes to selectors, which are parsed from text or built with methods, and compares them with the oracle. The fuzz target also
//! uses this driver.

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::Selector;
use testkit::oracle::selector::{Labels, OracleSelector, Rule, Term};

/// Counts how often each case occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Selector texts that were parsed.
    pub read: u64,
    /// Selector texts that were refused.
    pub refused: u64,
    /// Selectors that were built with methods.
    pub spelled: u64,
    /// Selectors with arbitrary keys and values.
    pub foreign: u64,
    /// Label sets that matched.
    pub matched: u64,
    /// Label sets that did not match.
    pub missed: u64,
}

/// Runs one test with `bytes`. The first byte selects the kind of test; at most 80 of the other bytes are its input.
pub fn run(bytes: &[u8], seen: &mut Seen) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let rest = &rest[..rest.len().min(80)];
    match kind % 4 {
        0 => text(&String::from_utf8_lossy(rest), seen),
        1 => text(&words(rest), seen),
        2 => drop(spelled(&mut Unstructured::new(rest), seen)),
        _ => foreign(&String::from_utf8_lossy(rest), seen),
    }
}

/// Builds a selector text from words of the selector language, so that more texts are valid than with arbitrary characters.
fn words(bytes: &[u8]) -> String {
    const WORDS: [&str; 32] = [
        "x",
        "y",
        "a",
        "b",
        "example.com/x",
        "in",
        "in",
        "notin",
        "notin",
        "(",
        "(",
        ")",
        ")",
        ",",
        ",",
        ",",
        "=",
        "=",
        "==",
        "!=",
        "!",
        "<",
        ">",
        " ",
        " ",
        " ",
        "\t",
        "7",
        "007",
        "-1",
        "/",
        "é",
    ];
    bytes.iter().map(|byte| WORDS[usize::from(byte % 32)]).collect()
}

/// Checks that the crate and the oracle either both accept the text or both refuse it, and that the printed form of the selector parses to the same
/// selector.
fn text(text: &str, seen: &mut Seen) {
    let (read, oracle) = (text.parse::<Selector>(), OracleSelector::read(text));
    let (selector, oracle) = match (read, oracle) {
        (Ok(selector), Some(oracle)) => (selector, oracle),
        (Err(error), None) => {
            assert!(error.position() <= text.len() && text.is_char_boundary(error.position()), "{error}");
            seen.refused += 1;
            return;
        }
        (read, oracle) => panic!("{text:?} parses to {read:?}, but the oracle returns {oracle:?}"),
    };
    seen.read += 1;
    judge(&selector, &oracle, seen);
}

/// Checks that a selector built with methods equals the one parsed from a text with the same meaning, in any spelling.
fn spelled(u: &mut Unstructured<'_>, seen: &mut Seen) -> arbitrary::Result<()> {
    let oracle = OracleSelector::arbitrary(u)?;
    let selector = build(&oracle);
    judge(&selector, &oracle, seen);
    let spelled = oracle.spell(u)?;
    assert_eq!(spelled.parse().as_ref(), Ok(&selector), "{spelled:?}");
    seen.spelled += 1;
    Ok(())
}

/// Checks selectors with arbitrary strings as keys and values: their printed form either parses to the same selector, or is refused.
fn foreign(text: &str, seen: &mut Seen) {
    let mut words = text.split('|').map(str::to_owned);
    let (key, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let rules = [
        Rule::Equals(value.clone()),
        Rule::NotEquals(value.clone()),
        Rule::Exists,
        Rule::Absent,
        Rule::OneOf(words.clone().collect()),
        Rule::NoneOf(words.collect()),
        Rule::Less(-1),
    ];
    for rule in rules {
        let oracle = OracleSelector { terms: vec![Term { key: key.clone(), rule }] };
        let selector = build(&oracle);
        let read = selector.to_string().parse::<Selector>();
        assert!(read.is_err() || read.as_ref() == Ok(&selector), "{selector} parses to {read:?}");
        agree(&selector, &oracle, seen);
        seen.foreign += 1;
    }
}

pub(crate) fn build(oracle: &OracleSelector) -> Selector {
    oracle.terms.iter().fold(Selector::everything(), |selector, Term { key, rule }| {
        let key = key.as_str();
        match rule {
            Rule::Equals(value) => selector.equals(key, value.as_str()),
            Rule::NotEquals(value) => selector.not_equals(key, value.as_str()),
            Rule::OneOf(values) => selector.in_set(key, values.iter().map(String::as_str)),
            Rule::NoneOf(values) => selector.not_in(key, values.iter().map(String::as_str)),
            Rule::Exists => selector.exists(key),
            Rule::Absent => selector.does_not_exist(key),
            Rule::Greater(bound) => selector.greater_than(key, *bound),
            Rule::Less(bound) => selector.less_than(key, *bound),
        }
    })
}

/// Checks that the printed form of the selector parses to an equal selector, and has the same meaning for the oracle.
fn judge(selector: &Selector, oracle: &OracleSelector, seen: &mut Seen) {
    let printed = selector.to_string();
    assert_eq!(printed.parse().as_ref(), Ok(selector), "{printed:?}");
    let again = OracleSelector::read(&printed).expect("a printed selector parses");
    for labels in oracle.probes() {
        assert_eq!(
            again.matches(&labels),
            oracle.matches(&labels),
            "{printed:?} is not {oracle:?} for {labels:?}"
        );
    }
    agree(selector, oracle, seen);
}

fn agree(selector: &Selector, oracle: &OracleSelector, seen: &mut Seen) {
    for labels in oracle.probes() {
        let matches = selector.matches(|key| label(&labels, key));
        assert_eq!(matches, oracle.matches(&labels), "{selector} and {labels:?}");
        if matches { seen.matched += 1 } else { seen.missed += 1 }
    }
}

fn label<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    labels.iter().find(|label| label.0 == key).map(|label| label.1.as_str())
}
