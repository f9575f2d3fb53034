//! The store: each command runs the core's state machine. A world may have one of its guards broken, to see that the
//! checker notices.

use lockkeeper_core::claim::record::{Place, Record, Stored, begin};
use lockkeeper_core::claim::{Admission, Ask, ClaimKind, Completion, Encoding, Fingerprint, Kept, Owner, Word};
use lockkeeper_core::policy::OnUnknown;

use crate::state::{Command, Index};

/// A guard that a world can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Only the holder completes.
    CompletionByOwner,
    /// A completion that finds nothing asks what was given since.
    CompletionByFence,
    /// Only the holder gives back.
    ReleaseByOwner,
    /// Only the holder renews.
    RenewalByOwner,
    /// The next fence is above the one before, whatever the clock says.
    FenceRemembered,
    /// The next fence is above those that the gateway has seen.
    FenceFloor,
    /// Nobody takes over before the lease has lapsed.
    TakeoverAfterLapse,
    /// Nobody begins what is finished.
    FinishedIsKept,
    /// An unknown outcome is nobody's to run again.
    UnknownIsRejected,
    /// A holder counts its lease from when it asked, not from when it heard.
    LeaseFromSending,
    /// The resource compares fences.
    ResourceChecks,
}

/// One claim as all requests ask for it.
pub fn ask(kind: ClaimKind, on_unknown: OnUnknown, lease_us: u64, floor: u64) -> Ask {
    Ask {
        kind,
        record_key: String::new(),
        fence_key: String::new(),
        fingerprint: Fingerprint::default(),
        lease_us,
        ttl_ms: 1_000,
        on_unknown,
        floor,
    }
}

pub fn owner(by: Index) -> Owner {
    Owner::new([by; 16])
}

pub fn run_begin(place: &mut Place, ask: &Ask, by: Index, now_us: u64, broken: Option<Guard>) -> Admission {
    if broken == Some(Guard::FenceRemembered) {
        place.sibling = None;
    }
    if let Stored::Record(record) = &mut place.stored {
        break_begin(record, by, now_us, broken);
    }
    let ask = match broken {
        Some(Guard::FenceFloor) => Ask { floor: 0, ..ask.clone() },
        Some(Guard::UnknownIsRejected) => Ask { on_unknown: OnUnknown::RetryAfterLease, ..ask.clone() },
        _ => ask.clone(),
    };
    begin(std::slice::from_mut(place), &[ask], owner(by), now_us)
}

fn break_begin(record: &mut Record, by: Index, now_us: u64, broken: Option<Guard>) {
    match broken {
        Some(Guard::TakeoverAfterLapse) if record.owner != owner(by) => record.deadline_us = now_us,
        Some(Guard::FenceRemembered) => record.fence = 0,
        Some(Guard::FinishedIsKept) if record.kept.is_some() => {
            (record.kept, record.deadline_us) = (None, now_us);
        }
        _ => {}
    }
}

/// What the other commands say.
pub fn run(place: &mut Place, by: Index, command: Command, now_us: u64, broken: Option<Guard>) -> Word {
    let holder = match &place.stored {
        Stored::Record(record) => Some((record.owner, record.fence)),
        _ => None,
    };
    // Whoever is not asked who it is passes for the holder.
    let compared = |guard: Guard, fence: Option<u64>| match holder {
        Some((owner, fence)) if broken == Some(guard) => (owner, Some(fence)),
        _ => (owner(by), fence),
    };
    match command {
        Command::Begin { .. } => Word::Gone,
        Command::Renew { fence, lease_us, .. } => {
            let (owner, fence) = compared(Guard::RenewalByOwner, Some(fence));
            place.renew(owner, fence, lease_us, now_us)
        }
        Command::Release { fence } => {
            let (owner, fence) = compared(Guard::ReleaseByOwner, fence);
            place.release(owner, fence, false, now_us)
        }
        Command::Complete { fence } => {
            if broken == Some(Guard::CompletionByFence) && place.stored == Stored::Absent {
                place.sibling = None;
            }
            let (owner, fence) = match compared(Guard::CompletionByOwner, Some(fence)) {
                (owner, Some(fence)) => (owner, fence),
                (owner, None) => (owner, fence),
            };
            place.complete(&completion(owner, fence, by), now_us)
        }
    }
}

/// The outcome names its request, so that another's shows.
fn completion(owner: Owner, fence: u64, by: Index) -> Completion {
    Completion {
        owner,
        record_key: String::new(),
        fence_key: String::new(),
        fence,
        attempt: 1,
        ttl_ms: 1_000,
        fingerprint: Fingerprint::default(),
        kept: Kept::Done {
            status: 200 + u16::from(by),
            headers: Vec::new(),
            body: Vec::new(),
            encoding: Encoding::Plain,
        },
    }
}
