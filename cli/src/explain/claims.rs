//! What a request claims: its idempotency key, a lock; and why it does not where it does not.

use lockkeeper_core::claim::{Ask, ClaimKind};
use lockkeeper_core::identity::KeyPart;
use lockkeeper_core::policy::Policy;
use serde::Serialize;

/// A claim of the policy, and whether the request makes it.
#[derive(Debug, Serialize)]
pub struct AppliedClaim {
    /// `idempotency` or `lock`.
    pub kind: &'static str,
    /// What names it: the header of the key and the parts of its scope, or the parts of the lock's key.
    pub by: Vec<String>,
    /// The key of its record; none when the request does not make it.
    pub store_key: Option<String>,
    /// Why the request does not make it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclaimed: Option<&'static str>,
}

/// The claims of the policy for a request with this method, which asks for `asks`.
pub fn of(policy: &Policy, method: &str, asks: &[Ask]) -> Vec<AppliedClaim> {
    let claim = |kind: ClaimKind, methods: &[String], by: Vec<String>| {
        let store_key = asks.iter().find(|ask| ask.kind == kind).map(|ask| ask.record_key.clone());
        let is_for = methods.is_empty() || methods.iter().any(|known| known == method);
        let unclaimed = match (&store_key, is_for) {
            (Some(_), _) => None,
            (None, false) => Some("it is for other methods"),
            (None, true) => Some("what names it is missing, or the request is answered before"),
        };
        let kind = match kind {
            ClaimKind::Idempotency => "idempotency",
            ClaimKind::Lock => "lock",
        };
        AppliedClaim { kind, by, store_key, unclaimed }
    };
    let idempotency = policy.idempotency.iter().map(|rules| {
        let header = format!("header:{}", rules.header);
        let by = std::iter::once(header).chain(rules.scope.iter().map(KeyPart::text)).collect();
        claim(ClaimKind::Idempotency, &rules.methods, by)
    });
    let lock = policy
        .lock
        .iter()
        .map(|rules| claim(ClaimKind::Lock, &rules.methods, rules.key.iter().map(KeyPart::text).collect()));
    idempotency.chain(lock).collect()
}
