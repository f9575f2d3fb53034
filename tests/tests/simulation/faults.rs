//! What goes wrong, and the end of it.

use crate::network::{Link, ReplyFault};
use crate::store::Mode;
use crate::world::{Event, World};

const ERRORS: [Mode; 9] = [
    Mode::Refuses("LOADING Redis is loading the dataset in memory"),
    Mode::Refuses("BUSY Redis is busy running a script."),
    Mode::Refuses("OOM command not allowed when used memory > 'maxmemory'."),
    Mode::Refuses("READONLY You can't write against a read only replica."),
    Mode::Refuses("NOAUTH Authentication required."),
    Mode::Refuses("CLUSTERDOWN The cluster is down"),
    Mode::Refuses("no upstream host"),
    Mode::LosesReplies("upstream failure"),
    Mode::LosesReplies("ERR something else"),
];

#[derive(Clone, Copy)]
enum Fault {
    Far,
    Slow,
    ScriptsFlushed,
    RestartedEmpty,
    Paused,
    Errors,
    LinkClosed,
    LinkCut,
    BlackHole,
    Reply(ReplyFault),
    Refused,
}

/// What a fault leaves behind passes more often than new faults come.
const FAULTS: [Option<Fault>; 18] = [
    None,
    None,
    None,
    None,
    None,
    Some(Fault::Far),
    Some(Fault::Slow),
    Some(Fault::ScriptsFlushed),
    Some(Fault::RestartedEmpty),
    Some(Fault::Paused),
    Some(Fault::Errors),
    Some(Fault::LinkClosed),
    Some(Fault::LinkCut),
    Some(Fault::BlackHole),
    Some(Fault::Reply(ReplyFault::Lost)),
    Some(Fault::Reply(ReplyFault::Doubled)),
    Some(Fault::Reply(ReplyFault::Garbage)),
    Some(Fault::Refused),
];
const NEAR_US: (u64, u64) = (20, 200);

impl World {
    /// Something goes wrong, or right again, and after a while the next thing.
    pub fn fault(&mut self) {
        if !self.faults_happen {
            return;
        }
        match self.random.pick(&FAULTS) {
            None => self.delay_us = NEAR_US,
            Some(fault) => self.inflict(fault),
        }
        let pause_us = self.random.between(1_000, 100_000);
        self.after(pause_us, Event::Fault);
    }

    fn inflict(&mut self, fault: Fault) {
        let until_us = self.now_us + self.random.between(10_000, 400_000);
        let gateway = self.random.between(0, self.gateways.len() as u64 - 1) as usize;
        match fault {
            Fault::Far => self.delay_us = (1_000, 5_000),
            Fault::Slow => self.delay_us = (10_000, 60_000),
            Fault::ScriptsFlushed => self.store.flush_scripts(),
            Fault::RestartedEmpty => self.restart_store(),
            Fault::Paused => {
                self.store_paused_until_us = until_us;
                self.at(until_us, Event::StoreWakes);
            }
            Fault::Errors => {
                let mode = self.random.pick(&ERRORS);
                self.store.set_mode(mode, until_us);
            }
            Fault::LinkClosed => self.close(gateway),
            Fault::LinkCut => {
                let bytes = self.random.between(0, 300) as usize;
                self.on_link(gateway, |link| link.cut_after = Some(bytes));
            }
            Fault::BlackHole => self.on_link(gateway, |link| link.is_black_hole = true),
            Fault::Reply(fault) => self.on_link(gateway, |link| link.reply_fault = Some(fault)),
            Fault::Refused => self.connections_refused_until_us = until_us,
        }
    }

    fn on_link(&mut self, gateway: usize, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.gateways[gateway].link.as_mut() {
            change(link);
        }
    }

    fn close(&mut self, gateway: usize) {
        let delay_us = self.random.between(0, 1_000);
        if let Some(link) = &self.gateways[gateway].link {
            self.after(delay_us, Event::LinkCloses { gateway, link: link.id });
        }
    }

    fn restart_store(&mut self) {
        self.store.restart_empty();
        self.inbound.clear();
        (0..self.gateways.len()).for_each(|gateway| self.close(gateway));
    }

    /// Store and network are well again. A connection that swallows everything stays one: it must be replaced.
    pub fn end_faults(&mut self) {
        self.faults_happen = false;
        self.delay_us = NEAR_US;
        self.store.set_mode(Mode::Well, 0);
        self.store_paused_until_us = 0;
        self.after(0, Event::StoreWakes);
        self.connections_refused_until_us = 0;
        for link in self.gateways.iter_mut().filter_map(|gateway| gateway.link.as_mut()) {
            link.cut_after = None;
            link.reply_fault = None;
        }
    }
}
