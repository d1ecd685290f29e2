//! PURE. Parses lines from JSON, and formats answers as JSON.
//!
//! A line is a JSON object with the member `op`; unknown members are ignored. Numbers are non-negative integers. A number of milliseconds must be
//! valid as a Go duration, which has 63 bits for nanoseconds.

use serde_json::{Value, json};
use testkit::client_go::{Answer, LimiterConfig, LimiterLine, QueueLine, StoreLine, StoreObject};

const MOST_MS: u64 = i64::MAX as u64 / 1_000_000;

/// A parsed line, or the reason why it is invalid.
pub(crate) type Parsed<L> = Result<L, String>;

pub(crate) fn queue_line(text: &str) -> Parsed<QueueLine> {
    let line = object(text)?;
    Ok(match word(&line, "op")? {
        "config" => {
            let base_ms = millis_or(&line, "base_ms", 5)?;
            QueueLine::Config { base_ms, max_ms: millis_or(&line, "max_ms", 1_000_000)? }
        }
        "add" => QueueLine::Add(key(&line)?),
        "add_after" => QueueLine::AddAfter(key(&line)?, millis(&line, "ms")?),
        "add_rate_limited" => QueueLine::AddRateLimited(key(&line)?),
        "get" => QueueLine::Get,
        "done" => QueueLine::Done(key(&line)?),
        "forget" => QueueLine::Forget(key(&line)?),
        "requeues" => QueueLine::Requeues(key(&line)?),
        "len" => QueueLine::Len,
        "advance" => QueueLine::Advance(millis(&line, "ms")?),
        "shutdown" => QueueLine::Shutdown,
        "shutting_down" => QueueLine::ShuttingDown,
        op => return Err(format!("no such operation: {op}")),
    })
}

pub(crate) fn limiter_line(text: &str) -> Parsed<LimiterLine> {
    let line = object(text)?;
    Ok(match word(&line, "op")? {
        "config" => LimiterLine::Config(limiter_config(&line)?),
        "when" => LimiterLine::When(key(&line)?),
        "forget" => LimiterLine::Forget(key(&line)?),
        "requeues" => LimiterLine::Requeues(key(&line)?),
        op => return Err(format!("no such operation: {op}")),
    })
}

pub(crate) fn store_line(text: &str) -> Parsed<StoreLine> {
    let line = object(text)?;
    let name = || word(&line, "name").map(str::to_owned);
    Ok(match word(&line, "op")? {
        "index" => StoreLine::Index(name()?),
        "upsert" => StoreLine::Upsert(key(&line)?, store_object(&line["o"])?),
        "delete" => StoreLine::Delete(key(&line)?),
        "replace" => {
            let items = line["items"].as_object().ok_or("\"items\" has to be objects by key")?;
            let items = items.iter().map(|(key, object)| Ok((key.clone(), store_object(object)?)));
            StoreLine::Replace(items.collect::<Parsed<_>>()?, word(&line, "rv")?.to_owned())
        }
        "get" => StoreLine::Get(key(&line)?),
        "keys" => StoreLine::Keys,
        "by_index" => StoreLine::ByIndex(name()?, word(&line, "v")?.to_owned()),
        "values" => StoreLine::Values(name()?),
        op => return Err(format!("no such operation: {op}")),
    })
}

fn store_object(object: &Value) -> Parsed<StoreObject> {
    let members = object.as_object().ok_or("a stored value must be an object")?;
    let members = members.iter().map(|(name, member)| (name.clone(), strings(member)));
    Ok(StoreObject { text: object.to_string(), members: members.collect() })
}

fn strings(list: &Value) -> Option<Vec<String>> {
    list.as_array()?.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}

fn limiter_config(line: &Value) -> Parsed<LimiterConfig> {
    Ok(match word(line, "kind")? {
        "exponential" => {
            LimiterConfig::Exponential { base_ms: millis(line, "base_ms")?, max_ms: millis(line, "max_ms")? }
        }
        "fast_slow" => LimiterConfig::FastSlow {
            fast_ms: millis(line, "fast_ms")?,
            slow_ms: millis(line, "slow_ms")?,
            fast: number(line, "fast", u32::MAX.into())? as u32,
        },
        "max_of" => {
            let of = line["of"].as_array().ok_or("\"of\" has to be a list of limiters")?;
            LimiterConfig::MaxOf(of.iter().map(limiter_config).collect::<Parsed<_>>()?)
        }
        kind => return Err(format!("no such kind of limiter: {kind}")),
    })
}

/// Returns the JSON text of an answer. If the answer is an error, the text contains `error`.
pub(crate) fn answer_text(answer: &Answer, error: &str) -> String {
    match answer {
        Answer::Done => json!({}),
        Answer::Key(key) => json!({ "k": key }),
        Answer::Empty => json!({ "empty": true }),
        Answer::Shutdown => json!({ "shutdown": true }),
        Answer::Number(n) => json!({ "n": n }),
        Answer::Flag(v) => json!({ "v": v }),
        Answer::Wait(ns) => json!({ "ns": ns }),
        // `text` is already JSON.
        Answer::Object(text) => return format!(r#"{{"o":{text}}}"#),
        Answer::Absent => json!({ "absent": true }),
        Answer::List(l) => json!({ "l": l }),
        Answer::MissingIndex => json!({ "error": true }),
        Answer::Error => json!({ "error": error }),
    }
    .to_string()
}

/// Converts an answer to a normal form for comparisons, so that equal JSON values have the same text, and so do all errors.
pub(crate) fn comparable(answer: &str) -> String {
    match serde_json::from_str::<Value>(answer) {
        Ok(value) if value["error"].is_string() => json!({ "error": "" }).to_string(),
        Ok(value) => value.to_string(),
        Err(_) => format!("not an answer: {answer}"),
    }
}

fn object(text: &str) -> Parsed<Value> {
    let line: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if line.is_object() { Ok(line) } else { Err("a line is an object".to_owned()) }
}

fn word<'a>(line: &'a Value, name: &str) -> Parsed<&'a str> {
    line[name].as_str().ok_or_else(|| format!("\"{name}\" has to be a string"))
}

fn key(line: &Value) -> Parsed<String> {
    word(line, "k").map(str::to_owned)
}

fn number(line: &Value, name: &str, most: u64) -> Parsed<u64> {
    let number = line[name].as_u64().filter(|number| *number <= most);
    number.ok_or_else(|| format!("\"{name}\" has to be a whole number of at most {most}"))
}

fn millis(line: &Value, name: &str) -> Parsed<u64> {
    number(line, name, MOST_MS)
}

fn millis_or(line: &Value, name: &str, otherwise: u64) -> Parsed<u64> {
    if line.get(name).is_none() { Ok(otherwise) } else { millis(line, name) }
}
