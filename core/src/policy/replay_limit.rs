//! Reads what bounds the answers that come from records rather than from the upstream: replays, conflicts, mismatches.

use super::error::PolicyErrors;
use super::limit::{self, Own};
use super::node::Node;
use super::numbers::{self, Kind, Numbers};
use super::reader::Members;
use super::units::Rate;
use super::{Limit, LimitId, MissingKey};
use crate::identity::KeyPart;

/// Where the limit of replays stands, and whose replays it counts together.
pub(super) struct Stands<'a> {
    pub policy: &'a str,
    pub id: LimitId,
    pub scope: &'a [KeyPart],
}

/// Reads it from the object of the idempotency; the inner `None` when there is to be none.
pub(super) fn read(
    object: &Members<'_>,
    stands: &Stands<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Option<Limit>> {
    let default = Numbers::TokenBucket { capacity: 20, refill: Rate { tokens: 5, period_us: 1_000_000 } };
    let Some(numbers) = read_bucket(object, "replay_limit", default, errors)? else { return Some(None) };
    // Nobody's replays use up those of others where all clients share one scope.
    let (key, on_missing_key) = match stands.scope {
        [] => (vec![KeyPart::ClientAddress], MissingKey::Fallback(KeyPart::Constant("all".to_owned()))),
        parts => (parts.to_vec(), MissingKey::Skip),
    };
    let base = numbers::grant(numbers, 1, object, scope.options, errors)?;
    let own = Own {
        name: "replay_limit".to_owned(),
        // No limit's name holds a dot, so that no limit of the list is stored under this one.
        stored_as: (format!("{}.idempotency.replay_limit", stands.policy), numbers.meaning(&key, scope.prefixes)),
        base,
        key,
        on_missing_key,
        enforce: true,
    };
    Some(Some(limit::own(stands.id, own, scope)))
}

/// Reads the numbers of a token bucket; the inner `None` when there is to be none.
pub(super) fn read_bucket(
    object: &Members<'_>,
    field: &str,
    default: Numbers,
    errors: &mut PolicyErrors,
) -> Option<Option<Numbers>> {
    let Some(place) = object.optional(field) else { return Some(Some(default)) };
    if *place.node == Node::Bool(false) {
        return Some(None);
    }
    let object = place.object(errors, "an object with capacity and refill, or false for none")?;
    let numbers = numbers::read(Kind::TokenBucket, &object, errors);
    object.finish(errors, Kind::TokenBucket.fields());
    numbers.map(Some)
}
