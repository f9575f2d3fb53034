//! What this host asks of policies with claims, beside what the file format does.

use lockkeeper_core::identity::KeyPart;
use lockkeeper_core::policy::Policy;

/// One line for each fault.
pub fn faults(policy: &Policy) -> Vec<String> {
    let mut faults = Vec::new();
    let name = &policy.name;
    if let Some(rules) = policy.idempotency.as_deref() {
        // Nothing before a Worker verifies tokens: only the credential itself tells who may see a stored response.
        if !rules.scope.is_empty() && !rules.scope.iter().any(is_credential) {
            faults.push(format!(
                "policy {name}: idempotency.scope: expected \"header:authorization\" or the cookie of a session among its \
                 parts, since the origin verifies them and nothing before a Worker does"
            ));
        }
    }
    faults
}

fn is_credential(part: &KeyPart) -> bool {
    match part {
        KeyPart::Cookie(_) => true,
        KeyPart::Header(name) => name == "authorization",
        _ => false,
    }
}
