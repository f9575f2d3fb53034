//! What one instance of several grants when it limits by itself: its share of each limit, and what a share rounds to.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use lockkeeper_core::algorithm::Algorithm;
use lockkeeper_core::host_config::PluginConfig;

/// The store's and the local rule of a limit with these numbers.
fn algorithms(share: &str, numbers: &str) -> (Algorithm, Algorithm) {
    let json = format!(
        r#"{{"host": {{"local": {{"share": {share}}}}}, "policy": {{"version": 1, "policies": {{"p": {{"limits": [
            {{"name": "l", "key": ["method"], {numbers}}}]}}}}}}}}"#
    );
    let config = PluginConfig::from_json(json.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"));
    let limit = &config.policies.policies[0].limits[0];
    (limit.base.algorithm.clone(), limit.base.local_algorithm.clone())
}

#[test]
fn windows_keep_their_length_and_grant_the_share_rounded_down_but_one_request() {
    let rows = [
        ("1", 100, 1, 100),
        ("0.5", 100, 1, 50),
        ("0.25", 10, 1, 2),
        ("0.29", 100, 1, 29),
        ("0.07", 100, 1, 7),
        ("0.333", 10, 1, 3),
        ("0.01", 10, 1, 1),
        ("1e-9", 10, 1, 1),
        ("0.25", 10, 5, 5),
        ("0.25", 10, 10, 10),
        ("0.9", 10_000, 1, 9_000),
    ];
    for kind in ["fixed_window", "sliding_window", "sliding_window_counter"] {
        for (share, limit, cost, expected) in rows {
            let numbers = format!(r#""algorithm": "{kind}", "limit": {limit}, "window": "1m", "cost": {cost}"#);
            let (whole, local) = algorithms(share, &numbers);
            assert_eq!((whole.allowance(), whole.window_us()), (limit, 60_000_000));
            assert_eq!((local.allowance(), local.window_us()), (expected, 60_000_000), "{share} of {numbers}");
        }
    }
}

#[test]
fn buckets_shrink_and_refill_slower_by_the_share() {
    let rows = [
        ("1", r#""capacity": 10, "refill": "5/s""#, 10, 2_000_000),
        ("0.5", r#""capacity": 10, "refill": "4/s""#, 5, 2_500_000),
        ("0.5", r#""capacity": 10, "refill": "5/s""#, 5, 2_000_000),
        ("0.29", r#""capacity": 100, "refill": "100/s""#, 29, 1_000_000),
        ("0.25", r#""capacity": 1, "refill": "1/h""#, 1, 4 * 3_600_000_000),
        ("0.25", r#""capacity": 8, "refill": "1/s", "cost": 4"#, 4, 16_000_000),
    ];
    for (share, numbers, capacity, fill_us) in rows {
        let (_, local) = algorithms(share, &format!(r#""algorithm": "token_bucket", {numbers}"#));
        assert_eq!((local.allowance(), local.window_us()), (capacity, fill_us), "{share} of {numbers}");
    }
}
