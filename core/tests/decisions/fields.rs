//! The shapes of the rate-limit fields, and what completes a response: spread, origin, time of day.

use lockkeeper_core::completion::{Circumstances, Needs};
use lockkeeper_core::decision::{Action, Decision, Header};
use lockkeeper_core::engine::Engine;

use crate::support::*;

const ADMITS: (bool, u64, u64, u64) = (true, 5, 1_200_000, 0);
const DENIES: (bool, u64, u64, u64) = (false, 0, 30_000_000, 47_660_000);

fn file(more: &str) -> Engine {
    let limits = [limit("a"), limit("b").replace("10", "20"), shadow("s")].join(",");
    engine(&format!(r#"{{"version": 1{more}, "policies": {{"p": {{"limits": [{limits}]}}}}, "default_policy": "p"}}"#))
}

fn mode(mode: &str) -> Engine {
    file(&format!(r#", "rate_limit_headers": "{mode}""#))
}

fn complete(engine: &Engine, mut decision: Decision, circumstances: Circumstances<'_>) -> Vec<Header> {
    decision.complete(&engine.policies().answers, circumstances);
    match decision.action {
        Action::Forward { response_headers } => response_headers,
        Action::Answer(answer) => answer.headers,
    }
}

#[test]
fn each_mode_has_its_wire_shape() {
    let rows = [
        ("rt", r#""a";r=5;t=2, "b";r=5;t=2"#),
        ("aw", r#""a";a=5;w=2, "b";a=5;w=2"#),
        ("both", r#""a";r=5;t=2;a=5;w=2, "b";r=5;t=2;a=5;w=2"#),
    ];
    for (name, state) in rows {
        let engine = mode(name);
        let decision = decided(&engine, &[], &[ADMITS, ADMITS, DENIES]);
        assert!(!decision.needs(&engine.policies().answers).unix_s);
        let headers = complete(&engine, decision, Circumstances::default());
        assert_eq!(header(&headers, "ratelimit"), Some(state), "{name}");
        assert_eq!(header(&headers, "ratelimit-policy"), Some(r#""a";q=10;w=60, "b";q=20;w=60"#), "{name}");
        assert_eq!(headers.len(), 2, "{name}");
    }
}

#[test]
fn slots_are_told_with_their_unit_and_without_times() {
    let now = Circumstances { unix_s: 1_700_000_000, ..Circumstances::default() };
    let slots = r#""concurrency": {"limit": 9, "key": ["method"]}"#;
    let told = |mode: &str, verdict| {
        let file = format!(
            r#"{{"version": 1, "rate_limit_headers": "{mode}", "policies": {{"p": {{{slots}}}}}, "default_policy": "p"}}"#
        );
        let engine = engine(&file);
        complete(&engine, decided(&engine, &[], &[verdict]), now)
    };
    for (mode, state) in [("rt", "r=5"), ("aw", "a=5"), ("both", "r=5;a=5")] {
        let headers = told(mode, ADMITS);
        assert_eq!(header(&headers, "ratelimit"), Some(&*format!(r#""concurrency";{state}"#)));
        let quota = r#""concurrency";q=9;qu="concurrent-requests""#;
        assert_eq!(header(&headers, "ratelimit-policy"), Some(quota), "{mode}");
    }
    let denied = (false, 0, 30_000_000, 1_000_000);
    assert_eq!(header(&told("rt", denied), "retry-after"), Some("1"));
    for (verdict, reset) in [(ADMITS, "1700000000"), (denied, "1700000001")] {
        assert_eq!(header(&told("legacy", verdict), "x-ratelimit-reset"), Some(reset));
    }
}

#[test]
fn hdr_01_legacy_fields_tell_one_limit_and_a_unix_time() {
    let engine = mode("legacy");
    let now = Circumstances { unix_s: 1_700_000_000, ..Circumstances::default() };
    let rows = [
        ([ADMITS, (true, 4, 500_000, 0), DENIES], ["20", "4", "1700000001"]),
        ([ADMITS, ADMITS, DENIES], ["10", "5", "1700000002"]),
        ([(true, 0, 9_000_000, 0), ADMITS, ADMITS], ["10", "0", "1700000009"]),
        ([(true, 0, 9_000_000, 0), DENIES, ADMITS], ["20", "0", "1700000048"]),
    ];
    for (verdicts, expected) in rows {
        let decision = decided(&engine, &[], &verdicts);
        assert!(decision.needs(&engine.policies().answers).unix_s);
        let headers = complete(&engine, decision, now);
        let fields = ["limit", "remaining", "reset"].map(|name| header(&headers, &format!("x-ratelimit-{name}")));
        assert_eq!(fields, expected.map(Some), "{verdicts:?}");
        assert_eq!(header(&headers, "ratelimit"), None);
    }
}

#[test]
fn hdr_02_jitter_only_ever_adds_and_stays_within_its_bound() {
    let engine = file(r#", "retry_after_jitter": "5s""#);
    let retry_after = |random: u64| {
        let decision = decided(&engine, &[], &[ADMITS, DENIES, ADMITS]);
        assert!(decision.needs(&engine.policies().answers).random);
        let headers = complete(&engine, decision, Circumstances { random, ..Circumstances::default() });
        header(&headers, "retry-after").expect("Retry-After").parse::<u64>().expect("whole seconds")
    };
    let mut seen: Vec<u64> =
        (0..2_000).map(|step: u64| retry_after(step.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [48, 49, 50, 51, 52, 53]);
    assert_eq!([retry_after(0), retry_after(1), retry_after(5_000_000), retry_after(5_000_001)], [48, 49, 53, 48]);
    let admitted = decided(&engine, &[], &[ADMITS; 3]);
    assert!(!admitted.needs(&engine.policies().answers).random);
}

#[test]
fn without_jitter_and_cors_nothing_is_needed_and_nothing_changes() {
    let engine = file("");
    let decision = decided(&engine, &[], &[DENIES; 3]);
    let none = Needs { random: false, unix_s: false, origin: false };
    assert_eq!(decision.needs(&engine.policies().answers), none);
    let before = answer(&decision).headers.clone();
    let circumstances = Circumstances { random: u64::MAX, unix_s: 9, origin: Some(b"https://a.example") };
    assert_eq!(complete(&engine, decision, circumstances), before);
}

/// The names that start with `access-control-` or are `vary`, as a denied request with that origin gets them.
fn cors(more: &str, origin: Option<&[u8]>) -> Vec<String> {
    let engine = file(more);
    let decision = decided(&engine, &[], &[DENIES; 3]);
    assert!(decision.needs(&engine.policies().answers).origin);
    let headers = complete(&engine, decision, Circumstances { origin, ..Circumstances::default() });
    let ours = headers.into_iter().filter(|(name, _)| name.starts_with("access-control-") || name == "vary");
    ours.map(|(name, value)| format!("{name}: {value}")).collect()
}

#[test]
fn pro_02_scripts_of_other_origins_can_read_a_denial() {
    const APP: Option<&[u8]> = Some(b"https://app.example.com");
    let these = r#", "cors": {"allow_origins": ["https://app.example.com", "http://localhost:3000"]}"#;
    let exposed = "access-control-expose-headers: retry-after, ratelimit, ratelimit-policy";
    let allowed = "access-control-allow-origin: https://app.example.com";
    assert_eq!(cors(r#", "cors": {}"#, APP), [exposed]);
    assert_eq!(cors(r#", "cors": {}"#, None), [""; 0]);
    assert_eq!(cors(r#", "cors": {"allow_origins": ["*"]}"#, APP), [exposed, "access-control-allow-origin: *"]);
    assert_eq!(cors(these, APP), ["vary: origin", exposed, allowed]);
    assert_eq!(cors(these, None), ["vary: origin"]);
    for stranger in [&b"https://app.example.com.evil.org"[..], b"https://app.example.com:8443", b"null", b"\xff"] {
        assert!(!cors(these, Some(stranger)).iter().any(|field| field.contains("allow-origin")), "{stranger:?}");
    }
    let credentials = these.replace("]}", r#"], "allow_credentials": true}"#);
    assert_eq!(cors(&credentials, APP), ["vary: origin", exposed, allowed, "access-control-allow-credentials: true"]);
    let custom = r#", "cors": {}, "denied": {"headers": {"X-Reason": "slow down"}}"#;
    assert_eq!(cors(custom, APP), [format!("{exposed}, x-reason")]);
}
