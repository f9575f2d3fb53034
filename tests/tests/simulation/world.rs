//! The clock and the order of events: faults, then recovery, then proof that everything works again.

use std::collections::{BTreeMap, HashMap, VecDeque};

use lockkeeper_core::engine::Engine;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::resp::Decoder;

use crate::gateway::Gateway;
use crate::policy;
use crate::random::Random;
use crate::requests::Requests;
use crate::store::Store;
use crate::summary::Summary;

const START_US: u64 = 1_700_000_000_000_000;
/// How long faults happen.
const FAULTS_US: u64 = 2_000_000;
/// The store decides everything again this long after the last fault.
const RECOVERY_US: u64 = 2_000_000;
/// For how long that is watched.
const PROOF_US: u64 = 300_000;

pub enum Event {
    Arrives,
    Ticks { gateway: usize, schedule: u64 },
    ReachesStore { gateway: usize, link: u64, bytes: Vec<u8> },
    ReachesGateway { gateway: usize, link: u64, bytes: Vec<u8> },
    StoreWakes,
    LinkCloses { gateway: usize, link: u64 },
    Fault,
}

pub struct World {
    pub random: Random,
    pub now_us: u64,
    /// By time, then by order.
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    pub gateways: Vec<Gateway>,
    /// For each gateway the number of its present tick period.
    pub schedules: Vec<u64>,
    pub store: Store,
    pub store_paused_until_us: u64,
    /// What has reached the store and is not read yet: gateway, connection, bytes.
    pub backlog: VecDeque<(usize, u64, Vec<u8>)>,
    /// What the store has received on each connection and not read yet.
    pub inbound: HashMap<u64, Decoder>,
    pub links: u64,
    pub connections_refused_until_us: u64,
    /// The shortest and the longest delay each way.
    pub delay_us: (u64, u64),
    pub faults_happen: bool,
    pub requests: Requests,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let policies = PolicySet::from_json(policy::JSON.as_bytes(), LoadOptions::default());
        let policies = policies.unwrap_or_else(|errors| panic!("the policy does not load:\n{errors}"));
        let store = Store::new(&policies);
        let engine = Engine::new(policies);
        let count = random.between(1, 3) as usize;
        World {
            now_us: START_US + random.between(0, 1_000_000),
            events: BTreeMap::new(),
            sequence: 0,
            gateways: (0..count).map(|_| Gateway::new(engine.clone(), random.next())).collect(),
            schedules: vec![0; count],
            store,
            store_paused_until_us: 0,
            backlog: VecDeque::new(),
            inbound: HashMap::new(),
            links: 0,
            connections_refused_until_us: 0,
            delay_us: (20, 200),
            faults_happen: true,
            requests: Requests::new(count),
            random,
        }
    }

    pub fn run(mut self) -> Summary {
        self.after(0, Event::Arrives);
        self.after(0, Event::Fault);
        self.run_for(FAULTS_US);
        self.end_faults();
        self.run_for(RECOVERY_US);
        let proof_from = self.requests.count();
        self.run_for(PROOF_US);
        let proof_to = self.requests.count();
        self.run_for(PROOF_US);
        self.requests.assert_decided_by_store(proof_from..proof_to);
        self.requests.assert_each_executed_once(&self.store);
        self.store.assert_promises_kept();
        self.requests.summary(self.gateways.iter().map(|gateway| gateway.pipe.counts()))
    }

    pub fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    pub fn at(&mut self, time_us: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((time_us, self.sequence), event);
    }

    fn run_for(&mut self, us: u64) {
        let end_us = self.now_us + us;
        while let Some(next) = self.events.first_entry().filter(|next| next.key().0 <= end_us) {
            let ((time_us, _), event) = next.remove_entry();
            self.now_us = time_us;
            self.handle(event);
        }
        self.now_us = end_us;
        self.requests.assert_none_overdue(end_us);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrives => self.arrive(),
            Event::Fault => self.fault(),
            Event::Ticks { gateway, schedule } => self.tick(gateway, schedule),
            Event::ReachesStore { gateway, link, bytes } => {
                self.backlog.push_back((gateway, link, bytes));
                self.read_backlog();
            }
            Event::StoreWakes => self.read_backlog(),
            Event::ReachesGateway { gateway, link, bytes } => {
                if self.is_current(gateway, link) {
                    self.gateways[gateway].received(&bytes, self.now_us);
                    self.follow(gateway);
                }
            }
            Event::LinkCloses { gateway, link } => {
                if self.is_current(gateway, link) {
                    self.gateways[gateway].closed(self.now_us);
                    self.follow(gateway);
                }
            }
        }
    }

    /// A periodic timer: the next tick comes one period after this one, unless the period has changed.
    fn tick(&mut self, gateway: usize, schedule: u64) {
        if self.schedules[gateway] != schedule {
            return;
        }
        self.gateways[gateway].tick(self.now_us);
        self.follow(gateway);
        if self.schedules[gateway] == schedule {
            self.after(self.gateways[gateway].tick_us, Event::Ticks { gateway, schedule });
        }
    }

    fn is_current(&self, gateway: usize, link: u64) -> bool {
        self.gateways[gateway].link.as_ref().is_some_and(|current| current.id == link)
    }
}
