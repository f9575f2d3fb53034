//! The requests of a simulation, and what must hold for each of them.

use std::ops::Range;

use lockkeeper_core::decision::{DecidedBy, Decision, Outcome};
use lockkeeper_core::pipe::PipeCounts;
use lockkeeper_core::resp::{Decoder, Reply};

use crate::gateway::DEADLINE_US;
use crate::store::Store;
use crate::summary::Summary;

/// How late a deadline may be noticed: the pipe's tick while a call waits.
const TICK_US: u64 = 5_000;
/// How long a reply fault may go unnoticed: an expired call without its reply gets the connection replaced.
const CONFUSION_US: u64 = 1_000_000;

struct Request {
    gateway: usize,
    path: &'static str,
    began_us: u64,
    /// One for each command that was written for it.
    tags: Vec<String>,
    decision: Option<Decision>,
    /// An error reply, which carries no tag, may have come to it from a neighbour.
    is_confused: bool,
}

pub struct Requests {
    requests: Vec<Request>,
    /// When each gateway's replies were last tampered with.
    confused_us: Vec<u64>,
    breakers_closed: Vec<bool>,
    summary: Summary,
}

impl Requests {
    pub fn new(gateways: usize) -> Requests {
        Requests {
            requests: Vec::new(),
            confused_us: vec![0; gateways],
            breakers_closed: vec![true; gateways],
            summary: Summary::default(),
        }
    }

    pub fn count(&self) -> usize {
        self.requests.len()
    }

    pub fn begin(&mut self, gateway: usize, path: &'static str, now_us: u64) -> usize {
        let request = Request { gateway, path, began_us: now_us, tags: Vec::new(), decision: None, is_confused: false };
        self.requests.push(request);
        self.requests.len() - 1
    }

    pub fn written(&mut self, request: usize, tag: String, is_upload: bool) {
        let tags = &mut self.requests[request].tags;
        tags.push(tag);
        self.summary.script_sent_whole += u64::from(is_upload);
        self.summary.upload_spared += u64::from(tags.len() == 2 && !is_upload);
        assert!(is_upload || tags.len() <= 2, "by its hash once, and once more behind an upload");
        assert!(tags.len() <= 3, "whole once");
    }

    /// From now on error replies of the gateway may stand in a neighbour's place.
    pub fn confuse(&mut self, gateway: usize, now_us: u64) {
        self.confused_us[gateway] = now_us;
    }

    /// A request gets only the reply to its own command, to the byte.
    pub fn replied(&mut self, request: usize, reply: &Reply, store: &Store) {
        let tag = self.requests[request].tags.last().expect("a command was written");
        let execution = store.executions.get(tag).unwrap_or_else(|| panic!("tag {tag} was never executed"));
        let mut decoder = Decoder::default();
        decoder.extend(&execution.reply);
        assert_eq!(decoder.next_reply(), Ok(Some(reply.clone())), "request {request} got another's reply");
    }

    pub fn decided(&mut self, request: usize, decision: Decision, store: &Store, now_us: u64) {
        let index = request;
        let request = &mut self.requests[index];
        assert!(request.decision.is_none(), "request {index} was decided twice");
        let waited_us = now_us - request.began_us;
        assert!(waited_us <= DEADLINE_US + TICK_US, "request {index} waited {waited_us} µs");
        request.is_confused = self.confused_us[request.gateway] + CONFUSION_US >= request.began_us;
        let outcome = decision.report.outcome;
        match decision.report.decided_by {
            DecidedBy::Store => {
                let tag = request.tags.last().expect("a command was written");
                assert_eq!(outcome == Outcome::Allowed, store.executions[tag].allowed, "request {index}");
                self.summary.decided_by_store += 1;
                self.summary.denied_by_store += u64::from(outcome == Outcome::Denied);
            }
            DecidedBy::Local => {
                assert_eq!(request.path, "/local");
                self.summary.decided_locally += 1;
            }
            DecidedBy::FailureMode => {
                let expected = if request.path == "/deny" { Outcome::Unavailable } else { Outcome::Allowed };
                assert_eq!(outcome, expected, "{}", request.path);
                assert_ne!(request.path, "/local");
                self.summary.failure_mode += 1;
            }
            DecidedBy::Policy => panic!("every request has a limit"),
        }
        request.decision = Some(decision);
    }

    pub fn watch_breaker(&mut self, gateway: usize, is_closed: bool) {
        let was_closed = std::mem::replace(&mut self.breakers_closed[gateway], is_closed);
        self.summary.breaker_openings += u64::from(was_closed && !is_closed);
    }

    pub fn assert_none_overdue(&self, now_us: u64) {
        for (index, request) in self.requests.iter().enumerate().filter(|(_, request)| request.decision.is_none()) {
            let waited_us = now_us - request.began_us;
            assert!(waited_us <= DEADLINE_US + TICK_US, "request {index} hangs for {waited_us} µs");
        }
    }

    /// Within this range the store itself decided every request.
    pub fn assert_decided_by_store(&self, range: Range<usize>) {
        assert!(range.len() >= 10, "only {} requests prove the recovery", range.len());
        for (index, request) in self.requests.iter().enumerate().take(range.end).skip(range.start) {
            let decided_by = request.decision.as_ref().map(|decision| decision.report.decided_by);
            assert_eq!(decided_by, Some(DecidedBy::Store), "request {index} long after the last fault");
        }
    }

    /// No request was charged twice, whatever was sent again.
    pub fn assert_each_executed_once(&self, store: &Store) {
        for (index, request) in self.requests.iter().enumerate().filter(|(_, request)| !request.is_confused) {
            let executed = request.tags.iter().filter(|tag| store.executions.contains_key(*tag)).count();
            assert!(executed <= 1, "request {index} was executed {executed} times");
        }
    }

    pub fn summary(mut self, pipes: impl Iterator<Item = PipeCounts>) -> Summary {
        for counts in pipes {
            self.summary.late_replies += counts.late;
            self.summary.desyncs += counts.desyncs;
            self.summary.reconnects += counts.opened.saturating_sub(1);
        }
        self.summary.requests = self.requests.len() as u64;
        self.summary
    }
}
