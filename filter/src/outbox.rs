//! Commands about leases that the store has not confirmed: they are sent again until it does or they are of no more use.

use std::collections::VecDeque;

use lockkeeper_core::lease::LeaseCall;

/// The pause before a command is sent again.
const PAUSE_US: u64 = 100_000;
/// The most commands that wait: beyond, the oldest is given up, and its lease lapses.
const COMMANDS_MAX: usize = 4_096;
/// The most bytes of commands that wait; stored responses are large.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// The commands that wait.
#[derive(Default)]
pub struct Outbox {
    commands: VecDeque<Waiting>,
    bytes: usize,
}

struct Waiting {
    call: LeaseCall,
    at_us: u64,
    expires_us: u64,
}

impl Outbox {
    /// Takes a command that failed, or that is to be sent at `at_us`; false when something had to be given up.
    pub fn push(&mut self, call: LeaseCall, at_us: u64, expires_us: u64) -> bool {
        self.bytes = self.bytes.saturating_add(call.bytes());
        self.commands.push_back(Waiting { call, at_us, expires_us });
        let mut fits = true;
        while self.commands.len() > COMMANDS_MAX || self.bytes > BYTES_MAX {
            fits = false;
            let Some(oldest) = self.commands.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.call.bytes());
        }
        fits
    }

    /// Takes a command that failed at `now_us`.
    pub fn retry(&mut self, call: LeaseCall, now_us: u64, expires_us: u64) -> bool {
        self.push(call, now_us.saturating_add(PAUSE_US), expires_us)
    }

    /// Takes out what is due, each with the time until which it is of use; and how many are given up because that has passed.
    pub fn due(&mut self, now_us: u64) -> (Vec<(LeaseCall, u64)>, usize) {
        let before = self.commands.len();
        let commands = std::mem::take(&mut self.commands);
        let (due, kept): (VecDeque<_>, VecDeque<_>) = commands.into_iter().partition(|one| one.at_us <= now_us);
        self.commands = kept;
        self.bytes = self.commands.iter().map(|one| one.call.bytes()).sum();
        let sent: Vec<_> = due.into_iter().filter(|one| one.expires_us > now_us).collect();
        let given_up = before.saturating_sub(self.commands.len()).saturating_sub(sent.len());
        (sent.into_iter().map(|one| (one.call, one.expires_us)).collect(), given_up)
    }

    /// When the next one is due.
    pub fn next_us(&self) -> Option<u64> {
        self.commands.iter().map(|one| one.at_us).min()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}
