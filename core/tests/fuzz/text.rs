//! Paths, hosts, addresses and header names: every spelling is normalised once and for all.

use arbtest::arbtest;
use lockkeeper_core::identity::AddressPrefixes;
use lockkeeper_core::normalize;

use crate::{budget_ms, pieces};

const PATH_PIECES: [&str; 24] = [
    "/", ".", "..", "%", "%2e", "%2E", "%2f", "%5c", "%00", "%25", "%zz", "a", "B", "?", "#", ";", "\\", "//", "/../",
    " ", "é", "\0", "http://h", "*",
];
const HOST_PIECES: [&str; 18] =
    ["a", "B", ".", "..", ":", "80", ":443", "[", "]", "::1", "@", "*", " ", "\t", "é", "xn--", "-", "%eth0"];
const ADDRESS_PIECES: [&str; 20] = [
    "1",
    "25",
    "255",
    "256",
    ".",
    ":",
    "::",
    "[",
    "]",
    "%",
    "ffff",
    "::ffff:",
    "192.0.2.1",
    "2001:db8::1",
    ":80",
    "eth0",
    "/",
    "-",
    " ",
    "é",
];

#[test]
fn a_normalised_path_stays_as_it_is_and_names_no_other_directory() {
    arbtest(|input| {
        let target = pieces(input, &PATH_PIECES, 40)?;
        let path = normalize::path(&target);
        assert_eq!(normalize::path(&path), path, "of {target:?}");
        assert!(path.starts_with('/') && path.is_ascii(), "{path:?} of {target:?}");
        assert!(!path.contains(['?', '#', ' ', '\\']), "{path:?} of {target:?}");
        let mut segments = path.split('/').skip(1);
        assert!(path == "/" || segments.all(|segment| !["", ".", ".."].contains(&segment)), "{path:?} of {target:?}");
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn a_normalised_host_has_no_port_and_no_capitals() {
    arbtest(|input| {
        let authority = pieces(input, &HOST_PIECES, 12)?;
        let host = normalize::host(&authority);
        assert!(!host.bytes().any(|byte| byte.is_ascii_uppercase()), "{host:?} of {authority:?}");
        assert!(host.len() <= authority.len());
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn an_address_is_a_network_or_nothing() {
    arbtest(|input| {
        let text = pieces(input, &ADDRESS_PIECES, 10)?;
        let prefixes = AddressPrefixes { ipv4: input.int_in_range(0..=32)?, ipv6: input.int_in_range(0..=128)? };
        if let Some(network) = prefixes.network(&text) {
            let (address, bits) = network.split_once('/').expect("a network has a prefix");
            assert!(address.parse::<std::net::IpAddr>().is_ok(), "{network:?} of {text:?}");
            let expected = if address.contains(':') { prefixes.ipv6 } else { prefixes.ipv4 };
            assert_eq!(bits, expected.to_string(), "{network:?} of {text:?}");
            assert_eq!(prefixes.network(address).as_deref(), Some(network.as_str()), "of {text:?}");
        }
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}
