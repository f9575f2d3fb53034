//! `lockkeeper explain`: what a gateway makes of one request, decided by the very code that runs in the gateway.

mod answers;
mod claims;
mod routes;
mod text;

use anyhow::Result;
use lockkeeper_core::engine::{Counted, Engine, Step};
use lockkeeper_core::policy::{FailureMode, Limit, MissingKey, Policy};
use lockkeeper_core::selection::Selection;
use serde::Serialize;

use crate::Ending;
use crate::document::Document;
use crate::request::{Request, RequestOptions};
use crate::style;
use answers::Answers;
use claims::AppliedClaim;
use routes::Chosen;

/// What to explain, and how to say it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// A policy file or plugin configuration; `-` reads standard input
    file: String,
    #[command(flatten)]
    request: RequestOptions,
    /// Show the values of identity parts, which may be secrets
    #[arg(long)]
    show_values: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What a gateway makes of one request.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The request as routes see it.
    pub request: Normalised,
    /// Which route was chosen, and why not others.
    pub route: Chosen,
    /// The policy, when one applies.
    pub policy: Option<Applied>,
    /// What the client may see.
    pub answers: Answers,
}

/// The request as routes see it.
#[derive(Debug, Serialize)]
pub struct Normalised {
    /// The method.
    pub method: String,
    /// The normalised host, empty when missing.
    pub host: String,
    /// The normalised path.
    pub path: String,
}

/// The policy of the request.
#[derive(Debug, Serialize)]
pub struct Applied {
    /// Its name; names joined by `+` where several policies are combined.
    pub name: String,
    /// The name that metrics and access logs show when no limit denies.
    pub logged_as: Option<String>,
    /// `local`, `allow` or `deny`: what happens when the store cannot decide.
    pub on_store_failure: &'static str,
    /// Its limits, in the order of the file.
    pub limits: Vec<AppliedLimit>,
    /// What its requests claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<AppliedClaim>,
}

/// A limit of the policy, and whether it counts the request.
#[derive(Debug, Serialize)]
pub struct AppliedLimit {
    /// Its name, with its policy's where two of one name apply.
    pub name: String,
    /// Its algorithm.
    pub algorithm: &'static str,
    /// Its quota as the `RateLimit-Policy` field shows it.
    pub quota: String,
    /// The place of the override that gives other numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<String>,
    /// Units that the request spends; none when the limit does not count it.
    pub cost: Option<u64>,
    /// `false`: it only measures.
    pub enforced: bool,
    /// Whose request this is; a part that stands in for a missing one follows it.
    pub identity: Vec<IdentityPart>,
    /// The key that counts the request; none when the limit does not apply.
    pub store_key: Option<String>,
    /// `reject` or `skip`, when a part of the identity is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<&'static str>,
}

/// One part of an identity.
#[derive(Debug, Serialize)]
pub struct IdentityPart {
    /// As the policy file writes it.
    pub part: String,
    /// Whether the request has it.
    pub present: bool,
    /// Its value, when values may be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Whether identity parts, which may be secrets, are shown with their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Only whether they are there.
    Hidden,
    /// As they are.
    Shown,
}

/// Explains one request.
///
/// # Errors
/// When the file cannot be read or the request is not written as one.
pub fn run(options: &Options) -> Result<Ending> {
    let request = Request::new(&options.request)?;
    let Some(policies) = Document::read(&options.file)?.load_or_report() else { return Ok(Ending::Objections) };
    let values = if options.show_values { Values::Shown } else { Values::Hidden };
    let explanation = explain(&Engine::new(policies), &request, values);
    match options.json {
        true => style::print(&format!("{}\n", serde_json::to_string_pretty(&explanation)?)),
        false => style::print(&text::described(&explanation)),
    }
    Ok(Ending::Success)
}

/// What a gateway with this engine makes of the request.
pub fn explain(engine: &Engine, request: &Request, shown: Values) -> Explanation {
    let selection = request.select(engine);
    let values = request.values(engine, &selection);
    let begin = || request.begin(engine, &selection);
    let (counted, asks) = match begin() {
        Step::Call(call) => (call.counted().to_vec(), call.asks().to_vec()),
        _ => (Vec::new(), Vec::new()),
    };
    let applied = engine.policy(&selection).map(|policy| {
        let limits = policy.limits.iter().enumerate();
        let limits = limits.map(|(index, limit)| {
            let identity = identity(engine, &selection, &values, limit, shown);
            applied_limit(engine, limit, identity, counted.iter().find(|one| one.limit == index))
        });
        applied(engine, policy, limits.collect(), claims::of(policy, &request.method, &asks))
    });
    Explanation {
        request: Normalised {
            method: request.method.clone(),
            host: selection.host().to_owned(),
            path: selection.path().to_owned(),
        },
        route: Chosen::of(engine, request, &selection),
        policy: applied,
        answers: Answers::of(begin, &engine.policies().answers, request.header("origin").as_deref()),
    }
}

fn applied(engine: &Engine, policy: &Policy, limits: Vec<AppliedLimit>, claims: Vec<AppliedClaim>) -> Applied {
    let on_store_failure = match policy.limits_on_store_failure {
        FailureMode::Allow => "allow",
        FailureMode::Deny => "deny",
        FailureMode::Local => "local",
    };
    let reported = policy.reported().and_then(|index| engine.policies().policies.get(index));
    Applied {
        name: policy.name.clone(),
        logged_as: reported.map(|policy| policy.name.clone()),
        on_store_failure,
        limits,
        claims,
    }
}

fn applied_limit(
    engine: &Engine,
    limit: &Limit,
    identity: Vec<IdentityPart>,
    counted: Option<&Counted>,
) -> AppliedLimit {
    let is_missing = counted.is_none() && identity.iter().any(|part| !part.present);
    let missing = match limit.on_missing_key {
        MissingKey::Skip => "skip",
        _ if !limit.enforce => "skip",
        MissingKey::Reject(_) | MissingKey::Fallback(_) => "reject",
    };
    let override_index = counted.and_then(|one| one.override_index);
    let grant = limit.grant(override_index);
    let policy = engine.policies().policies.get(limit.id.policy).map_or("", |policy| &policy.name);
    let place = |index| format!("$.policies.{policy}.{}.overrides[{index}]", limit.member());
    AppliedLimit {
        name: limit.label.clone(),
        algorithm: grant.algorithm.name(),
        quota: format!("\"{}\"{}", limit.label, grant.quota),
        overridden_by: override_index.map(place),
        cost: counted.map(|one| one.cost),
        enforced: limit.enforce,
        identity,
        store_key: counted.map(|one| one.store_key.clone()),
        missing: is_missing.then_some(missing),
    }
}

fn identity(
    engine: &Engine,
    selection: &Selection,
    values: &[Option<Vec<u8>>],
    limit: &Limit,
    shown: Values,
) -> Vec<IdentityPart> {
    let parts = engine.identity(selection, values, limit).into_iter();
    parts
        .map(|(part, value)| IdentityPart {
            part: part.text(),
            present: value.is_some(),
            value: value.filter(|_| shown == Values::Shown).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        })
        .collect()
}
