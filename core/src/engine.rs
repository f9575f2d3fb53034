//! From a request to a decision, step by step: the host obeys each [`Step`] and resumes with what it got.

use std::sync::Arc;

use crate::answer;
use crate::call::Call;
use crate::decision::{Action, DecidedBy, Decision, Outcome, Report};
use crate::identity::{Attribute, KeyPart};
use crate::local_call::LocalCall;
use crate::policy::{MissingKey, Policy, PolicySet, Rejection};
use crate::selection::{GatewayRoute, Selection};
use crate::values::Values;

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

/// What the policies need of a request's first line, its authority and the gateway's route; the host need not look up the
/// rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineNeeds {
    /// The method.
    pub method: bool,
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
        let has_part = |is_wanted: fn(&KeyPart) -> bool| {
            policies.policies.iter().flat_map(|policy| &policy.limits).any(|limit| limit.parts().any(is_wanted))
        };
        let routes = &policies.routes;
        LineNeeds {
            method: routes.need_method() || has_part(|part| *part == KeyPart::Method),
            authority: routes.need_host() || has_part(|part| *part == KeyPart::Host),
            target: routes.need_path() || has_part(|part| matches!(part, KeyPart::Path | KeyPart::Query(_))),
            route_name: routes.need_route_name(),
            route_policy: policies.policy_from_route_metadata,
        }
    }
}

/// A limit that counts this request, and the store key it counts under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Index of the limit in its policy.
    pub limit: usize,
    /// Its key in the store.
    pub store_key: String,
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
        self.policy(selection).map_or(&[], |policy| &policy.attributes)
    }

    fn policy(&self, selection: &Selection) -> Option<&Policy> {
        self.policies.policies.get(selection.policy()?)
    }

    /// Begins the decision. `values` are those of [`Engine::attributes`], in their order; `None` for what is missing.
    pub fn begin(&self, selection: &Selection, values: &[Option<Vec<u8>>]) -> Step {
        if selection.escapes() {
            return rejected(None, None, answer::malformed_path());
        }
        let (Some(index), Some(policy)) = (selection.policy(), self.policy(selection)) else {
            return unlimited(None);
        };
        let values = Values { policies: &self.policies, selection, attributes: &policy.attributes, found: values };
        let mut counted = Vec::with_capacity(policy.limits.len());
        for (position, limit) in policy.limits.iter().enumerate() {
            match (values.store_key(limit), &limit.on_missing_key) {
                (Ok(store_key), _) => counted.push(Counted { limit: position, store_key }),
                (Err(_), MissingKey::Skip) => {}
                // A limit that only measures never turns a request away.
                (Err(_), _) if !limit.enforce => {}
                (Err(part), MissingKey::Reject(rejection)) => {
                    return rejected(Some(index), Some(position), answer::missing_key(part, *rejection));
                }
                (Err(part), MissingKey::Fallback(_)) => {
                    return rejected(Some(index), Some(position), answer::missing_key(part, Rejection::BadRequest));
                }
            }
        }
        if counted.is_empty() {
            return unlimited(Some(index));
        }
        Step::Call(Call::new(Arc::clone(&self.policies), index, counted))
    }
}

fn unlimited(policy: Option<usize>) -> Step {
    let action = Action::Forward { response_headers: Vec::new() };
    Step::Decide(Decision { action, report: Report::unlimited(policy) })
}

fn rejected(policy: Option<usize>, limit: Option<usize>, action: Action) -> Step {
    let report =
        Report { policy, limit, outcome: Outcome::Rejected, decided_by: DecidedBy::Policy, shadow_denials: Vec::new() };
    Step::Decide(Decision { action, report })
}
