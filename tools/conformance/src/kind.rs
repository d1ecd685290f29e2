//! PURE. The three kinds of scripts, and the implementations on which they run.

#[cfg(test)]
use testkit::client_go::Rule;
use testkit::client_go::{
    Answer, LimiterLine, QueueLine, ReferenceLimiter, ReferenceQueue, ReferenceStore, Rules, StoreLine,
};

use crate::limiter::FlyballLimiter;
use crate::queue::FlyballQueue;
use crate::store::FlyballStore;
use crate::text::{Parsed, answer_text, limiter_line, queue_line, store_line};

/// The kind of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Queue,
    Limiter,
    Store,
}

/// An implementation that answers the lines of one script, in order.
pub(crate) trait Answering {
    fn answer(&mut self, line: &str) -> String;
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Queue, Self::Limiter, Self::Store];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Limiter => "limiter",
            Self::Store => "store",
        }
    }

    /// The rules that a script of this kind can test.
    #[cfg(test)]
    pub(crate) fn rules(self) -> Vec<Rule> {
        let limiter = [Rule::InvalidLimiterRefused, Rule::WholeNanoseconds];
        let store = [Rule::MissingIndexIsAnError, Rule::IndexErrorIsAValue, Rule::VersionsAreNumbers];
        match self {
            // client-go rounds only very long delays, which scripts for a queue cannot contain, so these cannot test `WholeNanoseconds`.
            Self::Queue => {
                let others = [&[Rule::WholeNanoseconds][..], &store].concat();
                Rule::ALL.into_iter().filter(|rule| !others.contains(rule)).collect()
            }
            Self::Limiter => limiter.to_vec(),
            Self::Store => store.to_vec(),
        }
    }

    /// The shipped implementation.
    pub(crate) fn flyball(self) -> Box<dyn Answering> {
        match self {
            Self::Queue => {
                let mut queue = FlyballQueue::new();
                Box::new(Text(queue_line, move |line: Option<&QueueLine>| queue.answer(line)))
            }
            Self::Limiter => {
                let mut limiter = FlyballLimiter::new();
                Box::new(Text(limiter_line, move |line: Option<&LimiterLine>| limiter.answer(line)))
            }
            Self::Store => {
                let mut store = FlyballStore::new();
                Box::new(Text(store_line, move |line: Option<&StoreLine>| store.answer(line)))
            }
        }
    }

    /// The reference implementation.
    pub(crate) fn reference(self, rules: Rules) -> Box<dyn Answering> {
        match self {
            Self::Queue => {
                let mut queue = ReferenceQueue::new(rules);
                Box::new(Text(queue_line, move |line: Option<&QueueLine>| queue.answer(line)))
            }
            Self::Limiter => {
                let mut limiter = ReferenceLimiter::new(rules);
                Box::new(Text(limiter_line, move |line: Option<&LimiterLine>| limiter.answer(line)))
            }
            Self::Store => {
                let mut store = ReferenceStore::new(rules);
                Box::new(Text(store_line, move |line: Option<&StoreLine>| store.answer(line)))
            }
        }
    }
}

/// Runs a script, and returns the answers to its lines.
pub(crate) fn play(mut answering: Box<dyn Answering>, script: &[String]) -> Vec<String> {
    script.iter().map(|line| answering.answer(line)).collect()
}

/// The parser of a line, and the implementation that answers it.
struct Text<P, A>(P, A);

impl<L, P, A> Answering for Text<P, A>
where
    P: Fn(&str) -> Parsed<L>,
    A: FnMut(Option<&L>) -> Answer,
{
    fn answer(&mut self, line: &str) -> String {
        match self.0(line) {
            Ok(line) => answer_text(&self.1(Some(&line)), "the call of this line is refused"),
            Err(error) => answer_text(&self.1(None), &error),
        }
    }
}
