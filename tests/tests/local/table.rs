//! The local limiter's table is bounded, and a flood of clients frees nobody.

use crate::{config, per_user, request};
use lockkeeper_tests::Envoy;
use lockkeeper_tests::raw::{RawConnection, flood};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLIENTS: usize = 200_000;
const CONNECTIONS: usize = 16;
const MIB: u64 = 1 << 20;

/// Bytes that Envoy has allocated, by its own count.
fn allocated_bytes(envoy: &Envoy) -> u64 {
    let memory: Value = serde_json::from_str(&envoy.admin().get("/memory")).expect("the memory page is JSON");
    memory["allocated"].as_str().and_then(|text| text.parse().ok()).expect("allocated bytes")
}

#[test]
fn a_flood_of_clients_neither_grows_the_table_nor_frees_an_offender() {
    let limits = [
        ("flooded", per_user(json!({ "algorithm": "token_bucket", "capacity": 10, "refill": "10/1m" }))),
        ("strict", per_user(json!({ "algorithm": "fixed_window", "limit": 10, "window": "1h" }))),
    ];
    let envoy = Envoy::start(&config(&limits).concurrency(2)).expect("Envoy starts");
    // All that a flood of one client makes Envoy keep: connections, caches, compiled code.
    flood(envoy.address(), CONNECTIONS, CLIENTS / 10, |_| request("/flooded", "one"));
    let mut offender = RawConnection::open(envoy.address()).expect("Envoy accepts");
    let mut statuses = (0..12).map(|_| offender.exchange(&request("/strict", "offender")).expect("an answer").status);
    assert!(statuses.by_ref().take(10).all(|status| status == 200));
    assert!(statuses.all(|status| status == 429));

    let before = (envoy.process().resident_bytes(), allocated_bytes(&envoy));
    let over = &AtomicBool::new(false);
    let statuses = std::thread::scope(|scope| {
        let offender = scope.spawn(|| {
            let mut statuses = BTreeMap::new();
            while !over.load(Ordering::Relaxed) {
                let answer = offender.exchange(&request("/strict", "offender")).expect("an answer");
                *statuses.entry(answer.status).or_insert(0) += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            statuses
        });
        let statuses = flood(envoy.address(), CONNECTIONS, CLIENTS, |number| {
            request("/flooded", &format!("{:016x}", (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        });
        over.store(true, Ordering::Relaxed);
        let offender = offender.join().expect("the offender does not panic");
        println!("the offender meanwhile: {offender:?}");
        assert_eq!(offender.into_keys().collect::<Vec<_>>(), [429], "the flood freed the offender");
        statuses
    });
    let grown = envoy.process().resident_bytes().saturating_sub(before.0);
    let allocated = allocated_bytes(&envoy).saturating_sub(before.1);
    let overflows = envoy.admin().stat("wasmcustom.lockkeeper_local_events.event.overflow");
    println!("{CLIENTS} clients: {statuses:?}, {overflows} in an overflow entry");
    println!("Envoy grew by {} KiB, {} KiB of them allocated", grown / 1024, allocated / 1024);
    assert!(overflows > 0, "the table was not filled");
    assert!(allocated < 8 * MIB, "Envoy allocated {allocated} more bytes for {CLIENTS} clients");
    assert!(grown < 32 * MIB, "Envoy grew by {grown} bytes");
}
