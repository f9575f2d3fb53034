//! An explanation for people: sections with aligned names.

use std::fmt::Write;

use super::answers::{Answers, Seen};
use super::claims::AppliedClaim;
use super::routes::{By, Chosen};
use super::{AppliedLimit, Explanation, IdentityPart};
use crate::style::{self, paint};

/// The whole explanation.
pub fn described(explanation: &Explanation) -> String {
    let mut text = heading("request");
    let request = &explanation.request;
    let host = if request.host.is_empty() { "(none)" } else { &request.host };
    for (name, value) in [("method", request.method.as_str()), ("host", host), ("path", &request.path)] {
        row(&mut text, name, value);
    }
    describe_route(&mut text, &explanation.route);
    match &explanation.policy {
        None => text.push_str(&format!("{}  none: unlimited\n", heading("policy"))),
        Some(policy) => {
            text.push_str(&heading(&format!("policy {}", policy.name)));
            policy.limits.iter().for_each(|limit| describe_limit(&mut text, limit));
            policy.claims.iter().for_each(|claim| describe_claim(&mut text, claim));
        }
    }
    describe_answers(&mut text, &explanation.answers);
    text
}

fn heading(text: &str) -> String {
    format!("{}\n", paint(style::STRONG, text))
}

fn row(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {} {value}", paint(style::FAINT, format!("{name:<10}")));
}

const OTHERS_SHOWN_MAX: usize = 10;

fn describe_route(text: &mut String, chosen: &Chosen) {
    text.push_str(&heading("route"));
    let by = match (&chosen.route, chosen.by) {
        (Some(route), _) => format!("{} {}", route.place, route.matches),
        (None, By::GatewayRoute) => "the gateway's own route names the policy".into(),
        (None, By::UnknownPolicy) => "the gateway's own route names a policy that the file does not have".into(),
        (None, By::Route | By::Default) => "no route matches: the default policy".into(),
    };
    let _ = writeln!(text, "  {by}");
    for other in chosen.others.iter().take(OTHERS_SHOWN_MAX) {
        let line = format!("not {} {}: {}", other.route.place, other.route.matches, other.why);
        let _ = writeln!(text, "  {}", paint(style::FAINT, line));
    }
    if let Some(more) = chosen.others.len().checked_sub(OTHERS_SHOWN_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "  {}", paint(style::FAINT, format!("nor {more} more")));
    }
}

fn describe_limit(text: &mut String, limit: &AppliedLimit) {
    let mut remarks = String::new();
    if let Some(cost) = limit.cost.filter(|cost| *cost > 1) {
        remarks.push_str(&format!(", costs {cost}"));
    }
    if let Some(place) = &limit.overridden_by {
        remarks.push_str(&format!(", by {place}"));
    }
    if !limit.enforced {
        remarks.push_str(", only measured");
    }
    let name = paint(style::STRONG, &limit.name);
    let _ = writeln!(text, "  limit {name}: {}, {}{remarks}", limit.algorithm, limit.quota);
    for part in &limit.identity {
        row(text, "  identity", &described_part(part));
    }
    match (&limit.store_key, limit.missing) {
        (Some(key), _) => row(text, "  counted", key),
        (None, Some("reject")) => row(text, "  rejected", "a part of the identity is missing"),
        (None, Some(_)) => row(text, "  skipped", "a part of the identity is missing"),
        (None, None) => row(text, "  skipped", "the request is answered or exempt before this limit counts"),
    }
}

fn describe_claim(text: &mut String, claim: &AppliedClaim) {
    let _ = writeln!(text, "  {} by {}", paint(style::STRONG, claim.kind), claim.by.join(", "));
    match (&claim.store_key, claim.unclaimed) {
        (Some(key), _) => row(text, "  claims", key),
        (None, Some(why)) => row(text, "  skipped", why),
        (None, None) => {}
    }
}

fn described_part(part: &IdentityPart) -> String {
    match (&part.value, part.present) {
        (Some(value), _) => format!("{} = {value:?}", part.part),
        (None, true) => format!("{} (present; --show-values shows it)", part.part),
        (None, false) => format!("{} {}", part.part, paint(style::WARNING, "(missing)")),
    }
}

fn describe_answers(text: &mut String, answers: &Answers) {
    text.push_str(&heading("first request"));
    describe_seen(text, &answers.first);
    if let Some(denied) = &answers.denied {
        text.push_str(&heading(&format!("request {} of the same instant", denied.request)));
        describe_seen(text, &denied.seen);
    }
    if let Some(seen) = &answers.on_store_failure {
        text.push_str(&heading("when the store fails"));
        describe_seen(text, seen);
    }
}

fn describe_seen(text: &mut String, seen: &Seen) {
    match seen {
        Seen::LimitLocally => text.push_str("  each gateway limits by itself\n"),
        Seen::Forward { outcome, headers } => {
            let remark = if *outcome == "allowed" { String::new() } else { format!(" ({outcome})") };
            let _ = writeln!(text, "  passes{remark}");
            headers.iter().for_each(|(name, value)| describe_header(text, name, value));
        }
        Seen::Answer { outcome, status, headers, body } => {
            let _ = writeln!(text, "  answered {status} ({outcome})");
            headers.iter().for_each(|(name, value)| describe_header(text, name, value));
            let _ = writeln!(text, "    {}", paint(style::FAINT, body));
        }
    }
}

fn describe_header(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "    {}: {value}", paint(style::FAINT, name));
}
