//! 64 KiB of every shape: what handles it takes a time in proportion, so no client and no file can hold a worker up.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use lockkeeper_core::engine::Engine;
use lockkeeper_core::identity::AddressPrefixes;
use lockkeeper_core::normalize;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::resp::Decoder;

const LENGTH: usize = 64 * 1024;
/// The most processor time that an unoptimised build may take for one. Work that grows with the square of the length
/// would take a hundred times as long.
const BOUND: Duration = Duration::from_secs(1);

const SHAPES: [&str; 32] = [
    "a", "A", "/", "//", "/.", "../", "/../", "%", "%2", "%2e", "%2f%2e", "%25", "?", "#", "a/", "a/../", ".", ":",
    "[", "]", "@", "::", "1.", "1:", "*", " ", "\0", "é", "\\", "\"", "{", "http://",
];
const JSON_SHAPES: [&str; 16] = [
    "[",
    "{\"a\":",
    "[],",
    "\"a\":1,",
    "\"version\":1,",
    "{},",
    "\"",
    "\\\"",
    "1",
    "-",
    "1e9,",
    "null,",
    " ",
    "\"é\",",
    "{\"limits\":[]},",
    "\"x\":{},",
];

fn within_bound(what: &str, run: impl FnOnce()) {
    let start = busy();
    run();
    let taken = busy().saturating_sub(start);
    assert!(taken <= BOUND, "{what}: {taken:?}, at most {BOUND:?} are allowed");
}

/// The time that this thread has run, which other work on the machine does not change; elsewhere than on Linux, a clock.
fn busy() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let on_processor_ns = schedule.split(' ').next().and_then(|ns| ns.parse().ok());
    on_processor_ns.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

fn long(shape: &str) -> String {
    shape.repeat(LENGTH / shape.len())
}

#[test]
fn a_long_value_of_any_shape_is_handled_in_time() {
    let policy = r#"{ "version": 1, "default_policy": "p", "policies": { "p": { "limits": [ { "name": "l",
        "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["header:x", "path", "host", "method"] } ] } },
        "routes": [ { "match": { "host": "*.example.com", "path": "/v1/*" }, "policy": "p" } ] }"#;
    let engine = Engine::new(PolicySet::from_json(policy.as_bytes(), LoadOptions::default()).expect("it loads"));
    for shape in SHAPES {
        let text = long(shape);
        within_bound(&format!("the path {shape:?}…"), || drop(normalize::path(&text)));
        within_bound(&format!("the host {shape:?}…"), || drop(normalize::host(&text)));
        within_bound(&format!("the address {shape:?}…"), || drop(AddressPrefixes::default().network(&text)));
        within_bound(&format!("the request {shape:?}…"), || {
            let selection = engine.select(&text, &text, &text);
            drop(engine.begin(&selection, &[Some(text.clone().into_bytes())]));
        });
        within_bound(&format!("the reply {shape:?}…"), || {
            let mut decoder = Decoder::default();
            decoder.extend(text.as_bytes());
            while let Ok(Some(_)) = decoder.next_reply() {}
        });
    }
}

#[test]
fn a_long_policy_of_any_shape_is_refused_in_time() {
    let frames = [
        ("", ""),
        ("[", "0]"),
        ("{", "\"z\":0}"),
        ("{\"policies\":{", "\"z\":0}}"),
        ("{\"policies\":{\"p\":{\"limits\":[", "0]}}}"),
        ("{\"version\":1,\"policies\":{},\"routes\":[", "0]}"),
        ("{\"namespace\":\"", "\"}"),
        ("{\"policies\":{\"", "\":0}}"),
        (
            "{\"policies\":{\"p\":{\"limits\":[{\"algorithm\":\"token_bucket\",\"capacity\":\"",
            "\",\"refill\":\"\"}]}}}",
        ),
        ("{\"policies\":{\"p\":{\"limits\":[{\"algorithm\":\"token_bucket\",\"refill\":\"", "\"}]}}}"),
        ("{\"policies\":{\"p\":{\"limits\":[{\"algorithm\":\"fixed_window\",\"window\":\"", "\"}]}}}"),
        ("{\"policies\":{\"p\":{\"limits\":[{\"key\":[\"", "\"]}]}}}"),
        ("{\"policies\":{},\"routes\":[{\"match\":{\"path\":\"", "\"}}]}"),
        ("{\"policies\":{},\"routes\":[{\"match\":{\"host\":\"", "\",\"methods\":[\"\"]}}]}"),
    ];
    let shapes = JSON_SHAPES.iter().chain(&SHAPES);
    for (shape, (start, end)) in shapes.flat_map(|shape| frames.map(|frame| (shape, frame))) {
        let text = format!("{start}{}{end}", long(shape));
        within_bound(&format!("{start}{shape}…{end}"), || {
            let errors = PolicySet::from_json(text.as_bytes(), LoadOptions::default()).err();
            assert!(!errors.expect("it is faulty").to_string().is_empty());
        });
    }
}
