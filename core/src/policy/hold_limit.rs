//! Reads what bounds how often a client may have its body held for a fingerprint: a limit of each instance's own.

use super::error::PolicyErrors;
use super::limit::{self, Own};
use super::numbers::{self, Numbers};
use super::reader::Members;
use super::replay_limit::{Stands, read_bucket};
use super::units::Rate;
use super::{BodyFingerprint, Limit, MissingKey};
use crate::identity::KeyPart;

/// Its name among the members of `fingerprint`.
pub(super) const FIELD: &str = "hold_limit";

/// Reads it from the object of the fingerprint of that `body`; the inner `None` when there is none.
pub(super) fn read(
    object: &Members<'_>,
    body: BodyFingerprint,
    stands: &Stands<'_>,
    scope: &limit::Scope<'_>,
    errors: &mut PolicyErrors,
) -> Option<Option<Limit>> {
    if let BodyFingerprint::AtCompletion | BodyFingerprint::Ignored = body {
        if let Some(place) = object.optional(FIELD) {
            place.reject(errors, "none, for only the bodies raw and json are held");
        }
        return Some(None);
    }
    let default = Numbers::TokenBucket { capacity: 1_000, refill: Rate { tokens: 1_000, period_us: 1_000_000 } };
    let Some(numbers) = read_bucket(object, FIELD, default, errors)? else { return Some(None) };
    let key = vec![KeyPart::ClientAddress];
    let base = numbers::grant(numbers, 1, object, scope.options, errors)?;
    let own = Own {
        name: FIELD.to_owned(),
        stored_as: (format!("{}.idempotency.{FIELD}", stands.policy), numbers.meaning(&key, scope.prefixes)),
        base,
        key,
        on_missing_key: MissingKey::Fallback(KeyPart::Constant("all".to_owned())),
        enforce: true,
    };
    Some(Some(limit::own(stands.id, own, scope)))
}
