//! Idempotency keys, stored records and what the store says of claims: any text is read in one way or refused.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use lockkeeper_core::algorithm::EXACT_MAX;
use lockkeeper_core::claim::record::{Record, Sibling};
use lockkeeper_core::claim::{
    Admission, Ask, Asked, ClaimKind, Command, Fingerprint, HeldClaim, HeldSlot, Holdings, Owner,
};
use lockkeeper_core::idempotency::fingerprint::BodyHasher;
use lockkeeper_core::idempotency::{key, stored};
use lockkeeper_core::policy::{BodyFingerprint, OnUnknown};
use lockkeeper_core::resp::Reply;

use crate::{budget_ms, json, pieces};

const KEY_PIECES: [&str; 16] =
    ["\"", "\\", "\\\"", "\\\\", "a", "0f8e", " ", "\t", ",", ";v=1", "; p", "=", "é", "\0", ":YQ==:", "~"];
const HEADER_PIECES: [&str; 14] =
    ["0:", "1:", "2:", "8:location", "9:/orders/1", "=", "~", "a", "A", "4:YWJj", "4:/w==", ":", "1:a=1:b", "\r"];
const WORDS: [&str; 17] = [
    "new",
    "mine",
    "denied",
    "limited",
    "busy",
    "mismatch",
    "unknown",
    "corrupt",
    "done",
    "sealed",
    "ok",
    "lost",
    "gone",
    "201",
    "1796083200123456",
    "base64",
    "",
];
const VALUES: [&str; 14] =
    ["1", "2", "R", "D", "S", "", "0", "201", "base64", "9007199254740991", "9007199254740992", "-1", "1e3", "7:2"];

#[test]
fn a_key_is_the_same_quoted_and_bare_or_it_is_refused() {
    arbtest(|input| {
        let text = pieces(input, &KEY_PIECES, 8)?;
        let bounds = (input.int_in_range(1..=4)?, input.int_in_range(4..=40)?);
        let Ok(key) = key::parse(text.as_bytes(), bounds) else { return Ok(()) };
        assert!((bounds.0..=bounds.1).contains(&key.len()), "{text:?} gives {key:?}");
        assert!(key.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "{text:?} gives {key:?}");
        let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
        assert_eq!(key::parse(quoted.as_bytes(), bounds).as_ref(), Ok(&key), "{text:?} and {quoted:?}");
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn any_bytes_are_a_key_or_refused() {
    arbtest(|input| {
        let key = key::parse(input.bytes(input.len())?, (1, 255));
        assert!(key.is_err() || key.is_ok_and(|key| key.is_ascii() && key.len() <= 255));
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn stored_headers_are_what_was_written_or_refused() {
    arbtest(|input| {
        let text = pieces(input, &HEADER_PIECES, 12)?;
        if let Some(lines) = stored::decode_headers(text.as_bytes()) {
            assert_eq!(stored::encode_headers(&lines), text);
        }
        drop(stored::decode_headers(input.bytes(input.len())?));
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn header_lines_come_back_as_they_were() {
    arbtest(|input| {
        let name = |input: &mut Unstructured<'_>| Ok((*input.choose(&["a", "etag", "content-type"])?).to_owned());
        let line = |input: &mut Unstructured<'_>| {
            let length = input.int_in_range(0..=20)?;
            let value: Vec<u8> = input.bytes(length.min(input.len()))?.to_vec();
            Ok((name(input)?, value))
        };
        let lines = (0..input.int_in_range(0..=5)?).map(|_| line(input)).collect::<Result<Vec<_>>>()?;
        // What no header may contain is refused; all else is the same.
        let decoded = stored::decode_headers(stored::encode_headers(&lines).as_bytes());
        let is_plain = lines.iter().all(|(_, value)| value.iter().all(|byte| (0x21..=0x7e).contains(byte)));
        assert!(decoded == Some(lines.clone()) || decoded.is_none() && !is_plain, "{lines:?} became {decoded:?}");
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

fn fingerprint(body: &[u8], cuts: usize) -> String {
    let mut hasher = BodyHasher::new(BodyFingerprint::Json);
    body.chunks(cuts.max(1)).for_each(|piece| hasher.push(piece));
    hasher.finish()
}

#[test]
fn a_json_body_has_one_fingerprint_however_it_is_spelt_and_cut() {
    arbtest(|input| {
        let value = json::value(input, 2)?;
        let pretty = serde_json::to_vec_pretty(&value).expect("it can be written");
        let plain = fingerprint(value.to_string().as_bytes(), usize::MAX);
        assert_eq!(fingerprint(&pretty, input.int_in_range(1..=9)?), plain, "of {value}");
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn any_body_has_a_fingerprint_and_bytes_tell_bodies_that_are_no_json_apart() {
    arbtest(|input| {
        let body =
            pieces(input, &["{", "}", "[", "]", "\"a\"", ":", ",", "1", "1.0", "-0", "\\u00", "1e999", " "], 20)?;
        let cuts = input.int_in_range(1..=9)?;
        let found = fingerprint(body.as_bytes(), cuts);
        assert_eq!((found.len(), &found), (64, &fingerprint(body.as_bytes(), usize::MAX)));
        if serde_json::from_str::<serde_json::Value>(&body).is_err() {
            assert_ne!(found, fingerprint(format!("{body} ").as_bytes(), cuts), "{body:?} is no JSON");
        }
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

fn elements(input: &mut Unstructured<'_>) -> Result<Vec<Reply>> {
    let element = |input: &mut Unstructured<'_>| {
        Ok(match input.int_in_range(0..=9)? {
            0..=4 => Reply::BulkString((*input.choose(&WORDS)?).into()),
            5..=7 => Reply::Integer(*input.choose(&[0, 1, 2, 60])?),
            8 => Reply::Integer(input.arbitrary()?),
            _ => Reply::Null,
        })
    };
    (0..input.int_in_range(0..=14)?).map(|_| element(input)).collect()
}

fn ask(kind: ClaimKind) -> Ask {
    Ask {
        kind,
        record_key: "r".into(),
        fence_key: "f".into(),
        fingerprint: Fingerprint::default(),
        lease_us: 1,
        ttl_ms: 1,
        on_unknown: OnUnknown::Reject,
        floor: 0,
    }
}

#[test]
fn what_the_store_says_of_claims_fits_what_was_asked_or_is_refused() {
    let all = [ask(ClaimKind::Idempotency), ask(ClaimKind::Lock)];
    arbtest(|input| {
        let claims = *input.choose(&[&all[..], &all[..1], &all[1..]])?;
        let asked = Asked { limits: input.int_in_range(0..=2)?, has_replay_limit: input.arbitrary()?, claims };
        let elements = elements(input)?;
        let Some((admission, verdicts)) = Admission::parse(&elements, asked) else { return Ok(()) };
        let (limits, index) = match admission {
            Admission::Granted { claims, is_again } => (if is_again { 0 } else { asked.limits }, claims.len() - 1),
            Admission::Busy { claim, .. } | Admission::Mismatch { claim } => (verdicts.len(), claim),
            Admission::Unknown { claim } | Admission::Corrupt { claim } => (verdicts.len(), claim),
            Admission::Denied => (asked.limits, 0),
            Admission::Limited => (1, 0),
            Admission::Kept(_) => (verdicts.len(), 0),
        };
        assert!(verdicts.len() == limits && index < claims.len(), "{elements:?}");
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn what_the_store_says_of_holdings_is_a_word_for_each_or_is_refused() {
    let claim = HeldClaim { record_key: "r".into(), fence_key: "f".into(), fence: None, lease_us: 1, ttl_ms: 1 };
    arbtest(|input| {
        let holdings = Holdings {
            owner: Owner::new(input.arbitrary()?),
            claims: vec![claim.clone(); input.int_in_range(0..=2)?],
            slots: vec![HeldSlot { key: "s".into(), lease_us: 1 }; input.int_in_range(0..=2)?],
        };
        let held = holdings.claims.len() + holdings.slots.len();
        let words = Command::Renew(holdings).parse(&elements(input)?);
        assert!(words.is_none_or(|words| words.len() == held));
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn any_fields_are_a_record_or_none() {
    let owner = "ab".repeat(16);
    let good = [
        ("v", "1"),
        ("s", "D"),
        ("o", &owner),
        ("f", "7"),
        ("d", "9"),
        ("l", "5"),
        ("p", "h"),
        ("q", ""),
        ("pv", "1"),
        ("n", "2"),
        ("t", "3"),
        ("c", "201"),
        ("h", ""),
        ("b", "body"),
        ("e", ""),
        ("x", "stream"),
    ];
    arbtest(|input| {
        let mut fields = Vec::new();
        for (name, value) in good {
            match input.int_in_range(0..=15)? {
                0 => {}
                1 => fields.push((name, *input.choose(&VALUES)?)),
                _ => fields.push((name, value)),
            }
        }
        let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes());
        let Some(record) = Record::parse(field) else { return Ok(()) };
        assert_eq!((field("v"), field("o")), (Some(&b"1"[..]), Some(owner.as_bytes())));
        assert_eq!(record.kept.is_none(), field("s") == Some(b"R"));
        assert!(record.fence <= EXACT_MAX && record.attempt <= EXACT_MAX && record.deadline_us <= EXACT_MAX);
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn what_is_remembered_beside_a_record_is_two_exact_numbers_or_nothing() {
    arbtest(|input| {
        let text = pieces(input, &["1", "0", ":", "7", "-", "9007199254740991", " ", "e", "\0"], 6)?;
        if let Some(sibling) = Sibling::parse(text.as_bytes()) {
            let plain: Vec<&str> = text.split(':').collect();
            assert_eq!(
                plain.iter().map(|part| part.parse()).collect::<Vec<_>>(),
                [Ok(sibling.fence), Ok(sibling.attempt)]
            );
            assert!(sibling.fence.max(sibling.attempt) <= EXACT_MAX);
        }
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}
