//! A claim that a request asks for, and how the admitting script is told.

use super::{ClaimKind, Fingerprint, Owner};
use crate::policy::OnUnknown;
use crate::resp::{push_bulk, push_number};

/// A record outlives its lease by this much, so that nobody takes it for absent.
const TTL_MARGIN_MS: u64 = 1_000;

/// One claim to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What it is for.
    pub kind: ClaimKind,
    /// Store key of the record.
    pub record_key: String,
    /// Store key of what is remembered beside it.
    pub fence_key: String,
    /// What the request is.
    pub fingerprint: Fingerprint,
    /// How long it lasts without its holder's word, in µs.
    pub lease_us: u64,
    /// How long the store keeps it, in ms; at least the lease and a second more, whatever is asked.
    pub ttl_ms: u64,
    /// What happens when the outcome of an earlier run is unknown. Locks do not ask.
    pub on_unknown: OnUnknown,
    /// The highest fence that this gateway knows: the next one is above it. 0 when it knows none.
    pub floor: u64,
}

impl Ask {
    /// Keys of the script for each claim.
    pub const KEYS: usize = 2;
    /// Arguments of the script for each claim.
    pub const ARGUMENTS: usize = 9;

    /// Appends its keys.
    pub fn write_keys(&self, out: &mut Vec<u8>) {
        push_bulk(self.record_key.as_bytes(), out);
        push_bulk(self.fence_key.as_bytes(), out);
    }

    /// Appends its arguments.
    pub fn write_arguments(&self, owner: &Owner, out: &mut Vec<u8>) {
        push_bulk(self.kind.word().as_bytes(), out);
        push_bulk(owner.as_bytes(), out);
        push_bulk(self.fingerprint.head.as_bytes(), out);
        push_bulk(self.fingerprint.body.as_bytes(), out);
        push_bulk(self.fingerprint.recipe.as_bytes(), out);
        push_number(self.lease_us, out);
        push_number(lasting_ms(self.ttl_ms, self.lease_us), out);
        push_bulk(on_unknown(self.on_unknown).as_bytes(), out);
        push_number(self.floor, out);
    }
}

fn on_unknown(choice: OnUnknown) -> &'static str {
    match choice {
        OnUnknown::Reject => "reject",
        OnUnknown::RetryAfterLease => "retry",
    }
}

/// The expiry of a running record.
pub(super) fn lasting_ms(ttl_ms: u64, lease_us: u64) -> u64 {
    ttl_ms.max(lease_us.div_ceil(1_000).saturating_add(TTL_MARGIN_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_told_two_keys_and_nine_arguments() {
        let ask = Ask {
            kind: ClaimKind::Idempotency,
            record_key: "p:{1}:r".into(),
            fence_key: "p:{1}:f".into(),
            fingerprint: Fingerprint { head: "h".into(), body: String::new(), recipe: "v".into() },
            lease_us: 30_000_000,
            ttl_ms: 5,
            on_unknown: OnUnknown::RetryAfterLease,
            floor: 7,
        };
        let (mut keys, mut arguments) = (Vec::new(), Vec::new());
        ask.write_keys(&mut keys);
        ask.write_arguments(&Owner::new([0xab; 16]), &mut arguments);
        assert_eq!(keys, b"$7\r\np:{1}:r\r\n$7\r\np:{1}:f\r\n");
        let words: Vec<&str> = std::str::from_utf8(&arguments).unwrap().split("\r\n").skip(1).step_by(2).collect();
        assert_eq!(words, ["idem", &"ab".repeat(16), "h", "", "v", "30000000", "31000", "retry", "7"]);
    }
}
