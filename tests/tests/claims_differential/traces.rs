//! Random traces: several owners begin, renew, complete and give back, while the clock jumps both ways, keys get lost and
//! others write to them.

use lockkeeper_core::claim::{Admission, Ask, Command, Completion, HeldClaim, HeldSlot, Kept, Owner};
use lockkeeper_core::policy::OnUnknown;

use crate::limits::Limit;
use crate::oracle::Request;
use crate::random::Random;
use crate::scenery::*;
use crate::store::words;
use crate::world::{Checked, World};

/// So many traces are tried; a change to the scripts must be noticed within them.
pub const TRACES: u64 = 400;
pub const SEED: u64 = 20_261_201;
const STEPS_OF_A_TRACE: u64 = 60;
const YEAR_US: u64 = 365 * 86_400 * 1_000_000;

#[test]
fn the_scripts_and_rust_agree_on_random_traces() {
    let mut world = World::new(NOW_US);
    let mut random = Random::new(SEED);
    for _ in 0..TRACES {
        trace(&mut world, &mut random).unwrap_or_else(|difference| panic!("{difference}"));
    }
    assert!(world.steps >= 20_000);
    let words = [
        "Granted",
        "Granted again",
        "Denied",
        "Limited",
        "Busy",
        "Mismatch",
        "Unknown",
        "Kept(Done",
        "Kept(Sealed",
        "Corrupt",
    ];
    let of_commands = ["Ok", "Lost", "Corrupt", "Gone", "Done"];
    let of_commands = ["renew", "release"].into_iter().flat_map(|act| of_commands.map(|word| (act, word)));
    let of_commands = of_commands.chain(["Ok", "Lost", "Corrupt"].map(|word| ("complete", word)));
    let of_commands = of_commands.map(|(act, word)| format!("({act:?}, {word})"));
    for word in words.map(str::to_owned).into_iter().chain(of_commands) {
        let count = world.said.get(&word).copied().unwrap_or_default();
        assert!(count > 60, "{word:?} was said {count} times: {:?}", world.said);
    }
}

/// What each owner was last granted.
#[derive(Default)]
struct Grants(Vec<(Owner, String, u64, u64)>);

impl Grants {
    fn of(&self, owner: Owner, ask: &Ask) -> Option<(u64, u64)> {
        let found = self.0.iter().rev().find(|(by, key, ..)| *by == owner && *key == ask.record_key);
        found.map(|(.., fence, attempt)| (*fence, *attempt))
    }
}

/// One trace from an empty store.
pub fn trace(world: &mut World, random: &mut Random) -> Checked<()> {
    world.clear(random.pick(&[NOW_US, 1_700_000_000_000_000, 4_102_444_800_000_000]));
    let mut grants = Grants::default();
    let until = world.steps + STEPS_OF_A_TRACE;
    while world.steps < until {
        if random.percent(8) {
            tamper(world, random);
        }
        let owner = owner(random.pick(&[1, 1, 2, 3, 4]));
        match random.between(0, 9) {
            0..=4 => begin(world, owner, &mut grants, random)?,
            _ => tell(world, owner, &grants, random)?,
        }
        world.now_us = moved(world.now_us, random);
    }
    Ok(())
}

fn begin(world: &mut World, owner: Owner, grants: &mut Grants, random: &mut Random) -> Checked<()> {
    let asks = random.pick(&[[true, false], [true, false], [false, true], [true, true], [false, false]]);
    let asks: Vec<Ask> = [key(), lock()]
        .into_iter()
        .zip(asks)
        .filter(|(_, is_asked)| *is_asked)
        .map(|(ask, _)| varied(ask, world.now_us, grants, random))
        .collect();
    let mut limits = vec![Limit::window("{k}:window", 2, 60_000_000), Limit::slots(SLOTS, 2, SLOT_LEASE_US)];
    limits.retain(|_| random.percent(60));
    if asks.is_empty() && limits.is_empty() {
        limits.push(Limit::slots(SLOTS, 2, SLOT_LEASE_US));
    }
    limits.iter_mut().for_each(|limit| limit.enforce = random.percent(90));
    let replay = random.percent(50).then(|| Limit::window("{k}:replay", 2, 60_000_000));
    let request = Request { owner, limits, replay, asks };
    let admission =
        world.admit(&request).map_err(|difference| format!("{request:?} at {}: {difference}", world.now_us))?;
    if let Admission::Granted { claims, .. } = admission {
        let granted = request.asks.iter().zip(claims);
        grants.0.extend(granted.map(|(ask, it)| (owner, ask.record_key.clone(), it.fence, it.attempt)));
    }
    Ok(())
}

fn varied(mut ask: Ask, now_us: u64, grants: &Grants, random: &mut Random) -> Ask {
    if !ask.fingerprint.recipe.is_empty() {
        let (head, body) = (random.pick(&["a", "a", "a", "a", "b"]), random.pick(&["x", "x", "x", "", "y"]));
        ask.fingerprint = fingerprint(head, body, random.pick(&["1", "1", "1", "2"]));
    }
    ask.lease_us = random.pick(&[LEASE_US, LEASE_US, 1_000_000]);
    ask.ttl_ms = random.pick(&[RETENTION_MS, 200_000]);
    ask.on_unknown = random.pick(&[OnUnknown::Reject, OnUnknown::RetryAfterLease]);
    let known = grants.0.iter().map(|(.., fence, _)| *fence).max().unwrap_or_default();
    ask.floor = match random.between(0, 9) {
        0 => now_us + YEAR_US,
        1 => now_us + YEAR_US + 1,
        2 => now_us,
        3..=5 => known,
        _ => 0,
    };
    ask
}

fn tell(world: &mut World, owner: Owner, grants: &Grants, random: &mut Random) -> Checked<()> {
    let asks = random.pick(&[[true, false], [false, true], [true, true]]);
    let claims: Vec<HeldClaim> = [key(), lock()]
        .into_iter()
        .zip(asks)
        .filter(|(_, is_told)| *is_told)
        .map(|(ask, _)| claim(&ask, owner, grants, random))
        .collect();
    let slots: Vec<HeldSlot> = if random.percent(30) { vec![slot(SLOTS, SLOT_LEASE_US)] } else { Vec::new() };
    let holdings = holdings(owner, claims, slots);
    let command = match random.between(0, 2) {
        0 => Command::Renew(holdings),
        1 => Command::Release { holdings, is_uncounted: random.percent(50) },
        _ => completion(owner, grants, random),
    };
    world.tell(&command).map(drop).map_err(|difference| format!("{command:?} at {}: {difference}", world.now_us))
}

fn claim(ask: &Ask, owner: Owner, grants: &Grants, random: &mut Random) -> HeldClaim {
    let fence = fence(ask, owner, grants, random);
    let lease_us = random.pick(&[LEASE_US, 1_000_000, 60_000_000]);
    HeldClaim { lease_us, ttl_ms: random.pick(&[RETENTION_MS, 200_000]), ..held(ask, fence) }
}

fn fence(ask: &Ask, owner: Owner, grants: &Grants, random: &mut Random) -> Option<u64> {
    let known = grants.of(owner, ask).map(|(fence, _)| fence);
    match random.between(0, 9) {
        0 => None,
        1 => known.map(|fence| fence + 1),
        2 => known.map(|fence| fence - 1),
        _ => known,
    }
}

fn completion(owner: Owner, grants: &Grants, random: &mut Random) -> Command {
    let ask = varied(key(), 0, grants, random);
    let fence = fence(&ask, owner, grants, random).unwrap_or(NOW_US);
    let attempt = grants.of(owner, &ask).map_or(1, |(_, attempt)| attempt);
    let kept: Kept = if random.percent(60) { done() } else { sealed() };
    match complete(owner, &ask, fence, kept) {
        Command::Complete(completion) => Command::Complete(Completion { attempt, ..completion }),
        other => other,
    }
}

/// The fields of a record.
const FIELDS: [&str; 16] = ["v", "s", "o", "f", "d", "l", "p", "q", "pv", "n", "t", "c", "h", "b", "e", "x"];

/// Somebody else changes what is stored, or it gets lost.
fn tamper(world: &mut World, random: &mut Random) {
    let ask = random.pick(&[key as fn() -> Ask, lock])();
    let (record, fence) = (ask.record_key.as_str(), ask.fence_key.as_str());
    let ahead = (world.now_us + YEAR_US + random.between(0, 1)).to_string();
    let (remembered, now) = (format!("{ahead}:3"), format!("{}:3", world.now_us));
    let foreign = [
        ("v", "2"),
        ("v", ""),
        ("s", random.pick(&["D", "S", "R"])),
        ("o", "me"),
        ("o", "gg"),
        ("f", "-1"),
        ("f", &ahead),
        ("d", "1e3"),
        ("d", &ahead),
        ("l", ""),
        ("l", "1"),
        ("n", "9007199254740992"),
        ("n", "7"),
        ("t", "x"),
        ("f", "18446744073709551616"),
    ];
    let odd_owner = format!("{}g", "a".repeat(31));
    let commands: Vec<Vec<&str>> = match random.between(0, 18) {
        0 => vec![vec!["DEL", record]],
        1 => vec![vec!["DEL", fence]],
        2 => vec![vec!["DEL", record, fence]],
        3 => vec![vec!["DEL", record], vec!["SET", record, "x"]],
        4 => vec![vec!["DEL", record], vec!["RPUSH", record, "x"]],
        5 => vec![vec!["DEL", fence], vec!["RPUSH", fence, "x"]],
        6 => vec![vec!["SET", fence, random.pick(&["", "x", "7", "1:2:3", "-1:1", "9007199254740992:1"])]],
        7 => vec![vec!["SET", fence, &remembered]],
        8 => vec![vec!["HDEL", record, random.pick(&FIELDS)]],
        9 => vec![vec!["DEL", SLOTS], vec!["SET", SLOTS, "x"]],
        10 => vec![vec!["HSET", record, "o", random.pick(&["ab", &odd_owner])]],
        11 => vec![vec!["HSET", record, "s", "D", "c", "201", "h", "", "b", "", "e", "", "x", ""]],
        12 => vec![
            vec!["HSET", record, "s", "D", "c", "201", "h", "", "b", "", "e", ""],
            random
                .pick(&[
                    &["HDEL", record, "b"][..],
                    &["HDEL", record, "c"],
                    &["HDEL", record, "e"],
                    &["HDEL", record, "h"],
                    &["HSET", record, "c", "2000"],
                    &["HSET", record, "e", "gzip"],
                    &["HSET", record, "s", "X"],
                ])
                .to_vec(),
        ],
        13 => vec![vec!["HSET", record, "s", "S", "c", "201", "h", ""], vec!["HDEL", record, "x"]],
        14 => vec![vec!["SET", fence, &now], vec!["DEL", record]],
        15 => vec![vec!["SET", fence, "0:0"], vec!["HSET", record, "n", "0"]],
        16 => vec![vec!["PERSIST", record], vec!["PERSIST", fence], vec!["PERSIST", SLOTS]],
        17 => {
            let live = [(owner(8), world.now_us + 5_000_000), (owner(9), world.now_us - 1)];
            return world.plant_slots(live.into());
        }
        _ => {
            let (field, value) = random.pick(&foreign);
            vec![vec!["HSET", record, field, value]]
        }
    };
    let commands: Vec<_> = commands.iter().map(|command| words(command)).collect();
    if commands[0][1] == SLOTS.as_bytes() {
        world.oracle.counts.slots.remove(SLOTS);
    }
    world.tamper(&ask, &commands);
}

fn moved(now_us: u64, random: &mut Random) -> u64 {
    match random.between(0, 39) {
        0 => now_us - 3_600_000_000,
        1 => now_us - LEASE_US / 2,
        2 => now_us + 3_600_000_000,
        3 | 4 => now_us - random.between(1, 1_000_000),
        5..=8 => now_us + LEASE_US,
        9..=11 => now_us + SLOT_LEASE_US,
        12..=14 => now_us + 1_000_000,
        15..=22 => now_us,
        _ => now_us + random.between(1, 3_000_000),
    }
}
