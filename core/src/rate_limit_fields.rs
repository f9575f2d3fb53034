//! The fields that tell clients what is left: `RateLimit` and `RateLimit-Policy` in the shapes of
//! draft-ietf-httpapi-ratelimit-headers, or the older `X-RateLimit-*`.

use crate::algorithm::Verdict;
use crate::decision::{Header, LimitVerdict};
use crate::policy::{HeaderMode, Limit, Policy};

/// What is told, apart from the time that only the host's clock knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitFields {
    /// The fields.
    pub headers: Vec<Header>,
    /// Seconds until [`LEGACY_RESET`]; the host's clock makes a time of them.
    pub reset_in_s: Option<u64>,
}

/// Room for a field as it mostly is.
const FIELD_BYTES: usize = 64;

/// `x-ratelimit-reset`: a Unix time in seconds, rounded up.
pub const LEGACY_RESET: &str = "x-ratelimit-reset";

/// Whether a field may occur once only, so that an upstream's own goes before ours.
pub fn is_single_valued(name: &str) -> bool {
    name.starts_with("x-ratelimit-")
}

/// The fields for what the enforced limits said; those that only measure are not shown to clients.
pub fn fields(mode: HeaderMode, policy: &Policy, verdicts: &[LimitVerdict]) -> RateLimitFields {
    let limits = verdicts.iter().filter_map(|one| Some((policy.limits.get(one.limit)?, one)));
    of_shown(mode, &mut limits.filter(|(limit, _)| limit.enforce))
}

/// The fields for what one limit said.
pub(crate) fn fields_of(mode: HeaderMode, limit: &Limit, verdict: Verdict) -> RateLimitFields {
    let said = LimitVerdict { limit: limit.id.limit, override_index: None, verdict };
    of_shown(mode, &mut std::iter::once((limit, &said)))
}

fn of_shown<'a>(mode: HeaderMode, shown: &mut dyn Iterator<Item = Shown<'a>>) -> RateLimitFields {
    let mut shown = shown.peekable();
    match mode {
        _ if shown.peek().is_none() => RateLimitFields::default(),
        HeaderMode::Off => RateLimitFields::default(),
        HeaderMode::Legacy => legacy(&mut shown),
        HeaderMode::Rt | HeaderMode::Aw | HeaderMode::Both => structured(mode, &mut shown),
    }
}

type Shown<'a> = (&'a Limit, &'a LimitVerdict);

fn structured<'a>(mode: HeaderMode, shown: &mut dyn Iterator<Item = Shown<'a>>) -> RateLimitFields {
    let (mut state, mut quota) = (String::with_capacity(FIELD_BYTES), String::with_capacity(FIELD_BYTES));
    for (limit, one) in shown {
        push_item(&limit.label, &mut state);
        push_state(mode, limit, one.verdict, &mut state);
        push_item(&limit.label, &mut quota);
        quota.push_str(&limit.grant(one.override_index).quota);
    }
    let headers = vec![("ratelimit".into(), state), ("ratelimit-policy".into(), quota)];
    RateLimitFields { headers, reset_in_s: None }
}

fn push_item(label: &str, field: &mut String) {
    field.push_str(if field.is_empty() { "\"" } else { ", \"" });
    field.push_str(label);
    field.push('"');
}

/// What is left and until when. Slots come back when requests end, which nobody can tell beforehand.
fn push_state(mode: HeaderMode, limit: &Limit, verdict: Verdict, field: &mut String) {
    let (left, seconds) = (verdict.remaining, whole_seconds(verdict.reset_us));
    let names: &[(&str, u64)] = match (mode, limit.base.algorithm.is_held()) {
        (HeaderMode::Aw, true) => &[(";a=", left)],
        (HeaderMode::Both, true) => &[(";r=", left), (";a=", left)],
        (HeaderMode::Rt | HeaderMode::Legacy | HeaderMode::Off, true) => &[(";r=", left)],
        (HeaderMode::Aw, false) => &[(";a=", left), (";w=", seconds)],
        (HeaderMode::Both, false) => &[(";r=", left), (";t=", seconds), (";a=", left), (";w=", seconds)],
        (HeaderMode::Rt | HeaderMode::Legacy | HeaderMode::Off, false) => &[(";r=", left), (";t=", seconds)],
    };
    for (name, number) in names {
        field.push_str(name);
        field.push_str(itoa::Buffer::new().format(*number));
    }
}

/// One limit has to stand for all: the denying one with the longest wait, else the one with the least left.
fn legacy<'a>(shown: &mut dyn Iterator<Item = Shown<'a>>) -> RateLimitFields {
    let rank =
        |verdict: Verdict| (verdict.admitted, if verdict.admitted { verdict.remaining } else { !verdict.retry_us });
    let told = shown.min_by_key(|(_, one)| rank(one.verdict));
    let Some((limit, LimitVerdict { verdict, override_index, .. })) = told else { return RateLimitFields::default() };
    let algorithm = &limit.grant(*override_index).algorithm;
    let reset_us = if algorithm.is_held() { verdict.retry_us } else { verdict.reset_us.max(verdict.retry_us) };
    RateLimitFields {
        headers: vec![
            ("x-ratelimit-limit".into(), algorithm.allowance().to_string()),
            ("x-ratelimit-remaining".into(), verdict.remaining.to_string()),
        ],
        reset_in_s: Some(whole_seconds(reset_us)),
    }
}

/// Rounded up, so that waiting this long is long enough (RFC 9110 §10.2.3 knows no fractions).
pub(crate) fn whole_seconds(us: u64) -> u64 {
    us.div_ceil(1_000_000)
}
