//! Reads what idempotency and locks have in common: the lease, the wait, what happens without the store, and what the
//! upstream and the client are told.

use super::error::PolicyErrors;
use super::names::header_name;
use super::reader::{Members, Place};
use super::units::duration_us_between;
use super::{ClaimFailure, LeaseRules, OnLeaseLost};

/// The fields that [`read`] asks for.
pub(super) const FIELDS: [&str; 8] = [
    "lease",
    "max_lease",
    "on_lease_lost",
    "wait",
    "on_store_failure",
    "per_instance_protection",
    "fence_header",
    "problem_base",
];
/// Headers that mean something else to whoever handles the message.
const TAKEN_HEADERS: [&str; 12] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const PROBLEM_BASE_BYTES_MAX: usize = 256;

/// What idempotency and locks have in common.
pub(super) struct Claim {
    pub lease: LeaseRules,
    pub wait_us: u64,
    pub on_store_failure: ClaimFailure,
    pub fence_header: String,
    pub problem_base: String,
}

/// Reads it from the object of the claim.
pub(super) fn read(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<Claim> {
    let lease = read_lease(object, errors);
    let wait_us = object.or("wait", 0, errors, |place, errors| duration_us_between(place, "0ms", "10s", errors));
    let on_store_failure = read_on_store_failure(object, errors);
    let fence_header = header_of(object, "fence_header", "fencing-token", errors);
    let problem_base = object.or("problem_base", "urn:lockkeeper:problem:".to_owned(), errors, read_problem_base);
    Some(Claim {
        lease: lease?,
        wait_us: wait_us?,
        on_store_failure: on_store_failure?,
        fence_header: fence_header?,
        problem_base: problem_base?,
    })
}

fn read_lease(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<LeaseRules> {
    let lost = [("continue", OnLeaseLost::Continue), ("cancel", OnLeaseLost::Cancel)];
    let on_lost =
        object.or("on_lease_lost", OnLeaseLost::Continue, errors, |place, errors| place.choice(errors, &lost));
    let lease = object.or("lease", LEASE_US, errors, |place, errors| duration_us_between(place, "1s", "1h", errors));
    let least = lease.unwrap_or(LEASE_US);
    let max_lease = object.or("max_lease", MAX_LEASE_US.max(least), errors, |place, errors| {
        let us = duration_us_between(place, "1s", "24h", errors)?;
        if us < least {
            place.reject(errors, "at least the lease");
        }
        Some(us)
    });
    Some(LeaseRules { lease_us: lease?, max_lease_us: max_lease?, on_lost: on_lost? })
}

const LEASE_US: u64 = 30_000_000;
const MAX_LEASE_US: u64 = 600_000_000;

fn read_on_store_failure(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<ClaimFailure> {
    let modes = [("deny", ClaimFailure::Deny), ("allow", ClaimFailure::Allow), ("local", ClaimFailure::Local)];
    let protected =
        object.or("per_instance_protection", false, errors, |place, errors| place.boolean(errors)).unwrap_or(true);
    object.or("on_store_failure", ClaimFailure::Deny, errors, |place, errors| {
        let mode = place.choice(errors, &modes)?;
        if mode == ClaimFailure::Local && !protected {
            let expected = "\"deny\" or \"allow\", or \"per_instance_protection\": true beside it: each instance then \
                            protects only against itself, and its grants carry no fencing token";
            place.reject(errors, expected);
        }
        Some(mode)
    })
}

/// The lower-case name of a header that we set or read ourselves.
pub(super) fn header_of(object: &Members<'_>, field: &str, default: &str, errors: &mut PolicyErrors) -> Option<String> {
    object.or(field, default.to_owned(), errors, |place, errors| {
        let name = header_name(place, "the name of a header", errors)?;
        if TAKEN_HEADERS.contains(&&*name) {
            place.reject(errors, format!("a header without another meaning, such as {default:?}"));
        }
        Some(name)
    })
}

/// Problem types are URIs (RFC 9457 §3.1.1), and ours are this text followed by a name.
fn read_problem_base(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let expected = "the start of a URI, such as \"https://docs.example.com/problems/\"";
    let text = place.text(errors, expected)?;
    let scheme = text.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    let has_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !has_scheme || text.len() > PROBLEM_BASE_BYTES_MAX || !text.bytes().all(is_plain) {
        place.reject(errors, expected);
    }
    Some(text.to_owned())
}
