//! What can happen next, and what must hold whatever happens.

use lockkeeper_core::claim::record::{Place, Stored};
use lockkeeper_core::claim::{Admission, ClaimKind, Word};
use lockkeeper_core::policy::OnUnknown;
use stateright::{Model, Property};

use crate::state::{Command, Harm, Index, Reply, Request, Sent, State, Store};
use crate::store::{self, Guard};

/// A small world.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub kind: ClaimKind,
    pub on_unknown: OnUnknown,
    pub requests: Index,
    pub lease_us: u64,
    /// Time at which the world ends.
    pub end_us: u64,
    pub renewals: u8,
    /// How often the store loses its last write and goes on elsewhere, with its clock set to this.
    pub failovers: u8,
    pub clock_after_failover_us: i64,
    /// How often the store's clock steps, and how far each time.
    pub clock_steps: u8,
    pub clock_step_us: i64,
    /// Whether one gateway sends everything, so that its floor is above all fences it has heard of.
    pub is_one_gateway: bool,
    /// Whether granting replies may be late. Elsewhere they are heard at once or never, which comes to the same: a lease
    /// counts from when its begin was sent.
    pub late_replies: bool,
    /// Whether begins are sent again.
    pub asks_again: bool,
    /// Whether there is a resource to write to, and writes are late.
    pub has_resource: bool,
    pub broken: Option<Guard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Begin(Index),
    /// Its reply is late: the same owner asks again.
    BeginAgain(Index),
    /// Its reply does not come: whatever it may hold is given back, by owner.
    GiveUp(Index),
    Renew(Index),
    /// It reaches the upstream, which writes to the resource with the fence.
    Run(Index),
    Complete(Index),
    Release(Index),
    /// The command at this place arrives at the store, and its reply is lost.
    Arrive(usize),
    /// It arrives, and its reply is heard.
    ArriveAndHear(usize),
    /// A reply that was late is heard.
    Hear(usize),
    /// The write at this place arrives at the resource.
    Write(usize),
    Tick,
    StepClock,
    Failover,
}

pub const ONE_AT_A_TIME: &str = "one at a time";
pub const STALE_IS_POWERLESS: &str = "stale is powerless";
pub const FINISHED_STAYS: &str = "finished stays";
pub const FENCES_RISE: &str = "fences rise";
pub const RESOURCE_NEVER_FALLS: &str = "the resource never falls";
pub const AT_MOST_ONCE: &str = "at most once";

/// Where a failover takes time: the clock is then ahead of every fence that was given within one moment.
const FAILOVER_US: u64 = 3;

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            time_us: 10,
            store: Store { place: Place::default(), clock: 0, holder: None },
            before: None,
            requests: vec![Request::Idle; self.requests.into()],
            sent: Vec::new(),
            replies: Vec::new(),
            writes: Vec::new(),
            accepted: 0,
            granted: 0,
            heard: 0,
            ran: 0,
            failovers: self.failovers,
            clock_steps: self.clock_steps,
            harm: Harm::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, request) in (0..).zip(&state.requests) {
            self.request_actions(state, index, request, actions);
        }
        for (place, sent) in state.sent.iter().enumerate() {
            // Whoever hears of a renewal believes no less than who does not, and does the same.
            if !matches!(sent.command, Command::Renew { .. }) {
                actions.push(Action::Arrive(place));
            }
            if matches!(sent.command, Command::Begin { .. } | Command::Renew { .. }) {
                actions.push(Action::ArriveAndHear(place));
            }
        }
        actions.extend((0..state.replies.len()).map(Action::Hear));
        actions.extend((0..state.writes.len()).map(Action::Write));
        if state.time_us < 10 + self.end_us {
            actions.push(Action::Tick);
        }
        if state.clock_steps > 0 {
            actions.push(Action::StepClock);
        }
        if state.failovers > 0 && state.before.is_some() {
            actions.push(Action::Failover);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin(by) => self.ask(&mut state, by, false),
            Action::BeginAgain(by) => self.ask(&mut state, by, true),
            Action::GiveUp(by) => state.end(by, Command::Release { fence: None }),
            Action::Renew(by) => state.renew(by, self.lease_us),
            Action::Run(by) => state.run(by, self.has_resource),
            Action::Complete(by) | Action::Release(by) => {
                let Request::Holding { fence, .. } = state.requests[usize::from(by)] else { return None };
                let release = Command::Release { fence: Some(fence) };
                state.end(by, if action == Action::Complete(by) { Command::Complete { fence } } else { release });
            }
            Action::Arrive(place) => self.arrive_late(&mut state, place),
            Action::ArriveAndHear(place) => {
                if let Some(reply) = self.arrive(&mut state, place) {
                    self.hear(&mut state, reply);
                }
            }
            Action::Hear(place) => {
                let reply = state.replies.remove(place);
                self.hear(&mut state, reply);
            }
            Action::Write(place) => self.write(&mut state, place),
            Action::Tick => state.time_us += 1,
            Action::StepClock => {
                state.clock_steps -= 1;
                state.store.clock += self.clock_step_us;
            }
            Action::Failover => self.fail_over(&mut state),
        }
        state.sent.sort_unstable();
        state.replies.sort_unstable();
        state.writes.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always(ONE_AT_A_TIME, |_, state: &State| state.live() <= 1),
            Property::always(STALE_IS_POWERLESS, |_, state: &State| !state.harm.stale_changed),
            Property::always(FINISHED_STAYS, |_, state: &State| !state.harm.finished_changed),
            Property::always(FENCES_RISE, |_, state: &State| !state.harm.fence_fell),
            Property::always(RESOURCE_NEVER_FALLS, |_, state: &State| !state.harm.resource_fell),
            Property::always(AT_MOST_ONCE, |world: &World, state: &State| {
                world.on_unknown != OnUnknown::Reject || state.ran <= 1
            }),
        ]
    }
}

impl World {
    fn request_actions(&self, state: &State, index: Index, request: &Request, actions: &mut Vec<Action>) {
        match request {
            // Requests are alike until they begin, so they begin in order.
            Request::Idle => {
                if index == 0 || state.requests[usize::from(index) - 1] != Request::Idle {
                    actions.push(Action::Begin(index));
                }
            }
            Request::Asking { again } => {
                if self.asks_again && !again {
                    actions.push(Action::BeginAgain(index));
                }
                actions.push(Action::GiveUp(index));
            }
            Request::Holding { renewals, ran, .. } => {
                if *renewals > 0 {
                    actions.push(Action::Renew(index));
                }
                let runs = self.has_resource || self.on_unknown == OnUnknown::Reject;
                if runs && !*ran {
                    actions.push(Action::Run(index));
                }
                if self.kind == ClaimKind::Idempotency && (*ran || !runs) {
                    actions.push(Action::Complete(index));
                }
                // What is to run at most once is only given back by who never ran.
                if !*ran || self.on_unknown == OnUnknown::RetryAfterLease {
                    actions.push(Action::Release(index));
                }
            }
            Request::Over => {}
        }
    }

    fn ask(&self, state: &mut State, by: Index, again: bool) {
        state.requests[usize::from(by)] = Request::Asking { again };
        let floor = if self.is_one_gateway { state.heard } else { 0 };
        state.send(by, Command::Begin { at_us: state.time_us, floor });
    }

    /// A command arrives whose reply comes late, if at all.
    fn arrive_late(&self, state: &mut State, place: usize) {
        let reply = self.arrive(state, place);
        let late = reply.filter(|reply| self.late_replies && matches!(reply, Reply::Granted { .. }));
        state.replies.extend(late);
    }

    /// The store carries out a command, and what must not come of it is noted.
    fn arrive(&self, state: &mut State, place: usize) -> Option<Reply> {
        let Sent { by, command, copies } = state.sent.remove(place);
        if copies > 1 {
            state.sent.push(Sent { by, command, copies: copies - 1 });
        }
        let (before, now_us) = (state.store.clone(), state.store_us());
        let reply = if let Command::Begin { at_us, floor } = command {
            let ask = store::ask(self.kind, self.on_unknown, self.lease_us, floor);
            let admission = store::run_begin(&mut state.store.place, &ask, by, now_us, self.broken);
            Some(state.admitted(by, at_us, &admission))
        } else {
            let word = store::run(&mut state.store.place, by, command, now_us, self.broken);
            let overtaken = before.holder.is_some_and(|(holder, newest)| match command {
                Command::Release { fence: None } => holder != by,
                Command::Begin { .. } => false,
                Command::Complete { fence }
                | Command::Renew { fence, .. }
                | Command::Release { fence: Some(fence) } => fence < newest,
            });
            state.harm.stale_changed |= overtaken && state.store.place != before.place;
            told(by, command, word)
        };
        forget_what_does_not_matter(&mut state.store.place);
        state.harm.finished_changed |= is_finished(&before.place) && state.store.place.stored != before.place.stored;
        if self.failovers > 0 && state.store.place != before.place {
            state.before = Some(before);
        }
        reply
    }

    fn hear(&self, state: &mut State, reply: Reply) {
        let matters = self.failovers > 0 || self.is_one_gateway;
        if let Reply::Granted { fence, .. } = reply
            && matters
        {
            state.heard = state.heard.max(fence);
        }
        let request = &mut state.requests[usize::from(reply.to())];
        match (reply, *request) {
            (Reply::Granted { to, at_us, fence }, Request::Asking { .. }) => {
                let from_us = if self.broken == Some(Guard::LeaseFromSending) { state.time_us } else { at_us };
                let until_us = from_us + self.lease_us;
                if until_us > state.time_us {
                    *request = Request::Holding { fence, until_us, renewals: self.renewals, ran: false };
                } else {
                    // Too late to be of use.
                    state.end(to, Command::Release { fence: None });
                }
            }
            (Reply::Refused { .. }, Request::Asking { again: true }) => {
                // The first begin may yet arrive.
                state.end(reply.to(), Command::Release { fence: None });
            }
            (Reply::Refused { .. }, Request::Asking { again: false }) => *request = Request::Over,
            (Reply::Renewed { at_us, fence: renewed, .. }, Request::Holding { fence, until_us, renewals, ran })
                if renewed == fence =>
            {
                let until_us = until_us.max(at_us + self.lease_us);
                *request = Request::Holding { fence, until_us, renewals, ran };
            }
            (Reply::Refused { .. }, Request::Holding { fence, ran, .. }) => {
                // The lease is lost: what runs goes on, without.
                *request = Request::Holding { fence, until_us: 0, renewals: 0, ran };
            }
            _ => {}
        }
    }

    fn write(&self, state: &mut State, place: usize) {
        let (_, fence) = state.writes.remove(place);
        if fence >= state.accepted || self.broken == Some(Guard::ResourceChecks) {
            state.harm.resource_fell |= fence < state.accepted;
            state.accepted = fence;
        }
    }

    /// The last write is lost, and with the connections every begin and every reply on its way: what was granted and not
    /// heard of is of no use to anybody.
    fn fail_over(&self, state: &mut State) {
        state.failovers -= 1;
        let Some(before) = state.before.take() else { return };
        state.store = Store { clock: self.clock_after_failover_us, ..before };
        state.sent.retain(|sent| !matches!(sent.command, Command::Begin { .. }));
        state.replies.clear();
        state.granted = state.heard;
        state.time_us += FAILOVER_US;
    }
}

fn told(by: Index, command: Command, word: Word) -> Option<Reply> {
    match (command, word) {
        (Command::Renew { at_us, fence, .. }, Word::Ok) => Some(Reply::Renewed { to: by, at_us, fence }),
        (Command::Renew { .. }, _) => Some(Reply::Refused { to: by }),
        _ => None,
    }
}

/// When a claim began and how often makes no difference to what must hold; without, there are fewer states.
fn forget_what_does_not_matter(place: &mut Place) {
    if let Stored::Record(record) = &mut place.stored {
        (record.started_us, record.attempt) = (0, 0);
    }
    if let Some(sibling) = &mut place.sibling {
        sibling.attempt = 0;
    }
}

fn is_finished(place: &Place) -> bool {
    matches!(&place.stored, Stored::Record(record) if record.kept.is_some())
}

impl State {
    fn send(&mut self, by: Index, command: Command) {
        // A begin that is sent again is a second command; completions are sent again until they are heard.
        let copies = if matches!(command, Command::Complete { .. }) { 2 } else { 1 };
        self.sent.push(Sent { by, command, copies });
    }

    fn end(&mut self, by: Index, command: Command) {
        self.requests[usize::from(by)] = Request::Over;
        self.send(by, command);
    }

    fn renew(&mut self, by: Index, lease_us: u64) {
        let time_us = self.time_us;
        let Request::Holding { fence, renewals, .. } = &mut self.requests[usize::from(by)] else { return };
        *renewals -= 1;
        let fence = *fence;
        self.send(by, Command::Renew { at_us: time_us, fence, lease_us });
    }

    fn run(&mut self, by: Index, writes: bool) {
        let Request::Holding { fence, ran, .. } = &mut self.requests[usize::from(by)] else { return };
        *ran = true;
        let fence = *fence;
        self.ran += 1;
        if writes {
            self.writes.push((by, fence));
        }
    }

    fn admitted(&mut self, by: Index, at_us: u64, admission: &Admission) -> Reply {
        let Admission::Granted { claims, is_again } = admission else { return Reply::Refused { to: by } };
        let fence = claims[0].fence;
        if !is_again {
            self.harm.fence_fell |= fence <= self.granted;
            self.granted = self.granted.max(fence);
            self.store.holder = Some((by, fence));
        }
        Reply::Granted { to: by, at_us, fence }
    }
}
