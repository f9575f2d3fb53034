//! The vectors that every host's implementation is checked against.

use lockkeeper_core::identity::{Attribute, KeyPart};
use lockkeeper_core::selection::GatewayRoute;
use serde_json::Value;

use crate::{engine, routed_store_keys};

#[test]
fn keys_are_those_of_the_vectors() {
    let vectors: Value = serde_json::from_str(include_str!("../../../tests/vectors/store_keys.json")).expect("JSON");
    let cases = vectors["cases"].as_array().expect("a list of cases");
    assert!(cases.len() > 16);
    for case in cases {
        let engine = engine(&case["policy"].to_string());
        for request in case["requests"].as_array().expect("a list of requests") {
            let text = |field: &str| request[field].as_str().expect("a text");
            let attributes = &request["attributes"];
            let line = (text("method"), text("authority"), text("target"));
            let gateway =
                GatewayRoute { name: request["route_name"].as_str(), policy: request["route_policy"].as_str() };
            let keys = routed_store_keys(&engine, line, gateway, |attribute| bytes(&attributes[name(attribute)]));
            let expected: Vec<&str> = request["store_keys"]
                .as_array()
                .expect("keys")
                .iter()
                .map(|key| key.as_str().expect("a key"))
                .collect();
            assert_eq!(keys, expected, "{}: {request}", case["name"]);
        }
    }
}

fn name(attribute: &Attribute) -> String {
    match attribute {
        Attribute::ClientAddress => "client_address".into(),
        Attribute::Header(name) => format!("header:{name}"),
        Attribute::Metadata(path) => KeyPart::Metadata(path.clone()).text(),
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    if let Some(text) = value.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    if let Some(hex) = value["hex"].as_str() {
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("hex"));
        return Some(digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect());
    }
    let times = usize::try_from(value["times"].as_u64()?).expect("a length");
    Some(value["repeat"].as_str()?.repeat(times).into_bytes())
}
