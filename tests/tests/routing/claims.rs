//! Identities that Envoy's `jwt_authn` has verified, from its dynamic metadata.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use lockkeeper_core::identity::Attribute;
use lockkeeper_tests::{Envoy, Redis};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use crate::{config, expected_key, get, take_key};

const SECRET: &[u8] = b"a secret of thirty-two bytes or more";

fn signed(header: Value, payload: &Value, secret: &[u8]) -> String {
    let text = [header, payload.clone()].map(|part| BASE64.encode(part.to_string())).join(".");
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length");
    mac.update(text.as_bytes());
    format!("{text}.{}", BASE64.encode(mac.finalize().into_bytes()))
}

fn token(claims: Value, secret: &[u8]) -> String {
    let mut payload = json!({ "iss": "test", "exp": 4_102_444_800_u64 });
    payload.as_object_mut().expect("an object").extend(claims.as_object().expect("claims").clone());
    signed(json!({ "alg": "HS256", "kid": "k", "typ": "JWT" }), &payload, secret)
}

/// A policy for each part, at `/0`, `/1` and so on; clients without it are counted by their address.
fn policy(parts: &[&str]) -> Value {
    let policy = |part: &&str| {
        json!({ "limits": [
            { "name": "l", "algorithm": "fixed_window", "limit": 1000, "window": "1d", "key": [part],
              "on_missing_key": { "fallback": "client_address" } }
        ] })
    };
    let policies: Map<String, Value> =
        parts.iter().enumerate().map(|(number, part)| (format!("p{number}"), policy(part))).collect();
    let route = |number: usize| json!({ "match": { "path": format!("/{number}") }, "policy": format!("p{number}") });
    json!({ "version": 1, "policies": policies, "routes": (0..parts.len()).map(route).collect::<Value>() })
}

/// An Envoy whose `jwt_authn` verifies tokens and lets those pass that have none or a bad one.
fn start(redis: &Redis, policy: &Value, member: &str, host: Value) -> Envoy {
    let keys = json!({ "keys": [{ "kty": "oct", "alg": "HS256", "kid": "k", "k": BASE64.encode(SECRET) }] });
    let mut config = config(redis, policy).host(host).direct_response();
    let filters = config.connection_manager()["http_filters"].as_array_mut().expect("a list of filters");
    filters.insert(
        0,
        json!({
            "name": "envoy.filters.http.jwt_authn",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
                "providers": { "test": {
                    "issuer": "test", "local_jwks": { "inline_string": keys.to_string() }, "payload_in_metadata": member
                } },
                "rules": [{ "match": { "prefix": "/" }, "requires": { "requires_any": { "requirements": [
                    { "provider_name": "test" }, { "allow_missing_or_failed": {} }
                ] } } }]
            }
        }),
    );
    Envoy::start(&config).expect("Envoy starts")
}

fn key_of(redis: &Redis, envoy: &Envoy, target: &str, token: Option<&str>) -> String {
    let line = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    assert_eq!(get(envoy, target, &line).status, 200, "{token:?}");
    take_key(redis)
}

#[test]
fn key_07_a_verified_claim_is_the_identity_and_a_forged_one_is_none() {
    let redis = Redis::start().expect("Redis starts");
    let policy = policy(&["metadata:jwt_authn.sub"]);
    let envoy = start(&redis, &policy, "payload", json!({}));
    let sub = |value: Value| token(json!({ "sub": value }), SECRET);
    let key = |token: &str| key_of(&redis, &envoy, "/0", Some(token));
    let claimed = |bytes: &[u8]| {
        expected_key(&policy, "/0", |asked| matches!(asked, Attribute::Metadata(_)).then(|| bytes.to_vec()))
    };
    assert_eq!(key(&sub(json!("alice"))), claimed(b"alice"));
    assert_eq!(key(&token(json!({ "sub": "alice", "jti": "another token" }), SECRET)), claimed(b"alice"));
    assert_eq!(key(&sub(json!("bob"))), claimed(b"bob"));
    let long = "x".repeat(10_000);
    assert_eq!(key(&sub(json!(long))), claimed(long.as_bytes()));
    let anonymous =
        expected_key(&policy, "/0", |asked| (*asked == Attribute::ClientAddress).then(|| b"127.0.0.1".to_vec()));
    assert_eq!(key_of(&redis, &envoy, "/0", None), anonymous, "no token");
    let payload = json!({ "iss": "test", "sub": "alice", "exp": 4_102_444_800_u64 });
    let unsigned = signed(json!({ "alg": "none" }), &payload, SECRET);
    let forged = [
        ("signed by another key", token(json!({ "sub": "alice" }), b"another secret of thirty-two bytes")),
        ("of no algorithm", unsigned.clone()),
        ("without a signature", unsigned.rsplit_once('.').expect("a signature").0.to_owned() + "."),
        ("expired", token(json!({ "sub": "alice", "exp": 1 }), SECRET)),
        ("of another issuer", token(json!({ "sub": "alice", "iss": "mallory" }), SECRET)),
        ("no JWT", "alice".to_owned()),
        ("without the claim", token(json!({ "plan": "pro" }), SECRET)),
        ("whose claim is empty", sub(json!(""))),
        ("whose subject is a number, which it may not be", sub(json!(7))),
        ("whose subject is a list", sub(json!(["alice"]))),
    ];
    for (what, token) in forged {
        assert_eq!(key(&token), anonymous, "a token {what}");
    }
    assert_eq!(key(&sub(json!("alice"))), claimed(b"alice"), "nothing of that disturbed the VM");
}

#[test]
fn claims_of_any_scalar_kind_and_name_can_be_keys_and_the_payload_lies_where_the_host_says() {
    let redis = Redis::start().expect("Redis starts");
    let claims = json!({
        "https://example.com/plan": "pro", "realm": { "tenant": "t1" }, "level": 7, "staff": true, "roles": ["a", "b"], "groups": [], "none": null
    });
    let token = token(claims, SECRET);
    let rows: [(&str, Option<&[u8]>); 10] = [
        ("metadata:jwt_authn['https://example.com/plan']", Some(b"pro")),
        ("metadata:jwt_authn.realm.tenant", Some(b"t1")),
        ("metadata:['envoy.filters.http.jwt_authn'].verified.realm.tenant", Some(b"t1")),
        ("metadata:jwt_authn.level", Some(&7_f64.to_le_bytes())),
        ("metadata:jwt_authn.staff", Some(&[1])),
        ("metadata:jwt_authn.roles", None),
        ("metadata:jwt_authn.groups", None),
        ("metadata:jwt_authn.realm", None),
        ("metadata:jwt_authn.none", None),
        ("metadata:other.sub", None),
    ];
    let policy = policy(&rows.map(|(part, _)| part));
    let envoy = start(&redis, &policy, "verified", json!({ "jwt_payload": "verified" }));
    for (number, (part, value)) in rows.into_iter().enumerate() {
        let target = format!("/{number}");
        let expected = expected_key(&policy, &target, |asked| match asked {
            Attribute::Metadata(_) => value.map(<[u8]>::to_vec),
            _ => Some(b"127.0.0.1".to_vec()),
        });
        assert_eq!(key_of(&redis, &envoy, &target, Some(&token)), expected, "{part}");
    }
}
