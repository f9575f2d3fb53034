//! Claims: records in the store that say who runs something, or what came of it. A request asks for its claims together
//! with its limits ([`Ask`], [`Admission`]), and then renews, finishes or gives back what it holds ([`Command`]). The
//! state machine itself stands in [`record`]; the store runs it as scripts.

mod admission;
mod ask;
mod command;
pub mod record;

pub use admission::{Admission, Asked, Granted};
pub use ask::Ask;
pub use command::{Command, Completion, HeldClaim, HeldSlot, Holdings, Word};

use std::fmt;

/// A fence further ahead of the store's time than a year of 365 days is corrupt and counts as none, in µs.
pub const FENCE_AHEAD_US: u64 = 365 * 86_400 * 1_000_000;

/// Who holds something: one request, as 32 hex digits. Nobody can guess it, so only its own request acts for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner([u8; Owner::LENGTH]);

impl Owner {
    /// Digits of an owner.
    pub const LENGTH: usize = 32;
    /// Nobody: what stands for the owner of a request that has none.
    pub const NONE: Owner = Owner([b'0'; Owner::LENGTH]);

    /// The owner of 16 random bytes.
    pub fn new(random: [u8; 16]) -> Owner {
        let mut digits = [0; Owner::LENGTH];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(random) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        Owner(digits)
    }

    /// Reads an owner that a record names.
    pub fn parse(digits: &[u8]) -> Option<Owner> {
        let digits = <[u8; Owner::LENGTH]>::try_from(digits).ok()?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(Owner(digits))
    }

    /// Its digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn digit(value: u8) -> u8 {
    char::from_digit(value.into(), 16).and_then(|digit| u8::try_from(digit).ok()).unwrap_or(b'0')
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimKind {
    /// What runs under it runs once, and its outcome is kept.
    Idempotency,
    /// What runs under it runs alone.
    Lock,
}

impl ClaimKind {
    /// The word that the script is told.
    pub fn word(self) -> &'static str {
        match self {
            ClaimKind::Idempotency => "idem",
            ClaimKind::Lock => "lock",
        }
    }
}

/// What tells two requests with one key apart. Locks have an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Of the method, the route, the query and chosen headers.
    pub head: String,
    /// Of the body; empty when it is not known.
    pub body: String,
    /// Names the rules that made both.
    pub recipe: String,
}

impl Fingerprint {
    /// Whether two requests are known to be different. Fingerprints by other rules say nothing. Hashes are compared, so
    /// the time that this takes tells nobody anything.
    pub fn differs(&self, other: &Fingerprint) -> bool {
        let bodies_differ = self.body != other.body && !self.body.is_empty() && !other.body.is_empty();
        self.recipe == other.recipe && (self.head != other.head || bodies_differ)
    }
}

/// What is kept of what ran under a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// The response.
    Done {
        /// HTTP status.
        status: u16,
        /// Header lines, encoded.
        headers: Vec<u8>,
        /// Content, by `encoding`.
        body: Vec<u8>,
        /// How the content is written down.
        encoding: Encoding,
    },
    /// That there was a response, which is not kept.
    Sealed {
        /// HTTP status.
        status: u16,
        /// Header lines, encoded.
        headers: Vec<u8>,
        /// Why it is not kept.
        reason: String,
    },
}

/// How stored content is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As base64: it is no UTF-8.
    Base64,
    /// As it is.
    Plain,
}

impl Encoding {
    /// The word in the record.
    pub fn word(self) -> &'static str {
        match self {
            Encoding::Base64 => "base64",
            Encoding::Plain => "",
        }
    }

    fn parse(word: &[u8]) -> Option<Encoding> {
        [Encoding::Base64, Encoding::Plain].into_iter().find(|encoding| encoding.word().as_bytes() == word)
    }
}

/// A status as three digits.
fn status(digits: &[u8]) -> Option<u16> {
    let is_status = digits.len() == 3 && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_status)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_its_bytes_in_hex() {
        let owner = Owner::new([0, 1, 0x2f, 0xa0, 0xff, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0x9e]);
        assert_eq!(owner.to_string(), "00012fa0ff05060708090a0b0c0d0e9e");
        assert_eq!(Owner::parse(owner.as_bytes()), Some(owner));
        for foreign in [&b""[..], &[b'0'; 31], &[b'0'; 33], &[b'g'; 32], &[0xff; 32]] {
            assert_eq!(Owner::parse(foreign), None);
        }
    }

    #[test]
    fn requests_differ_by_head_or_by_known_bodies_of_the_same_rules() {
        let of = |head: &str, body: &str, recipe: &str| Fingerprint {
            head: head.into(),
            body: body.into(),
            recipe: recipe.into(),
        };
        let stored = of("h", "b", "1");
        let rows = [
            (of("h", "b", "1"), false),
            (of("h", "", "1"), false),
            (of("h", "c", "1"), true),
            (of("g", "b", "1"), true),
            (of("g", "", "1"), true),
            (of("g", "c", "2"), false),
        ];
        for (offered, differs) in rows {
            assert_eq!((offered.differs(&stored), stored.differs(&offered)), (differs, differs), "{offered:?}");
        }
    }
}
