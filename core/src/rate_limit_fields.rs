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

/// `x-ratelimit-reset`: a Unix time in seconds, rounded up.
pub const LEGACY_RESET: &str = "x-ratelimit-reset";

/// Whether a field may occur once only, so that an upstream's own goes before ours.
pub fn is_single_valued(name: &str) -> bool {
    name.starts_with("x-ratelimit-")
}

/// The fields for what the enforced limits said; those that only measure are not shown to clients.
pub fn fields(mode: HeaderMode, policy: &Policy, verdicts: &[LimitVerdict]) -> RateLimitFields {
    let limits = verdicts.iter().filter_map(|one| Some((policy.limits.get(one.limit)?, one)));
    let shown: Vec<Shown<'_>> = limits.filter(|(limit, _)| limit.enforce).collect();
    of_shown(mode, &shown)
}

/// The fields for what one limit said.
pub(crate) fn fields_of(mode: HeaderMode, limit: &Limit, verdict: Verdict) -> RateLimitFields {
    of_shown(mode, &[(limit, &LimitVerdict { limit: limit.id.limit, override_index: None, verdict })])
}

fn of_shown(mode: HeaderMode, shown: &[Shown<'_>]) -> RateLimitFields {
    if shown.is_empty() {
        return RateLimitFields::default();
    }
    match mode {
        HeaderMode::Off => RateLimitFields::default(),
        HeaderMode::Legacy => legacy(shown),
        HeaderMode::Rt | HeaderMode::Aw | HeaderMode::Both => structured(mode, shown),
    }
}

type Shown<'a> = (&'a Limit, &'a LimitVerdict);

fn structured(mode: HeaderMode, shown: &[Shown<'_>]) -> RateLimitFields {
    let state = shown.iter().map(|(limit, one)| {
        let (left, seconds) = (one.verdict.remaining, whole_seconds(one.verdict.reset_us));
        let parameters = match mode {
            // Slots come back when requests end, which nobody can tell beforehand.
            HeaderMode::Aw if limit.base.algorithm.is_held() => format!("a={left}"),
            HeaderMode::Both if limit.base.algorithm.is_held() => format!("r={left};a={left}"),
            _ if limit.base.algorithm.is_held() => format!("r={left}"),
            HeaderMode::Aw => format!("a={left};w={seconds}"),
            HeaderMode::Both => format!("r={left};t={seconds};a={left};w={seconds}"),
            HeaderMode::Rt | HeaderMode::Legacy | HeaderMode::Off => format!("r={left};t={seconds}"),
        };
        format!("\"{}\";{parameters}", limit.label)
    });
    let quota =
        shown.iter().map(|(limit, one)| format!("\"{}\"{}", limit.label, limit.grant(one.override_index).quota));
    let headers = vec![("ratelimit".into(), joined(state)), ("ratelimit-policy".into(), joined(quota))];
    RateLimitFields { headers, reset_in_s: None }
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// One limit has to stand for all: the denying one with the longest wait, else the one with the least left.
fn legacy(shown: &[Shown<'_>]) -> RateLimitFields {
    let denying = shown.iter().rev().filter(|(_, one)| !one.verdict.admitted);
    let told = denying
        .max_by_key(|(_, one)| one.verdict.retry_us)
        .or_else(|| shown.iter().min_by_key(|(_, one)| one.verdict.remaining));
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
