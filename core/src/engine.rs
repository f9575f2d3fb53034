//! From a request to a decision, step by step: the host obeys each [`Step`] and resumes with what it got.

use std::sync::Arc;

use crate::algorithm::Verdict;
use crate::answer;
use crate::call::Call;
use crate::decision::{Action, DecidedBy, Decision, LimitVerdict, Outcome, Report};
use crate::identity::{AddressPrefixes, Attribute, IdentityHasher, KeyPart};
use crate::local_call::LocalCall;
use crate::normalize;
use crate::policy::attributes::PREFLIGHT_HEADERS;
use crate::policy::{Exemptions, Limit, LimitId, MissingKey, NoNumber, Policy, PolicySet, Preflights};
use crate::route::RequestLine;

/// What the host does next for a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step {
    /// Send the call's command to the store, then [`Call::resume`].
    Call(Call),
    /// Let the instance's own limiter decide, then [`LocalCall::resume`].
    Local(LocalCall),
    /// Done.
    Decide(Decision),
}

/// Decides requests by one policy file.
#[derive(Clone, Debug)]
pub struct Engine {
    policies: Arc<PolicySet>,
    line_needs: LineNeeds,
}

/// What the policies need of a request's first line and authority; the host need not look up the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineNeeds {
    /// The method.
    pub method: bool,
    /// The authority.
    pub authority: bool,
    /// The target.
    pub target: bool,
}

impl LineNeeds {
    fn of(policies: &PolicySet) -> LineNeeds {
        let exempts_methods = std::iter::once(&policies.access)
            .chain(policies.policies.iter().map(|policy| &policy.access))
            .any(|access| !access.exempt.methods.is_empty());
        let exempts_preflights = policies.preflights == Preflights::Exempt && !policies.policies.is_empty();
        let has_part = |part: &KeyPart| {
            policies.policies.iter().flat_map(|policy| &policy.limits).any(|limit| limit.parts().any(|one| one == part))
        };
        let routes = &policies.routes;
        LineNeeds {
            method: exempts_preflights || exempts_methods || routes.need_method() || has_part(&KeyPart::Method),
            authority: routes.need_host() || has_part(&KeyPart::Host),
            target: routes.need_path() || has_part(&KeyPart::Path),
        }
    }
}

/// A request with its policy, before its attributes are known.
#[derive(Clone, Debug)]
pub struct Selection {
    policy: Option<usize>,
    method: String,
    host: String,
    path: String,
}

/// A limit that counts this request, and the store key it counts under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Index of the limit in the policy that applies.
    pub limit: usize,
    /// Index of the override that applies, if any.
    pub override_index: Option<usize>,
    /// Units that the request spends.
    pub cost: u64,
    /// Its key in the store.
    pub store_key: String,
}

impl Counted {
    pub(crate) fn verdict(&self, verdict: Verdict) -> LimitVerdict {
        LimitVerdict { limit: self.limit, override_index: self.override_index, verdict }
    }
}

impl Engine {
    /// An engine for a loaded policy file.
    pub fn new(policies: PolicySet) -> Engine {
        Engine { line_needs: LineNeeds::of(&policies), policies: Arc::new(policies) }
    }

    /// What of a request's line [`Engine::select`] needs.
    pub fn line_needs(&self) -> LineNeeds {
        self.line_needs
    }

    /// The policy file.
    pub fn policies(&self) -> &PolicySet {
        &self.policies
    }

    /// Finds the policy of a request: `authority` and `target` as they came, empty when missing or
    /// [not needed](Engine::line_needs).
    pub fn select(&self, method: &str, authority: &str, target: &str) -> Selection {
        let (host, path) = (normalize::host(authority), normalize::path(target));
        let line = RequestLine { method, host: &host, path: &path };
        let policy = self.policies.routes.policy(line).or(self.policies.default_policy);
        Selection { policy, method: method.to_owned(), host, path }
    }

    /// What the host must look up for the request, in this order.
    pub fn attributes(&self, selection: &Selection) -> &[Attribute] {
        match self.policy(selection) {
            Some(policy) if self.may_be_preflight(selection) => &policy.preflight_attributes,
            Some(policy) => &policy.attributes,
            None => &self.policies.attributes_without_policy,
        }
    }

    /// The policy that applies to the request, if any.
    pub fn policy(&self, selection: &Selection) -> Option<&Policy> {
        self.policies.applied(selection.policy?)
    }

    fn may_be_preflight(&self, selection: &Selection) -> bool {
        selection.method == "OPTIONS" && self.policies.preflights == Preflights::Exempt
    }

    /// Begins the decision. `values` are those of [`Engine::attributes`], in their order; `None` for what is missing.
    pub fn begin(&self, selection: &Selection, values: &[Option<Vec<u8>>]) -> Step {
        let attributes = self.attributes(selection);
        let lookup = Lookup { selection, attributes, values, prefixes: self.policies.address_prefixes };
        let applied = selection.policy.zip(self.policy(selection));
        if let Some(policy) = self.blocking(applied.map(|(_, policy)| policy), &lookup) {
            return blocked(policy, self.policies.enforce);
        }
        let Some((index, policy)) = applied else { return passed(None, Outcome::Allowed) };
        let exempting = self.exempting(selection, policy, &lookup);
        if exempting.len() == policy.members.len() {
            return passed(policy.reported(), Outcome::Exempt);
        }
        let mut counted = Vec::with_capacity(policy.limits.len());
        let limits = policy.limits.iter().enumerate().filter(|(_, limit)| !exempting.contains(&limit.id.policy));
        for (position, limit) in limits {
            let store_key = match (lookup.store_key(limit), limit.on_missing_key) {
                (Ok(store_key), _) => store_key,
                (Err(_), MissingKey::Skip) => continue,
                // A limit that only measures never turns a request away.
                (Err(_), MissingKey::Reject) if !limit.enforce => continue,
                (Err(part), MissingKey::Reject) => return rejected(limit.id, answer::missing_key(part)),
            };
            let cost = match lookup.cost(limit) {
                Ok(cost) => cost,
                Err(NoNumber) if !limit.enforce => limit.cost.fallback(),
                Err(NoNumber) => return rejected(limit.id, answer::illegible_cost(&limit.cost)),
            };
            counted.push(Counted { limit: position, override_index: lookup.override_index(limit), cost, store_key });
        }
        if counted.is_empty() {
            return passed(policy.reported(), Outcome::Allowed);
        }
        Step::Call(Call::new(Arc::clone(&self.policies), index, counted))
    }

    /// Whether the client is on a block list: that of the file, which counts as the policy's that is reported, or that
    /// of a policy that applies.
    fn blocking(&self, policy: Option<&Policy>, lookup: &Lookup<'_>) -> Option<Option<usize>> {
        let address = lookup.client_address()?;
        if self.policies.access.block.contains(address) {
            return Some(policy.and_then(Policy::reported));
        }
        let blocks = |index: &&usize| {
            self.policies.policies.get(**index).is_some_and(|member| member.access.block.contains(address))
        };
        policy?.members.iter().find(blocks).map(|index| Some(*index))
    }

    /// Which members of the policy do not count the request.
    fn exempting(&self, selection: &Selection, policy: &Policy, lookup: &Lookup<'_>) -> Vec<usize> {
        let address = lookup.client_address();
        let holds = |exempt: &Exemptions| exempt.hold(&selection.method, address, |name| lookup.header(name));
        if self.is_preflight(selection, lookup) || holds(&self.policies.access.exempt) {
            return policy.members.clone();
        }
        let members = policy.members.iter().copied();
        let of = |index: usize| self.policies.policies.get(index);
        members.filter(|index| of(*index).is_some_and(|member| holds(&member.access.exempt))).collect()
    }

    fn is_preflight(&self, selection: &Selection, lookup: &Lookup<'_>) -> bool {
        let has = |name: &&str| lookup.header(name).is_some_and(|value| !value.is_empty());
        self.may_be_preflight(selection) && PREFLIGHT_HEADERS.iter().all(has)
    }
}

fn passed(policy: Option<usize>, outcome: Outcome) -> Step {
    let action = Action::Forward { response_headers: Vec::new() };
    Step::Decide(Decision::new(action, Report::uncounted(policy, outcome)))
}

fn blocked(policy: Option<usize>, enforce: bool) -> Step {
    if !enforce {
        return passed(policy, Outcome::ShadowBlocked);
    }
    Step::Decide(Decision::new(answer::blocked(), Report::uncounted(policy, Outcome::Blocked)))
}

fn rejected(id: LimitId, action: Action) -> Step {
    let report = Report {
        policy: Some(id.policy),
        limit: Some(id.limit),
        outcome: Outcome::Rejected,
        decided_by: DecidedBy::Policy,
        shadow_denials: Vec::new(),
    };
    Step::Decide(Decision::new(action, report))
}

struct Lookup<'a> {
    selection: &'a Selection,
    attributes: &'a [Attribute],
    values: &'a [Option<Vec<u8>>],
    prefixes: AddressPrefixes,
}

impl<'a> Lookup<'a> {
    /// The store key of the limit for this request, or the part that is missing. The identity is the hash tag, so that
    /// all limits of one identity share a cluster slot.
    fn store_key<'l>(&self, limit: &'l Limit) -> Result<String, &'l KeyPart> {
        let mut hasher = IdentityHasher::default();
        for part in &limit.key {
            hasher.push(part, &self.value(part).ok_or(part)?);
        }
        let identity = hasher.finish();
        Ok(format!("{}{{{}}}", limit.store_key_prefix, identity.0))
    }

    fn value(&self, part: &KeyPart) -> Option<Vec<u8>> {
        match part {
            KeyPart::Method => Some(self.selection.method.clone().into_bytes()),
            KeyPart::Host => Some(self.selection.host.clone().into_bytes()).filter(|host| !host.is_empty()),
            KeyPart::Path => Some(self.selection.path.clone().into_bytes()),
            KeyPart::Constant(text) => Some(text.clone().into_bytes()),
            KeyPart::Header(_) | KeyPart::Metadata(_) => self.attribute(part).filter(|value| !value.is_empty()),
            KeyPart::ClientAddress => {
                let text = self.attribute(part)?;
                self.prefixes.network(std::str::from_utf8(&text).ok()?).map(String::into_bytes)
            }
        }
    }

    fn attribute(&self, part: &KeyPart) -> Option<Vec<u8>> {
        self.attribute_value(&part.attribute()?).map(<[u8]>::to_vec)
    }

    fn attribute_value(&self, wanted: &Attribute) -> Option<&[u8]> {
        self.find(|attribute| attribute == wanted)
    }

    fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.find(|attribute| matches!(attribute, Attribute::Header(known) if known == name))
    }

    fn client_address(&self) -> Option<&'a [u8]> {
        self.find(|attribute| *attribute == Attribute::ClientAddress)
    }

    fn find(&self, is_wanted: impl Fn(&Attribute) -> bool) -> Option<&'a [u8]> {
        let position = self.attributes.iter().position(is_wanted)?;
        self.values.get(position)?.as_deref()
    }

    fn cost(&self, limit: &Limit) -> Result<u64, NoNumber> {
        limit.cost.read(limit.cost.header().and_then(|name| self.header(name)))
    }

    /// The first override whose conditions all hold. A part that conditions name one after the other is looked up once.
    fn override_index(&self, limit: &Limit) -> Option<usize> {
        let mut last: Option<(&KeyPart, Option<Vec<u8>>)> = None;
        limit.overrides.iter().position(|one| {
            one.when.iter().all(|condition| {
                if last.as_ref().is_none_or(|(part, _)| **part != condition.part) {
                    last = Some((&condition.part, self.value(&condition.part)));
                }
                let value = last.as_ref().and_then(|(_, value)| value.as_deref());
                value.is_some_and(|value| condition.value.matches(value))
            })
        })
    }
}
