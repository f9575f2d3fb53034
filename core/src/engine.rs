//! From a request to a decision, step by step: the host obeys each [`Step`] and resumes with what it got.

use std::sync::Arc;

use crate::access;
use crate::admission::{self, Arrival, Asked, BodyWanted};
use crate::algorithm::Verdict;
use crate::answer;
use crate::call::Call;
use crate::decision::{Action, Decision, LimitVerdict, Outcome, Report};
use crate::hold_limit;
use crate::identity::{Attribute, KeyPart};
use crate::lease::LeaseCall;
use crate::local_call::LocalCall;
use crate::local_claims::LocalClaimCall;
use crate::policy::{Limit, NoNumber, Policy, PolicySet};
use crate::selection::{GatewayRoute, Selection};
use crate::store::StoreFailure;
use crate::values::Values;

pub use crate::policy::attributes::PREFLIGHT_MARK;

/// What the host does next for a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step {
    /// Send the call's command to the store, then [`Call::resume`].
    Call(Call),
    /// Let the instance's own limiter decide for the store, or whether a body may be held; then [`LocalCall::resume`].
    Local(LocalCall),
    /// Let the instance's own table of claims answer, then [`LocalClaimCall::resume`].
    LocalClaims(LocalClaimCall),
    /// Collect the request's body, then [`NeedBody::resume`].
    NeedBody(NeedBody),
    /// Wait, then [`Wait::resume`].
    WaitUntil(Wait),
    /// Done.
    Decide(Decision),
}

/// A request whose body must be known before it can claim anything.
#[derive(Debug)]
pub struct NeedBody {
    pub(crate) call: Call,
    bytes_max: usize,
}

/// What became of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// More than [`NeedBody::bytes_max`].
    TooLarge,
    /// It did not come in time, or the host holds too many already.
    Failed,
}

impl NeedBody {
    /// The most bytes that are of use.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Goes on with the body.
    pub fn resume(self, body: Collected<'_>) -> Step {
        self.call.with_body(body)
    }
}

/// A request that waits for another to end.
#[derive(Debug)]
pub struct Wait {
    pub(crate) after_us: u64,
    pub(crate) call: Call,
}

impl Wait {
    /// For how long, in microseconds.
    pub fn after_us(&self) -> u64 {
        self.after_us
    }

    /// Asks the store again.
    pub fn resume(self) -> Step {
        Step::Call(self.call)
    }

    /// The client went away while it waited: what gives back what the request may hold, if it may hold anything.
    pub fn abandon(&self) -> Option<LeaseCall> {
        self.call.abandoned()
    }
}

/// Decides requests by one policy file.
#[derive(Clone, Debug)]
pub struct Engine {
    policies: Arc<PolicySet>,
    line_needs: LineNeeds,
    reserved_headers: Vec<String>,
}

/// What the policies need of a request's first line, its authority and the gateway's route; the host need not look up the
/// rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineNeeds {
    /// The method.
    pub method: bool,
    /// The method, if the request has the header [`PREFLIGHT_MARK`]; of others it may be left empty.
    pub method_of_preflight: bool,
    /// The authority.
    pub authority: bool,
    /// The target.
    pub target: bool,
    /// The name of the gateway's route.
    pub route_name: bool,
    /// The policy that the gateway's route names.
    pub route_policy: bool,
}

impl LineNeeds {
    fn of(policies: &PolicySet) -> LineNeeds {
        let has_part =
            |is_wanted: fn(&KeyPart) -> bool| policies.policies.iter().any(|policy| policy.parts().any(is_wanted));
        let by_method = |policy: &Policy| policy.lock.as_ref().is_some_and(|lock| !lock.methods.is_empty());
        let claims = policies.policies.iter().any(|policy| policy.idempotency.is_some() || by_method(policy));
        let fingerprints = policies.policies.iter().any(|policy| policy.idempotency.is_some());
        let routes = &policies.routes;
        LineNeeds {
            method: access::needs_method(policies)
                || routes.need_method()
                || claims
                || has_part(|part| *part == KeyPart::Method),
            method_of_preflight: access::exempts_preflights(policies),
            authority: routes.need_host() || fingerprints || has_part(|part| *part == KeyPart::Host),
            target: routes.need_path()
                || fingerprints
                || has_part(|part| matches!(part, KeyPart::Path | KeyPart::Query(_))),
            route_name: routes.need_route_name(),
            route_policy: policies.policy_from_route_metadata,
        }
    }
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
        let mut reserved_headers: Vec<String> = Vec::new();
        for name in policies.policies.iter().flat_map(Policy::reserved_headers).flat_map(|name| spellings(&name)) {
            if !reserved_headers.contains(&name) {
                reserved_headers.push(name);
            }
        }
        Engine { line_needs: LineNeeds::of(&policies), policies: Arc::new(policies), reserved_headers }
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
    /// [not needed](Engine::line_needs). Headers count as missing until [`Engine::select_by_headers`].
    pub fn select(&self, method: &str, authority: &str, target: &str) -> Selection {
        self.select_routed(method, authority, target, GatewayRoute::default())
    }

    /// The same where the gateway has routes of its own.
    pub fn select_routed(&self, method: &str, authority: &str, target: &str, gateway: GatewayRoute<'_>) -> Selection {
        Selection::new(&self.policies, (method, authority, target), gateway)
    }

    /// The headers that may lead to another route, in this order; most requests have none to look up.
    pub fn route_headers(&self, selection: &Selection) -> Vec<Attribute> {
        selection.route_headers(&self.policies)
    }

    /// Chooses the route with the values of [`Engine::route_headers`], in their order; `None` for what is missing.
    pub fn select_by_headers(&self, selection: Selection, values: &[Option<Vec<u8>>]) -> Selection {
        selection.with_headers(&self.policies, values)
    }

    /// What the host must look up for the request, in this order.
    pub fn attributes(&self, selection: &Selection) -> &[Attribute] {
        match self.policy(selection) {
            Some(policy) if access::may_be_preflight(&self.policies, selection) => &policy.preflight_attributes,
            Some(policy) => &policy.attributes,
            None => &self.policies.attributes_without_policy,
        }
    }

    /// The policy that applies to the request, if any.
    pub fn policy(&self, selection: &Selection) -> Option<&Policy> {
        self.policies.applied(selection.policy()?)
    }

    /// The key parts of a limit with their values for the request, and the part that stands in for a missing one after
    /// it: whom [`Engine::begin`] takes the request to be from.
    pub fn identity<'l>(
        &self,
        selection: &Selection,
        values: &[Option<Vec<u8>>],
        limit: &'l Limit,
    ) -> Vec<(&'l KeyPart, Option<Vec<u8>>)> {
        let attributes = self.attributes(selection);
        Values { policies: &self.policies, selection, attributes, found: values }.identity(limit)
    }

    /// Whether the request may come to hold something, so that [`Engine::begin_arrived`] needs an owner.
    pub fn may_hold(&self, selection: &Selection) -> bool {
        self.policy(selection).is_some_and(Policy::may_hold)
    }

    /// Request headers that only a gateway may set: hosts take them out of every request.
    pub fn reserved_headers(&self) -> &[String] {
        &self.reserved_headers
    }

    /// Begins the decision of a request that [holds nothing](Engine::may_hold). `values` are those of
    /// [`Engine::attributes`], in their order; `None` for what is missing.
    pub fn begin(&self, selection: &Selection, values: &[Option<Vec<u8>>]) -> Step {
        self.begin_arrived(selection, values, &Arrival::default())
    }

    /// Begins the decision of any request.
    pub fn begin_arrived(&self, selection: &Selection, values: &[Option<Vec<u8>>], arrival: &Arrival) -> Step {
        let attributes = self.attributes(selection);
        let values = Values { policies: &self.policies, selection, attributes, found: values };
        let policy = self.policy(selection);
        if let Some(blocking) = access::blocking(policy, &values) {
            return blocked(blocking, self.policies.enforce);
        }
        if selection.escapes() && self.policies.enforce {
            return rejected(Report::uncounted(None, Outcome::Rejected), answer::malformed_path());
        }
        let (Some(index), Some(policy)) = (selection.policy(), policy) else { return passed(None, Outcome::Allowed) };
        let exempting = access::exempting(policy, &values);
        let is_exempt = exempting.len() == policy.members.len();
        if is_exempt && !policy.claims() {
            return passed(policy.reported(), Outcome::Exempt);
        }
        let counted = match self.count_all(policy, &exempting, &values) {
            Ok(counted) => counted,
            Err(decision) => return Step::Decide(*decision),
        };
        let claims = if self.policies.enforce { admission::asked(policy, &values, arrival) } else { Ok(None) };
        let (asked, body) = match claims {
            Ok(Some((asked, body))) => (Some(asked), body),
            Ok(None) => (policy.may_hold().then(|| Asked::slots(arrival)), BodyWanted::No),
            Err(answer) => return rejected(Report::uncounted(policy.reported(), Outcome::KeyRejected), answer),
        };
        if counted.is_empty() && asked.as_ref().is_none_or(|asked| asked.asks.is_empty()) {
            return passed(policy.reported(), if is_exempt { Outcome::Exempt } else { Outcome::Allowed });
        }
        let call = Call::new(Arc::clone(&self.policies), index, counted, asked.map(Box::new));
        match body {
            _ if arrival.owner.is_none() && policy.may_hold() => call.resume(Err(StoreFailure::NotSent)),
            BodyWanted::No => Step::Call(call),
            BodyWanted::UpTo(bytes_max) => {
                let hold = policy.idempotency.as_deref().and_then(|rules| hold_limit::count(rules, &values));
                let need = NeedBody { call, bytes_max };
                match hold {
                    Some(hold) => Step::Local(LocalCall::hold(need, hold)),
                    None => Step::NeedBody(need),
                }
            }
        }
    }

    /// The limits that count the request, or its end when one of them cannot.
    fn count_all(
        &self,
        policy: &Policy,
        exempting: &[usize],
        values: &Values<'_>,
    ) -> Result<Vec<Counted>, Box<Decision>> {
        let mut counted = Vec::with_capacity(policy.limits.len());
        let limits = policy.limits.iter().enumerate().filter(|(_, limit)| !exempting.contains(&limit.id.policy));
        for (position, limit) in limits {
            match count(position, limit, values) {
                Ok(one) => counted.extend(one),
                // A limit that only measures never turns a request away.
                Err(_) if !limit.enforce => {}
                Err(answer) => return Err(Box::new(Decision::new(answer, Report::rejected(limit.id)))),
            }
        }
        Ok(counted)
    }
}

/// A header's name with each of its hyphens or an underscore in its place: servers that pass headers as variables (CGI,
/// WSGI, FastCGI) take all of them for one.
fn spellings(name: &str) -> Vec<String> {
    name.split('-').fold(Vec::new(), |begun: Vec<String>, word| match begun.is_empty() {
        true => vec![word.to_owned()],
        false => begun.iter().flat_map(|begun| [format!("{begun}-{word}"), format!("{begun}_{word}")]).collect(),
    })
}

/// How the limit counts the request: not at all, or under which key and at what cost; or the answer when it cannot.
fn count(position: usize, limit: &Limit, values: &Values<'_>) -> Result<Option<Counted>, Action> {
    let store_key = match values.store_key(limit) {
        Ok(store_key) => store_key,
        Err(part) => return answer::lacking(part, &limit.on_missing_key).map_or(Ok(None), Err),
    };
    let cost = match values.cost(limit) {
        Ok(cost) => cost,
        Err(NoNumber) if !limit.enforce => limit.cost.fallback(),
        Err(NoNumber) => return Err(answer::illegible_cost(&limit.cost)),
    };
    let override_index = values.override_index(limit);
    Ok(Some(Counted { limit: position, override_index, cost, store_key }))
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

fn rejected(report: Report, answer: Action) -> Step {
    Step::Decide(Decision::new(answer, report))
}

#[cfg(test)]
mod tests {
    use super::spellings;

    #[test]
    fn a_name_is_known_by_every_spelling_that_a_server_may_take_for_it() {
        assert_eq!(spellings("fence"), ["fence"]);
        assert_eq!(spellings("fencing-token"), ["fencing-token", "fencing_token"]);
        assert_eq!(spellings("x-a-b"), ["x-a-b", "x-a_b", "x_a-b", "x_a_b"]);
    }
}
