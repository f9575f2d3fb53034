//! Owners, claims and commands as the tests use them.

use lockkeeper_core::claim::{
    Ask, ClaimKind, Command, Completion, Encoding, Fingerprint, HeldClaim, HeldSlot, Holdings, Kept, Owner,
};
use lockkeeper_core::policy::OnUnknown;

pub const NOW_US: u64 = 1_796_083_200_123_456;
pub const LEASE_US: u64 = 30_000_000;
/// Slots of a limit, and their lease.
pub const SLOTS: &str = "{k}:slots";
pub const SLOT_LEASE_US: u64 = 20_000_000;
pub const RETENTION_MS: u64 = 86_400_000;

pub fn owner(byte: u8) -> Owner {
    Owner::new([byte; 16])
}

pub fn fingerprint(head: &str, body: &str, recipe: &str) -> Fingerprint {
    Fingerprint { head: head.into(), body: body.into(), recipe: recipe.into() }
}

/// A claim on a key.
pub fn key() -> Ask {
    Ask {
        kind: ClaimKind::Idempotency,
        record_key: "{k}:i:r".into(),
        fence_key: "{k}:i:f".into(),
        fingerprint: fingerprint("a", "x", "1"),
        lease_us: LEASE_US,
        ttl_ms: RETENTION_MS,
        on_unknown: OnUnknown::Reject,
        floor: 0,
    }
}

/// A claim on a lock.
pub fn lock() -> Ask {
    Ask {
        kind: ClaimKind::Lock,
        record_key: "{k}:l:r".into(),
        fence_key: "{k}:l:f".into(),
        fingerprint: Fingerprint::default(),
        ..key()
    }
}

pub fn held(ask: &Ask, fence: Option<u64>) -> HeldClaim {
    HeldClaim {
        record_key: ask.record_key.clone(),
        fence_key: ask.fence_key.clone(),
        fence,
        lease_us: ask.lease_us,
        ttl_ms: ask.ttl_ms,
    }
}

pub fn slot(key: &str, lease_us: u64) -> HeldSlot {
    HeldSlot { key: key.into(), lease_us }
}

pub fn holdings(owner: Owner, claims: Vec<HeldClaim>, slots: Vec<HeldSlot>) -> Holdings {
    Holdings { owner, claims, slots }
}

pub fn complete(owner: Owner, ask: &Ask, fence: u64, kept: Kept) -> Command {
    Command::Complete(Completion {
        owner,
        record_key: ask.record_key.clone(),
        fence_key: ask.fence_key.clone(),
        fence,
        attempt: 1,
        ttl_ms: ask.ttl_ms,
        fingerprint: ask.fingerprint.clone(),
        kept,
    })
}

pub fn done() -> Kept {
    Kept::Done { status: 201, headers: b"h: 1\n".to_vec(), body: b"\xff\r\n\0".to_vec(), encoding: Encoding::Base64 }
}

pub fn sealed() -> Kept {
    Kept::Sealed { status: 200, headers: Vec::new(), reason: "too-large".into() }
}
