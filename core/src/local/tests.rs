//! The local limiter on a shared map, as workers of one instance would use it.

#![allow(clippy::arithmetic_side_effects, reason = "a test may overflow, loudly")]

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{LocalCharge, LocalDecision, LocalStep, Swap, Table};
use crate::algorithm::{
    Algorithm, Charge, FixedWindow, SlidingWindow, SlidingWindowCounter, State, TokenBucket, decide,
};

const HOUR_US: u64 = 3_600_000_000;
const NOW_US: u64 = 7 * HOUR_US;

/// A host's shared data.
#[derive(Default)]
struct Shared(Mutex<HashMap<String, (Vec<u8>, u32)>>);

impl Shared {
    fn read(&self, key: &str) -> (Vec<u8>, Option<u32>) {
        let map = self.0.lock().unwrap();
        map.get(key).map_or((Vec::new(), None), |(bytes, version)| (bytes.clone(), Some(*version)))
    }

    fn write(&self, key: &str, bytes: &[u8], version: Option<u32>) -> Swap {
        let mut map = self.0.lock().unwrap();
        if map.get(key).map(|(_, version)| *version) != version {
            return Swap::Mismatch;
        }
        map.insert(key.into(), (bytes.to_vec(), version.unwrap_or(0) + 1));
        Swap::Written
    }

    fn run(&self, step: LocalStep<'_>) -> LocalDecision {
        match step {
            LocalStep::Done(local) => local,
            LocalStep::Read(read) => {
                let (bytes, version) = self.read(read.key());
                self.run(read.resume(&bytes, version))
            }
            LocalStep::Write(write) => {
                let swap = self.write(write.key(), write.bytes(), write.version());
                self.run(write.resume(swap))
            }
        }
    }

    fn decide(&self, table: &Table, charges: &[LocalCharge<'_>], now_us: u64) -> LocalDecision {
        self.run(table.start(charges, now_us))
    }

    fn sizes(&self) -> Vec<usize> {
        self.0.lock().unwrap().values().map(|(bytes, _)| bytes.len()).collect()
    }
}

fn table(sets: u32) -> Table {
    Table::new(sets, *b"sixteen byte key")
}

fn every(limit: u64, window_us: u64) -> [Algorithm; 4] {
    [
        FixedWindow::new(limit, window_us).unwrap().into(),
        SlidingWindow::new(limit, window_us).unwrap().into(),
        SlidingWindowCounter::new(limit, window_us).unwrap().into(),
        TokenBucket::new(limit, 1, window_us).unwrap().into(),
    ]
}

fn ask<'a>(limit_id: &'a str, identity: &'a [u8], algorithm: &'a Algorithm) -> LocalCharge<'a> {
    LocalCharge { limit_id, identity, charge: Charge { algorithm, cost: 1, enforce: true } }
}

/// Runs `requests` on each of four workers and says how many were admitted.
fn race(requests: u64, decide: impl Fn() -> LocalDecision + Sync) -> u64 {
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..requests {
                    admitted.fetch_add(decide().decision.allowed.into(), Ordering::Relaxed);
                }
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn workers_share_each_limit_exactly() {
    for algorithm in every(50, HOUR_US) {
        let (shared, table) = (Shared::default(), table(16));
        let charges = [ask("limit", b"client", &algorithm)];
        assert_eq!(race(500, || shared.decide(&table, &charges, NOW_US)), 50, "{algorithm:?}");
    }
}

#[test]
fn stacked_limits_admit_exactly_the_smaller_and_charge_no_more() {
    for (larger, smaller) in every(100, HOUR_US).into_iter().zip(every(60, HOUR_US)) {
        let (shared, table) = (Shared::default(), table(16));
        let charges = [ask("larger", b"client", &larger), ask("smaller", b"client", &smaller)];
        let lost = AtomicU64::new(0);
        let admitted = race(500, || {
            let local = shared.decide(&table, &charges, NOW_US);
            lost.fetch_add(local.lost_refunds.into(), Ordering::Relaxed);
            local
        });
        assert_eq!(admitted, 60, "{smaller:?}");
        let left = shared.decide(&table, &charges, NOW_US).decision.verdicts[0].remaining;
        assert_eq!(left + lost.into_inner(), 40, "{larger:?}");
    }
}

#[test]
fn what_was_charged_is_given_back_when_another_limit_denies_late() {
    for (first, second) in every(5, HOUR_US).into_iter().zip(every(1, HOUR_US)) {
        let (shared, table) = (Shared::default(), table(64));
        let charges = [ask("first", b"client", &first), ask("second", b"client", &second)];
        let mut step = table.start(&charges, NOW_US);
        for _ in 0..3 {
            step = match step {
                LocalStep::Read(read) => {
                    let (bytes, version) = shared.read(read.key());
                    read.resume(&bytes, version)
                }
                LocalStep::Write(write) => {
                    let swap = shared.write(write.key(), write.bytes(), write.version());
                    write.resume(swap)
                }
                LocalStep::Done(local) => panic!("too early: {local:?}"),
            };
        }
        assert!(shared.decide(&table, &charges[1..], NOW_US).decision.allowed, "another worker");
        let local = shared.run(step);
        assert_eq!((local.decision.allowed, local.mismatches, local.lost_refunds), (false, 1, 0));
        let admitted: Vec<bool> = local.decision.verdicts.iter().map(|verdict| verdict.admitted).collect();
        assert_eq!((admitted, local.decision.verdicts[0].remaining), (vec![true, false], 5), "{first:?}");
    }
}

#[test]
fn a_shadow_limit_is_charged_last_and_never_denies() {
    let (shared, table) = (Shared::default(), table(16));
    let [algorithm, ..] = every(1, HOUR_US);
    let mut watching = ask("watching", b"client", &algorithm);
    watching.charge.enforce = false;
    let charges = [watching, ask("enforced", b"client", &algorithm)];
    assert!(shared.decide(&table, &charges, NOW_US).decision.allowed);
    assert!(!shared.decide(&table, &charges, NOW_US).decision.allowed);
    assert!(shared.decide(&table, &charges[..1], NOW_US).decision.allowed);
    let charges = [watching, ask("enforced", b"other", &algorithm)];
    let local = shared.decide(&table, &charges, NOW_US);
    assert_eq!((local.decision.allowed, local.decision.verdicts[0].admitted), (true, false));
}

#[test]
fn a_request_that_loses_every_race_is_denied() {
    let (table, [algorithm, ..]) = (table(16), every(10, HOUR_US));
    let charges = [ask("limit", b"client", &algorithm)];
    let mut step = table.start(&charges, NOW_US);
    let local = loop {
        step = match step {
            LocalStep::Done(local) => break local,
            LocalStep::Read(read) => read.resume(&[], None),
            LocalStep::Write(write) => write.resume(Swap::Mismatch),
        }
    };
    assert_eq!((local.decision.allowed, local.contended, local.mismatches), (false, true, 16));
}

#[test]
fn two_hundred_thousand_clients_do_not_grow_the_table() {
    let (shared, table) = (Shared::default(), table(256));
    let bucket = TokenBucket::new(1_000_000, 1, 60_000_000).unwrap().into();
    for client in 0..200_000_u64 {
        shared.decide(&table, &[ask("api", &client.to_le_bytes(), &bucket)], NOW_US + client);
    }
    let sizes = shared.sizes();
    assert_eq!(sizes.len(), 256 + 1);
    assert!(sizes.iter().all(|size| *size <= 337), "{:?}", sizes.iter().max());
}

#[test]
fn an_offender_is_not_freed_by_a_flood_of_others() {
    for (quick, slow) in every(10, 60_000_000).into_iter().zip(every(10, HOUR_US)) {
        let (shared, table) = (Shared::default(), table(25));
        let offender = [ask("b", b"offender", &slow)];
        let refused = |now_us| !shared.decide(&table, &offender, now_us).decision.allowed;
        assert_eq!((0..20).filter(|_| refused(NOW_US)).count(), 10);
        for client in 0..20_000_u64 {
            shared.decide(&table, &[ask("a", &client.to_le_bytes(), &quick)], NOW_US + client * 1000);
            if client % 100 == 0 {
                assert!(refused(NOW_US + client * 1000), "freed after {client} clients: {slow:?}");
            }
        }
        assert!(!refused(NOW_US + 20 * HOUR_US));
    }
}

#[test]
fn a_full_set_sends_new_clients_to_one_overflow_entry() {
    let (shared, table) = (Shared::default(), table(1));
    let [window, ..] = every(2, HOUR_US);
    let overflowed = |client: u64, now_us| {
        let local = shared.decide(&table, &[ask("api", &client.to_le_bytes(), &window)], now_us);
        (local.overflowed == 1, local.decision.allowed)
    };
    for client in 0..8 {
        assert_eq!(overflowed(client, NOW_US), (false, true));
    }
    assert_eq!([8, 9, 10].map(|client| overflowed(client, NOW_US)), [(true, true), (true, true), (true, false)]);
    assert_eq!(overflowed(0, NOW_US), (false, true), "who has an entry keeps it");
    assert_eq!(overflowed(10, NOW_US + HOUR_US), (false, true), "an entry as good as fresh makes room");
}

#[test]
fn corrupt_bytes_are_an_empty_set() {
    let (shared, table) = (Shared::default(), table(1));
    let [window, ..] = every(1, HOUR_US);
    let charges = [ask("api", b"client", &window)];
    for corrupt in [&b""[..], b"\x01", b"\x01garbage", b"\xff\xff\xff", b"\x00"] {
        shared.0.lock().unwrap().insert("lockkeeper/1/0".into(), (corrupt.to_vec(), 1));
        assert!(shared.decide(&table, &charges, NOW_US).decision.allowed, "{corrupt:?}");
        assert!(!shared.decide(&table, &charges, NOW_US).decision.allowed, "{corrupt:?}");
    }
}

/// A small, seeded source of random numbers (xorshift).
fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

#[test]
fn a_lone_worker_decides_as_the_store_would() {
    for seed in 1..=20 {
        let (shared, table, mut source) = (Shared::default(), table(2), seed);
        let [first, second] = [20, 30].map(|limit| every(limit, 1_000_000)[random(&mut source, 4) as usize].clone());
        let (mut states, mut now_us) = ([State::Absent, State::Absent], NOW_US);
        for _ in 0..500 {
            now_us += [0, 1, 1_000, 50_000, 1_000_000][random(&mut source, 5) as usize];
            let mut charges = [ask("first", b"client", &first), ask("second", b"client", &second)];
            charges[0].charge.cost = 1 + random(&mut source, 5);
            charges[1].charge.enforce = random(&mut source, 4) > 0;
            let expected = decide(&charges.map(|it| it.charge), &mut states, now_us);
            assert_eq!(shared.decide(&table, &charges, now_us).decision, expected, "seed {seed} at {now_us}");
        }
    }
}

#[test]
fn a_shortened_log_never_admits_more_than_its_limit() {
    const WINDOW_US: u64 = 1_000_000;
    for seed in 1..=20 {
        let (shared, table, mut source) = (Shared::default(), table(1), seed);
        let limit = 65 + random(&mut source, 500);
        let log: Algorithm = SlidingWindow::new(limit, WINDOW_US).unwrap().into();
        let (mut admitted, mut now_us): (Vec<(u64, u64)>, _) = (Vec::new(), NOW_US);
        for _ in 0..3_000 {
            now_us += random(&mut source, 4 * WINDOW_US / limit);
            let mut asked = ask("log", b"client", &log);
            asked.charge.cost = 1 + random(&mut source, 3);
            if shared.decide(&table, &[asked], now_us).decision.allowed {
                admitted.push((now_us, asked.charge.cost));
            }
            let recent = admitted.iter().rev().take_while(|(time_us, _)| time_us + WINDOW_US > now_us);
            let sum: u64 = recent.map(|(_, cost)| cost).sum();
            assert!(sum <= limit, "seed {seed}: {sum} of {limit} at {now_us}");
        }
        assert!(shared.sizes().iter().all(|size| *size <= 600), "{:?}", shared.sizes());
        let total: u64 = admitted.iter().map(|(_, cost)| cost).sum();
        let windows = (now_us - NOW_US) / WINDOW_US;
        assert!(total * 10 > limit * windows * 7, "seed {seed}: only {total} in {windows} windows of {limit}");
    }
}
