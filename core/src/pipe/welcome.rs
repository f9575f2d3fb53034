//! The beginning of a connection: the [greeting](crate::greeting) is said, and nothing else before the store has
//! accepted all of it. A command that followed a refused greeting would run as another user, or in another database.

use crate::greeting::Greeting;
use crate::resp::Reply;
use crate::store::StoreFailure;

/// A greeting that the store has not accepted yet.
#[derive(Debug)]
pub struct Welcome {
    unsent: Vec<u8>,
    replies_left: usize,
    /// Without an answer at this time the connection is stuck.
    stuck_at_us: u64,
}

/// What a reply means for a greeting.
#[derive(Debug, PartialEq, Eq)]
pub enum Welcomed {
    /// There are more replies to come.
    Not,
    /// All of it is accepted.
    Wholly,
    /// The store refuses it.
    Refused(StoreFailure),
    /// The reply answers no greeting.
    Desync,
}

impl Welcome {
    /// `None` where there is nothing to say.
    pub fn of(greeting: &Greeting, stuck_at_us: u64) -> Option<Welcome> {
        let replies_left = greeting.replies();
        (replies_left > 0).then(|| Welcome { unsent: greeting.bytes().to_vec(), replies_left, stuck_at_us })
    }

    /// What to send: the greeting, once.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Takes one reply.
    pub fn take(&mut self, reply: &Reply) -> Welcomed {
        match reply {
            Reply::SimpleString(_) => {
                self.replies_left = self.replies_left.saturating_sub(1);
                if self.replies_left == 0 { Welcomed::Wholly } else { Welcomed::Not }
            }
            Reply::Error(text) => Welcomed::Refused(StoreFailure::of_error(text)),
            _ => Welcomed::Desync,
        }
    }

    /// Whether the store has owed its answer for too long.
    pub fn is_stuck(&self, now_us: u64) -> bool {
        self.stuck_at_us <= now_us
    }
}
