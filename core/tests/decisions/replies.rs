//! What goes to the store, and what each kind of reply or failure leads to.

use lockkeeper_core::decision::{DecidedBy, Outcome};
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::policy::LimitId;
use lockkeeper_core::script;
use lockkeeper_core::store::{Refusal, StoreFailure};

use crate::support::*;

#[test]
fn the_command_is_the_script_with_a_key_and_seven_arguments_for_each_limit() {
    let bucket = r#"{"name": "b", "algorithm": "token_bucket", "capacity": 10, "refill": "5/s", "cost": 2, "enforce": false,
        "key": ["header:x"]}"#;
    let engine = engine_of(&format!("{}, {bucket}", limit("w")), "");
    let call = call(begin(&engine, &[Some(b"v")]));
    let words = command(&call, "tag");
    let text = |word: &Vec<u8>| String::from_utf8(word.clone()).expect("ASCII");
    let texts: Vec<String> = words.iter().map(text).collect();
    assert_eq!(texts[..3], ["EVALSHA", script::DECIDE.sha1, "2"]);
    let keys: Vec<&str> = call.counted().iter().map(|counted| counted.store_key.as_str()).collect();
    assert_eq!(texts[3..5], keys);
    assert_eq!(texts[5..].join(" "), "tag window 1 1 10 60000000 0 0 bucket 0 2 10 200000 1 1");
}

#[test]
fn a_script_that_is_not_cached_is_sent_whole_once_with_the_same_arguments() {
    let engine = engine_of(&limit("w"), r#", "limits_on_store_failure": "deny""#);
    let first = call(begin(&engine, &[]));
    let cached = command(&first, "tag");
    let second = call(first.resume(Err(StoreFailure::Refused(Refusal::NoScript))));
    let whole = command(&second, "tag");
    assert_eq!(whole[..2], [b"EVAL".to_vec(), script::DECIDE.text().as_bytes().to_vec()]);
    assert_eq!(whole[2..], cached[2..]);
    let decision = decision(second.resume(Err(StoreFailure::Refused(Refusal::NoScript))));
    assert_eq!(decision.report.outcome, Outcome::Unavailable, "a second NOSCRIPT is a failure, no loop");
}

#[test]
fn a_call_behind_another_upload_names_the_script_by_its_hash_once_more_and_no_more() {
    let no_script = || Err(StoreFailure::Refused(Refusal::NoScript));
    let engine = engine_of(&limit("w"), r#", "limits_on_store_failure": "deny""#);
    let first = call(begin(&engine, &[]));
    assert!(!first.is_upload());
    let cached = command(&first, "tag");
    let first = first.spare_upload();
    assert_eq!(command(&first, "tag"), cached, "there is no upload to spare yet");
    let spared = call(first.resume(no_script())).spare_upload();
    assert!(!spared.is_upload());
    assert_eq!(command(&spared, "tag"), cached);
    let whole = call(spared.resume(no_script())).spare_upload();
    assert!(whole.is_upload(), "the other upload has failed it");
    assert_eq!(command(&whole, "tag")[0], b"EVAL");
    assert_eq!(decision(whole.resume(no_script())).report.outcome, Outcome::Unavailable);
}

#[test]
fn a_script_sent_whole_decides_like_a_cached_one() {
    let engine = engine_of(&limit("w"), "");
    let whole = call(call(begin(&engine, &[])).resume(Err(StoreFailure::Refused(Refusal::NoScript))));
    let decision = decision(whole.resume(Ok(reply(&[(true, 9, 1, 0)]))));
    assert_eq!((decision.report.outcome, decision.report.decided_by), (Outcome::Allowed, DecidedBy::Store));
}

/// Engines of one limit whose policies allow, deny, and limit locally when the store fails.
fn engines() -> [Engine; 3] {
    ["allow", "deny", "local"].map(|mode| engine_of(&limit("w"), &format!(r#", "limits_on_store_failure": "{mode}""#)))
}

/// A failure of the store leads to what each policy says, and to nothing else.
fn assert_failure_modes(what: &str, resume: impl Fn(lockkeeper_core::call::Call) -> Step) {
    let [allow, deny, locally] = engines().map(|engine| resume(call(begin(&engine, &[]))));
    let allow = decision(allow);
    assert_eq!(response_headers(&allow), [], "{what}: no fields that pretend quota");
    assert_eq!((allow.report.outcome, allow.report.decided_by), (Outcome::Allowed, DecidedBy::FailureMode), "{what}");
    let deny = decision(deny);
    assert_eq!(answer(&deny).status, 503, "{what}");
    assert_eq!((deny.report.outcome, deny.report.decided_by), (Outcome::Unavailable, DecidedBy::FailureMode), "{what}");
    let local = local(locally);
    assert_eq!(local.charges().len(), 1, "{what}");
    let local = decision(local.resume(&local_decision(&[(false, 0, 7_000_000, 7_000_000)])));
    assert_eq!((local.report.outcome, local.report.decided_by), (Outcome::Denied, DecidedBy::Local), "{what}");
}

#[test]
fn every_reply_of_another_shape_leads_to_the_failure_mode() {
    let rows = [
        ("$-1\r\n", "nil"),
        ("*-1\r\n", "a nil array"),
        ("*0\r\n", "an empty array"),
        ("+OK\r\n", "a status"),
        (":1\r\n", "an integer"),
        ("$1\r\nt\r\n", "the tag alone"),
        ("*1\r\n$1\r\nt\r\n", "no verdicts"),
        ("*4\r\n$1\r\nt\r\n:1\r\n:9\r\n:1\r\n", "a number too few"),
        ("*6\r\n$1\r\nt\r\n:1\r\n:9\r\n:1\r\n:0\r\n:0\r\n", "a number too many"),
        ("*9\r\n$1\r\nt\r\n:1\r\n:9\r\n:1\r\n:0\r\n:1\r\n:9\r\n:1\r\n:0\r\n", "a limit too many"),
        ("*5\r\n$1\r\nt\r\n$1\r\n1\r\n:9\r\n:1\r\n:0\r\n", "a string for an integer"),
        ("*5\r\n$1\r\nt\r\n:1\r\n:9\r\n$-1\r\n:0\r\n", "nil for an integer"),
        ("*5\r\n$1\r\nt\r\n:1\r\n:9\r\n*1\r\n:1\r\n:0\r\n", "an array for an integer"),
        ("*5\r\n$1\r\nt\r\n:1\r\n:-1\r\n:1\r\n:0\r\n", "a negative remaining"),
        ("*5\r\n$1\r\nt\r\n:1\r\n:9\r\n:-5\r\n:0\r\n", "a negative reset"),
        ("*5\r\n$1\r\nt\r\n:2\r\n:9\r\n:1\r\n:0\r\n", "neither admitted nor not"),
        ("*5\r\n$1\r\nt\r\n:-1\r\n:9\r\n:1\r\n:0\r\n", "less than not admitted"),
        ("*2\r\n$1\r\nt\r\n*4\r\n:1\r\n:9\r\n:1\r\n:0\r\n", "the verdict nested"),
        ("*1\r\n*5\r\n$1\r\nt\r\n:1\r\n:9\r\n:1\r\n:0\r\n", "everything nested"),
        ("*5\r\n$1\r\nt\r\n-OOM x\r\n:9\r\n:1\r\n:0\r\n", "an error inside"),
    ];
    for (bytes, what) in rows {
        assert_failure_modes(what, |call| call.resume(Ok(parse(bytes))));
    }
}

#[test]
fn every_failure_leads_to_the_failure_mode() {
    assert_failure_modes("not sent", |call| call.resume(Err(StoreFailure::NotSent)));
    assert_failure_modes("unknown", |call| call.resume(Err(StoreFailure::Unknown)));
    let errors = [
        "LOADING Redis is loading the dataset in memory",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "BUSY Redis is busy running a script.",
        "READONLY You can't write against a read only replica.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN Link with MASTER is down",
        "MOVED 866 127.0.0.1:7001",
        "CROSSSLOT Keys in request don't hash to the same slot",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "ERR max number of clients reached",
        "ERR Error running script (call to f_4f): @user_script:7: -NOSCRIPT nested",
        "upstream failure",
        "no upstream host",
        "",
    ];
    for text in errors {
        assert_failure_modes(text, |call| call.resume(Err(StoreFailure::of_error(text))));
    }
}

#[test]
fn a_policy_that_only_measures_never_turns_a_request_away_when_the_store_fails() {
    let engine = engine_of(&shadow("s"), r#", "limits_on_store_failure": "deny""#);
    let decision = decision(call(begin(&engine, &[])).resume(Err(StoreFailure::Unknown)));
    assert_eq!(response_headers(&decision), []);
    assert_eq!(decision.report.outcome, Outcome::Allowed);
    assert_eq!(decision.report.decided_by, DecidedBy::FailureMode);
}

#[test]
fn a_local_decision_charges_the_limits_that_the_store_would_have() {
    let skipped = limit("skipped")
        .replace("constant:all", "header:x")
        .replace("\"key\"", "\"on_missing_key\": \"skip\", \"key\"");
    let engine = engine_of(&format!("{skipped}, {}, {}", shadow("s"), limit("w")), "");
    let call = call(begin(&engine, &[None]));
    let keys: Vec<String> = call.counted().iter().map(|counted| counted.store_key.clone()).collect();
    let local = local(call.resume(Err(StoreFailure::NotSent)));
    let charges = local.charges();
    let identity = |index: usize| String::from_utf8(charges[index].identity.to_vec()).expect("ASCII");
    let local_keys: Vec<String> = (0..2).map(|index| charges[index].limit_id.to_owned() + &identity(index)).collect();
    assert_eq!(local_keys, keys);
    assert_eq!(charges.iter().map(|one| one.charge.enforce).collect::<Vec<_>>(), [false, true]);
    let decision = decision(local.resume(&local_decision(&[(false, 0, 1, 1), (true, 3, 1, 0)])));
    assert_eq!(decision.report.outcome, Outcome::Allowed);
    assert_eq!(decision.report.shadow_denials, [LimitId { policy: 0, limit: 1 }]);
    assert_eq!(header(response_headers(&decision), "ratelimit"), Some(r#""w";r=3;t=1"#));
}
