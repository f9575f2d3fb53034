//! Random and mangled input of every kind: nothing panics, and what must hold for any input holds.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use lockkeeper_core::host_config::PluginConfig;
use lockkeeper_core::identity::AddressPrefixes;
use lockkeeper_core::normalize;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use lockkeeper_core::resp::{Decoder, REPLY_BYTES_MAX};
use lockkeeper_core::store::StoreFailure;

const ROUNDS: u64 = 5_000;

/// SplitMix64 (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).expect("64 bits")).expect("64 bits")
    }

    /// Up to `length_max` of these parts.
    fn text(&mut self, parts: &[&str], length_max: usize) -> String {
        (0..self.below(length_max + 1)).map(|_| parts[self.below(parts.len())]).collect()
    }

    /// The bytes with a few of them replaced, removed or doubled.
    fn mangle(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut mangled = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let place = self.below(mangled.len());
            match (self.below(4), mangled.is_empty()) {
                (_, true) => {}
                (0, _) => drop(mangled.remove(place)),
                (1, _) => mangled.insert(place, mangled[place]),
                (2, _) => mangled[place] = self.next().to_le_bytes()[0],
                _ => mangled[place] = b"{}[]\",:0-9eE.*%/"[self.below(16)],
            }
        }
        mangled
    }
}

#[test]
fn any_path_has_one_normal_form() {
    let parts =
        ["/", "//", ".", "..", "%2e", "%2F", "%", "%4", "%zz", "a", "B", "~", ";", "\u{e9}", "\0", "\\", "?", "#", " "];
    let mut random = Random(1);
    for _ in 0..ROUNDS {
        let target = random.text(&parts, 12);
        let path = normalize::path(&target);
        assert_eq!(normalize::path(&path), path, "{target:?} changes when normalised twice");
        assert!(path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()), "{target:?}: {path:?}");
        let has_dots = path.split('/').any(|segment| segment == "." || segment == "..");
        assert!(!path.contains("//") && !has_dots, "{target:?}: {path:?}");
        assert!(path == "/" || !path.ends_with('/'), "{target:?}: {path:?}");
    }
}

#[test]
fn any_authority_has_a_host_in_lower_case() {
    let parts = ["a", "B", ".", ":", "443", "[", "]", "::1", "@", " ", "\u{130}", "%", "xn--"];
    let mut random = Random(2);
    for _ in 0..ROUNDS {
        let authority = random.text(&parts, 8);
        let host = normalize::host(&authority);
        assert!(!host.bytes().any(|byte| byte.is_ascii_uppercase()), "{authority:?}: {host:?}");
        assert!(host.len() <= authority.len(), "{authority:?}: {host:?}");
    }
}

#[test]
fn any_address_is_a_network_in_one_spelling_or_none() {
    let parts = ["1", "255", "256", ".", ":", "::", "ffff", "[", "]", "%", "eth0", "/", " ", "192.0.2.1", "2001:db8"];
    let mut random = Random(3);
    let prefixes = AddressPrefixes::default();
    for _ in 0..ROUNDS {
        let text = random.text(&parts, 7);
        let Some(network) = prefixes.network(&text) else { continue };
        let address = network.split('/').next().expect("an address");
        assert_eq!(prefixes.network(address).as_ref(), Some(&network), "{text:?}");
    }
}

#[test]
fn mangled_replies_are_replies_or_errors_whatever_the_pieces() {
    let good: &[u8] =
        b"*5\r\n$16\r\n0123456789abcdef\r\n:1\r\n:9\r\n:1000\r\n:0\r\n-NOSCRIPT x\r\n*1\r\n$-1\r\n+OK\r\n";
    let mut random = Random(4);
    for _ in 0..ROUNDS {
        let bytes = random.mangle(good);
        let whole = replies(&[&bytes]);
        let (first, second) = bytes.split_at(random.below(bytes.len()));
        assert_eq!(replies(&[first, second]), whole, "{}", String::from_utf8_lossy(&bytes));
    }
}

/// Each reply, and how the stream ends.
fn replies(chunks: &[&[u8]]) -> Vec<String> {
    let mut decoder = Decoder::default();
    let mut replies = Vec::new();
    for chunk in chunks {
        decoder.extend(chunk);
        loop {
            match decoder.next_reply() {
                Ok(Some(reply)) => replies.push(format!("{reply:?}")),
                Ok(None) => break,
                Err(error) => {
                    replies.push(format!("{error:?}"));
                    return replies;
                }
            }
        }
    }
    replies
}

#[test]
fn an_endless_reply_is_refused_before_it_fills_the_memory() {
    let endless: [(&[u8], &[u8]); 4] =
        [(b"$900000\r\n", b"x"), (b"*4096\r\n", b"$1024\r\n"), (b"-", b"x"), (b"*4096\r\n", b":1\r\n")];
    for (head, piece) in endless {
        let mut decoder = Decoder::default();
        decoder.extend(head);
        let chunk = piece.repeat(64 * 1024 / piece.len());
        let mut received = 0;
        let mut settled = false;
        while !settled {
            assert!(received <= REPLY_BYTES_MAX + chunk.len(), "{} is still read", String::from_utf8_lossy(head));
            settled = !matches!(decoder.next_reply(), Ok(None));
            decoder.extend(&chunk);
            received += chunk.len();
        }
    }
}

#[test]
fn mangled_configurations_load_or_are_refused_with_a_reason() {
    let good = br#"{"host": {"deadline": "50ms", "local": {"share": 0.5}}, "policy": {"version": 1, "namespace": "n",
        "client_address": {"ipv4_prefix": 24}, "policies": {"p": {"limits": [
            {"name": "b", "algorithm": "token_bucket", "capacity": 10, "refill": "5/s", "key": ["client_address"]},
            {"name": "c", "algorithm": "sliding_window_counter", "limit": 1e9, "window": "24h", "cost": 2, "key": ["header:x"]}],
            "limits_on_store_failure": "deny"}},
        "routes": [{"match": {"host": "*.example.com", "path": "/v1/*", "methods": ["GET"]}, "policy": "p"}],
        "default_policy": "p"}}"#;
    assert!(PluginConfig::from_json(good).is_ok());
    let mut random = Random(5);
    let mut loaded = 0;
    for _ in 0..ROUNDS {
        match PluginConfig::from_json(&random.mangle(good)) {
            Ok(_) => loaded += 1,
            Err(errors) => {
                assert!(!errors.0.is_empty());
                assert!(errors.0.iter().all(|error| error.path.starts_with('$') && error.to_string().len() < 1_500));
            }
        }
    }
    assert!(
        (100..ROUNDS - 100).contains(&loaded),
        "{loaded} of {ROUNDS} load: the test mangles too much or too little"
    );
    assert!(PolicySet::from_json(&[], LoadOptions::default()).is_err());
}

#[test]
fn any_error_text_is_some_failure() {
    let parts = ["ERR", "-", " ", ":", "NOSCRIPT", "READONLY", "upstream failure", "no upstream host", "x", "\u{e9}"];
    let mut random = Random(6);
    for _ in 0..ROUNDS {
        let text = random.text(&parts, 6);
        let failure = StoreFailure::of_error(&text);
        let is_no_script = failure.word() == "no_script";
        assert_eq!(
            is_no_script,
            text.split(' ').next() == Some("NOSCRIPT"),
            "{text:?}: only a bare NOSCRIPT is sent again"
        );
    }
}
