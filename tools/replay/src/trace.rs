//! PURE. The recorded cluster: the first lists of six resources, the later changes in order, and the final state.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io::{BufRead, Read};
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Version, WatchEvent};

use crate::objects::{Object, Plain, Pod, ReplicaSet, Service};
use crate::wire::{Bookmark, Decoder, Line, List};

/// The longest valid line. The length must be limited, because a file that is not a trace may contain no line break at all.
const LONGEST: usize = 64 << 20;

/// The latest valid time, in seconds: about thirty years. Times up to this limit can be represented with any `--speed`.
const LATEST: f64 = 1e9;

/// A whole trace, decoded.
///
/// Each line with an event or a bookmark has a *place*: its position among the lines with events or bookmarks of all resources.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) pods: Arc<Stream<Pod>>,
    pub(crate) services: Arc<Stream<Service>>,
    pub(crate) nodes: Arc<Stream<Plain>>,
    pub(crate) deployments: Arc<Stream<Plain>>,
    pub(crate) replicasets: Arc<Stream<ReplicaSet>>,
    pub(crate) endpointslices: Arc<Stream<Plain>>,
    /// The recorded time of each place; it never decreases.
    pub(crate) times: Vec<Duration>,
    /// The number of places that have an event, not a bookmark.
    pub(crate) events: usize,
    pub(crate) expected: Expected,
}

/// The data of one resource: the list from which its watch started, and the events of the watch.
#[derive(Debug)]
pub(crate) struct Stream<V> {
    pub(crate) list: Vec<Arc<V>>,
    pub(crate) version: Version,
    /// The events and bookmarks, in the order of their places. This is also the order of their versions.
    pub(crate) records: Vec<Record<V>>,
}

#[derive(Debug)]
pub(crate) struct Record<V> {
    pub(crate) place: usize,
    pub(crate) version: Version,
    pub(crate) event: WatchEvent<Arc<V>>,
}

/// The final state of the real cluster.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// The numbers of replicas and of ready replicas of each ReplicaSet.
    pub(crate) replicasets: HashMap<Arc<str>, (u32, u32)>,
    /// The ready addresses of each Service that has a selector.
    pub(crate) services: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// An error in a trace: its line, and its cause.
#[derive(Debug)]
pub(crate) struct BadTrace {
    line: usize,
    cause: String,
}

impl fmt::Display for BadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.cause)
    }
}

impl std::error::Error for BadTrace {}

impl Trace {
    /// Reads a trace. Calls `stop` before each line, and returns `None` if `stop` returns true.
    pub(crate) fn read(mut text: impl BufRead, stop: impl Fn() -> bool) -> Result<Option<Self>, BadTrace> {
        let mut reader = Reader::default();
        let mut buffer = Vec::new();
        let mut line = 1;
        loop {
            if stop() {
                return Ok(None);
            }
            buffer.clear();
            let read = text.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut buffer);
            let taken = read.map_err(|error| error.to_string()).and_then(|bytes| match bytes {
                0 => Ok(false),
                bytes if bytes > LONGEST => Err(format!("line too long: more than {LONGEST} bytes")),
                _ => reader.line(buffer.trim_ascii_end()).map(|()| true),
            });
            match taken {
                Ok(true) => line += 1,
                Ok(false) => break,
                Err(cause) => return Err(BadTrace { line, cause }),
            }
        }
        if line == 1 {
            return Err(BadTrace { line, cause: "the trace is empty".to_owned() });
        }
        reader.finish().map(Some).map_err(|cause| BadTrace { line, cause })
    }
}

/// A partially read trace.
#[derive(Default)]
struct Reader {
    decoder: Decoder,
    pods: Reading<Pod>,
    services: Reading<Service>,
    nodes: Reading<Plain>,
    deployments: Reading<Plain>,
    replicasets: Reading<ReplicaSet>,
    endpointslices: Reading<Plain>,
    times: Vec<Duration>,
    events: usize,
    expected: Expected,
    slices: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// A partially read resource.
struct Reading<V> {
    stream: Option<Stream<V>>,
    finished: bool,
}

impl<V> Default for Reading<V> {
    fn default() -> Self {
        Self { stream: None, finished: false }
    }
}

/// The kind of a line that was read; for a list of the final state also its items, which are not decoded yet.
enum Taken<'a> {
    List,
    Event,
    Bookmark,
    Final(Vec<&'a str>),
}

impl Reader {
    fn line(&mut self, text: &[u8]) -> Result<(), String> {
        let line: Line<'_> = serde_json::from_slice(text).map_err(|error| explain(&error, 0))?;
        if !(0.0..=LATEST).contains(&line.t) {
            return Err(format!("time {} is not a time from 0 to {LATEST} seconds", line.t));
        }
        let at = Duration::from_secs_f64(line.t);
        // The position at which the text of the object begins in the line. `explain` needs it.
        let start = line.object.get().as_ptr().addr() - text.as_ptr().addr();
        let place = self.times.len();
        let decoder = &mut self.decoder;
        let resource = &*line.resource;
        let taken = match resource {
            "pods" => self.pods.take(&line, place, start, |json| decoder.pod(json)),
            "services" => self.services.take(&line, place, start, |json| decoder.service(json)),
            "nodes" => self.nodes.take(&line, place, start, |json| decoder.plain(json)),
            "deployments" => self.deployments.take(&line, place, start, |json| decoder.plain(json)),
            "replicasets" => self.replicasets.take(&line, place, start, |json| decoder.replicaset(json)),
            "endpointslices" => self.endpointslices.take(&line, place, start, |json| decoder.plain(json)),
            unknown => Err(format!("unknown resource {unknown:?}")),
        }?;
        match taken {
            Taken::List => {}
            Taken::Event | Taken::Bookmark => {
                self.events += usize::from(matches!(taken, Taken::Event));
                let latest = self.times.last().copied().unwrap_or_default();
                self.times.push(at.max(latest));
            }
            Taken::Final(items) => {
                self.expect(resource, &items).map_err(|error| explain(&error, start))?;
            }
        }
        Ok(())
    }

    /// Reads the final state of the real cluster from a FINAL list.
    fn expect(&mut self, resource: &str, items: &[&str]) -> serde_json::Result<()> {
        for item in items {
            match resource {
                "replicasets" => {
                    let replicaset = self.decoder.replicaset(item)?;
                    self.expected.replicasets.insert(replicaset.meta.name, replicaset.reported);
                }
                "services" => {
                    let service = self.decoder.service(item)?;
                    if !service.selector.is_empty() {
                        self.expected.services.insert(service.meta.name, BTreeSet::new());
                    }
                }
                "endpointslices" => {
                    if let Some((service, addresses)) = self.decoder.slice(item)? {
                        self.slices.entry(service).or_default().extend(addresses);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Trace, String> {
        let compared = self.expected.replicasets.len() + self.expected.services.len();
        for (service, addresses) in &mut self.expected.services {
            *addresses = self.slices.remove(service).unwrap_or_default();
        }
        let trace = Trace {
            pods: self.pods.finish("pods")?,
            services: self.services.finish("services")?,
            nodes: self.nodes.finish("nodes")?,
            deployments: self.deployments.finish("deployments")?,
            replicasets: self.replicasets.finish("replicasets")?,
            endpointslices: self.endpointslices.finish("endpointslices")?,
            times: self.times,
            events: self.events,
            expected: self.expected,
        };
        // A trace without a final state is an error, because the comparison would succeed with any results.
        if compared == 0 { Err("the trace has nothing to compare".to_owned()) } else { Ok(trace) }
    }
}

impl<V: Object> Reading<V> {
    fn take<'a>(
        &mut self,
        line: &Line<'a>,
        place: usize,
        start: usize,
        mut decode: impl FnMut(&str) -> serde_json::Result<V>,
    ) -> Result<Taken<'a>, String> {
        let (resource, kind, json) = (&line.resource, &*line.kind, line.object.get());
        let explained = |error: serde_json::Error| explain(&error, start);
        if kind == "LIST" {
            if self.stream.is_some() {
                return Err(format!("a second LIST of {resource}"));
            }
            let (items, version) = list(json).map_err(explained)?;
            let list = items.iter().map(|item| decode(item).map(Arc::new)).collect::<Result<Vec<_>, _>>();
            let list = list.map_err(explained)?;
            distinct(list.iter().map(|object| &*object.meta().name))?;
            self.stream = Some(Stream { list, version, records: Vec::new() });
            return Ok(Taken::List);
        }
        if !matches!(kind, "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "FINAL") {
            return Err(format!("unknown type {kind:?}"));
        }
        let stream = self.stream.as_mut().ok_or_else(|| format!("{kind} of {resource} before its LIST"))?;
        if self.finished {
            return Err(format!("{kind} of {resource} after its FINAL"));
        }
        if kind == "FINAL" {
            let (items, version) = list(json).map_err(explained)?;
            if version < stream.last() {
                return Err(format!("FINAL of {resource} is older than the last event of its watch"));
            }
            let list =
                items.iter().map(|item| decode(item)).collect::<Result<Vec<_>, _>>().map_err(explained)?;
            distinct(list.iter().map(|object| &*object.meta().name))?;
            self.finished = true;
            return Ok(Taken::Final(items));
        }
        let (version, event) = if kind == "BOOKMARK" {
            let bookmark: Bookmark = serde_json::from_str(json).map_err(explained)?;
            let version = bookmark.metadata.resource_version;
            (version, WatchEvent::Bookmark(version))
        } else {
            let object = Arc::new(decode(json).map_err(explained)?);
            let version = object.meta().version;
            if version == stream.last() {
                return Err(format!("resourceVersion {} of {resource} stands twice", version.get()));
            }
            let event = match kind {
                "ADDED" => WatchEvent::Added(object),
                "MODIFIED" => WatchEvent::Modified(object),
                _ => WatchEvent::Deleted(object),
            };
            (version, event)
        };
        if version < stream.last() {
            return Err(format!("resourceVersion of {resource} goes back to {}", version.get()));
        }
        let taken = if event.object().is_some() { Taken::Event } else { Taken::Bookmark };
        stream.records.push(Record { place, version, event });
        Ok(taken)
    }

    fn finish(self, resource: &str) -> Result<Arc<Stream<V>>, String> {
        match self.stream {
            None => Err(format!("the trace ends without a LIST of {resource}")),
            Some(_) if !self.finished => Err(format!("the trace ends without a FINAL of {resource}")),
            Some(stream) => Ok(Arc::new(stream)),
        }
    }
}

impl<V> Stream<V> {
    /// Returns the version of the last record or, if there are no records, of the list.
    pub(crate) fn last(&self) -> Version {
        self.records.last().map_or(self.version, |record| record.version)
    }
}

fn list(json: &str) -> serde_json::Result<(Vec<&str>, Version)> {
    let list: List<'_> = serde_json::from_str(json)?;
    Ok((list.items.into_iter().map(|item| item.get()).collect(), list.metadata.resource_version))
}

/// Returns an error if two objects of a list have the same name.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("two objects of the list are named {name:?}"));
        }
    }
    Ok(())
}

/// Returns the message of the parser, without the line number, which is wrong because each line is parsed separately. `start` is the position at
/// which the parsed text begins in its line. The column is reported only if `start` is 0, because otherwise the parser does not count it from the
/// start of the line.
fn explain(error: &serde_json::Error, start: usize) -> String {
    let result = error.to_string();
    let cause = result.rsplit_once(" at line ").map_or(&*result, |(cause, _)| cause);
    let what = if error.is_data() { "not a trace line" } else { "bad JSON" };
    if start == 0 {
        format!("{what}: {cause} (column {})", error.column())
    } else {
        format!("{what}: {cause}")
    }
}
