//! What happens before any limit counts: blocked clients, exempt requests, preflights.

use std::net::IpAddr;

use crate::policy::attributes::PREFLIGHT_HEADERS;
use crate::policy::{Access, Exemptions, Policy, PolicySet, Preflights};
use crate::selection::Selection;
use crate::values::Values;

/// Whether the method tells exempt requests from others.
pub(crate) fn needs_method(policies: &PolicySet) -> bool {
    let mut lists = std::iter::once(&policies.access).chain(policies.policies.iter().map(|policy| &policy.access));
    lists.any(|access| !access.exempt.methods.is_empty())
}

/// Whether there are preflights to tell from other requests.
pub(crate) fn exempts_preflights(policies: &PolicySet) -> bool {
    policies.preflights == Preflights::Exempt && !policies.policies.is_empty()
}

/// Whether the request may be a preflight that is exempt.
pub(crate) fn may_be_preflight(policies: &PolicySet, selection: &Selection) -> bool {
    selection.method() == "OPTIONS" && policies.preflights == Preflights::Exempt
}

/// The policy that is reported when the client is on a block list: of the file's list the one that would be reported for
/// the request anyway, if any; of a policy's list that policy. `None` when the client is on no list.
pub(crate) fn blocking(policy: Option<&Policy>, values: &Values<'_>) -> Option<Option<usize>> {
    let address = client_address(policy, values)?;
    if values.policies.access.block.contains(address) {
        return Some(policy.and_then(Policy::reported));
    }
    let blocks = |index: &usize| access(values.policies, *index).is_some_and(|access| access.block.contains(address));
    policy?.members.iter().copied().find(blocks).map(Some)
}

/// Which members of the policy do not count the request.
pub(crate) fn exempting(policy: &Policy, values: &Values<'_>) -> Vec<usize> {
    let address = client_address(Some(policy), values);
    let method = values.selection.method();
    let holds = |exempt: &Exemptions| exempt.hold(method, address, |name| values.header(name));
    if is_preflight(values) || holds(&values.policies.access.exempt) {
        return policy.members.clone();
    }
    let exempts = |index: &usize| access(values.policies, *index).is_some_and(|access| holds(&access.exempt));
    policy.members.iter().copied().filter(exempts).collect()
}

fn is_preflight(values: &Values<'_>) -> bool {
    let has = |name: &&str| values.header(name).is_some_and(|value| !value.is_empty());
    may_be_preflight(values.policies, values.selection) && PREFLIGHT_HEADERS.iter().all(has)
}

/// The client's address where some list asks for it.
fn client_address(policy: Option<&Policy>, values: &Values<'_>) -> Option<IpAddr> {
    let members = policy.into_iter().flat_map(|policy| &policy.members);
    let lists = members.filter_map(|index| access(values.policies, *index));
    let mut all = std::iter::once(&values.policies.access).chain(lists);
    all.any(Access::needs_address).then(|| values.client_address()).flatten()
}

fn access(policies: &PolicySet, index: usize) -> Option<&Access> {
    policies.policies.get(index).map(|policy| &policy.access)
}
