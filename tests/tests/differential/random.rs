//! Random traces over every algorithm, alone and stacked, with the smallest and the largest numbers that load.

use lockkeeper_core::algorithm::{
    AMOUNT_MAX, Algorithm, CONCURRENCY_MAX, Charge, Concurrency, FixedWindow, LOG_LIMIT_MAX, SlidingWindow,
    SlidingWindowCounter, State, TokenBucket, WINDOW_US_MAX, WINDOW_US_MIN, decide,
};

use crate::plant::Plant;
use crate::world::{Limit, World};

const STEPS_OF_A_SEED: u64 = 12_000;
const STEPS_OF_A_TRACE: u64 = 80;
const SEEDS: [u64; 2] = [1, 20_260_229];

/// A small, seeded source of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[test]
fn the_script_and_rust_agree_on_random_traces() {
    let more = std::env::var("LOCKKEEPER_SEEDS").unwrap_or_default();
    let more = more.split_whitespace().map(|seed| seed.parse().expect("LOCKKEEPER_SEEDS holds numbers"));
    let mut world = World::new(0);
    for seed in SEEDS.into_iter().chain(more) {
        let on_failure = OnFailure(seed);
        let (mut random, until) = (Random(seed), world.steps + STEPS_OF_A_SEED);
        while world.steps < until {
            trace(&mut world, &mut random);
        }
        std::mem::forget(on_failure);
    }
    assert_eq!(world.tallies.len(), 4);
    for tally in world.tallies.values() {
        let least = tally.admitted.min(tally.denied);
        assert!(least > 1_000 && tally.healed > 100, "too little was tried: {:?}", world.tallies);
    }
}

struct OnFailure(u64);

impl Drop for OnFailure {
    fn drop(&mut self) {
        eprintln!("failed with seed {}: run again with LOCKKEEPER_SEEDS={}", self.0, self.0);
    }
}

fn trace(world: &mut World, random: &mut Random) {
    let start_us = random.of(&[1_700_000_000_000_000, 1_796_083_200_123_456, 4_102_444_800_000_000]);
    world.clear(start_us + random.below(WINDOW_US_MAX));
    let mut limits: Vec<Limit> = (0..random.of(&[1, 1, 1, 2, 3]))
        .map(|index| Limit::new(&format!("{{trace}}:{index}"), algorithm(random)))
        .collect();
    let until = world.steps + STEPS_OF_A_TRACE;
    while world.steps < until {
        for limit in &mut limits {
            change(limit, random);
            if random.chance(3) {
                plant(world, limit, random);
            }
        }
        let verdicts = world.decide(&limits).verdicts;
        let chosen = random.below(limits.len() as u64) as usize;
        promises(world, &limits[chosen], verdicts[chosen].remaining, verdicts[chosen].reset_us);
        if !verdicts[chosen].admitted && random.chance(30) {
            obey(world, &limits, chosen, verdicts[chosen].retry_us);
        }
        world.now_us = moved(world.now_us, &limits[chosen].algorithm, random);
    }
}

/// Waits as told: one µs too early fails, in time succeeds.
fn obey(world: &mut World, limits: &[Limit], chosen: usize, retry_us: u64) {
    let denied_at_us = world.now_us;
    if limits[chosen].cost > limits[chosen].algorithm.allowance() {
        return;
    }
    assert!(retry_us > 0, "a denial by {:?} promises nothing", limits[chosen]);
    let alone = &limits[chosen..=chosen];
    let early = world.at(denied_at_us + retry_us - 1).decide(alone);
    assert!(!early.verdicts[0].admitted, "one µs before the promised time {:?} admits", limits[chosen]);
    let obedient = world.at(denied_at_us + retry_us).decide(alone);
    assert!(obedient.verdicts[0].admitted, "at the promised time {:?} denies", limits[chosen]);
}

/// One unit more than `remaining` is there at the reset, and not 1 µs before.
fn promises(world: &World, limit: &Limit, remaining: u64, reset_us: u64) {
    let has = |amount: u64, now_us: u64| {
        let charge = Charge { algorithm: &limit.algorithm, cost: amount, enforce: true };
        decide(&[charge], &mut [world.state(&limit.key)], now_us).allowed
    };
    let now_us = world.now_us;
    assert!(remaining == 0 || has(remaining, now_us), "{remaining} remaining of {limit:?}");
    if remaining == limit.algorithm.allowance() {
        assert_eq!(reset_us, 0, "{limit:?} is full");
    } else {
        assert!(!has(remaining + 1, now_us + reset_us - 1), "{limit:?} resets before {reset_us}");
        assert!(has(remaining + 1, now_us + reset_us), "{limit:?} has not reset after {reset_us}");
    }
    assert!(matches!(limit.algorithm, Algorithm::SlidingWindow(_)) || world.state(&limit.key).texts().len() <= 1);
}

fn change(limit: &mut Limit, random: &mut Random) {
    let allowance = limit.algorithm.allowance();
    limit.cost = match random.below(20) {
        0 => allowance,
        1 => allowance.div_ceil(2),
        2 => 1 + random.below(allowance),
        3 => allowance + 1,
        4 => 1 + random.below(allowance.min(5)),
        _ => 1.max(allowance / random.of(&[5, 10, 100])),
    };
    limit.enforce = !random.chance(10);
    if random.chance(2) {
        limit.algorithm = if random.chance(20) { algorithm(random) } else { renumbered(&limit.algorithm, random) };
    }
}

fn plant(world: &mut World, limit: &Limit, random: &mut Random) {
    let texts = [
        "abc",
        "",
        "99",
        "1:2:3:4",
        "-1:5:1",
        "1e3:2:1",
        "18446744073709551616:1:1",
        "9007199254740992:1:1",
        "9007199254740991:9007199254740991:1",
        "9007199254740991:9007199254740991",
        "7:0009:2",
        "1:1:0",
    ];
    match random.below(7) {
        0 | 1 => world.plant(limit, Plant::Immortal),
        2 | 3 if world.state(&limit.key) != State::Absent => world.plant(limit, Plant::Hasty),
        4 => world.plant(limit, Plant::List(&["abc", "1:2"])),
        5 => world.plant(limit, Plant::Hash),
        _ => world.plant(limit, Plant::Text(random.of(&texts))),
    }
}

fn moved(now_us: u64, algorithm: &Algorithm, random: &mut Random) -> u64 {
    let (window_us, quantum_us) = (algorithm.window_us().min(WINDOW_US_MAX), algorithm.quantum_us());
    let steps = [0, 0, 1, quantum_us, window_us / 100, window_us / 10, window_us / 3, window_us, 2 * window_us];
    match random.below(30) {
        0 => now_us - window_us / 3,
        1 => now_us - 2 * window_us,
        2 => now_us - random.below(1_000_000),
        3 => now_us + 3 * window_us + random.below(5_000_000),
        _ => now_us + random.of(&steps) + random.below(2) * random.below(window_us / 50 + 1),
    }
}

fn algorithm(random: &mut Random) -> Algorithm {
    loop {
        let amount = amount(random);
        let window_us = window_us(random);
        let algorithm = match random.below(4) {
            0 => FixedWindow::new(amount, window_us).map(Into::into),
            1 => SlidingWindow::new(amount.min(log_limit(random)), window_us).map(Into::into),
            2 => SlidingWindowCounter::new(amount, window_us).map(Into::into),
            _ => TokenBucket::new(amount, self::amount(random), window_us).map(Into::into),
        };
        if let Ok(algorithm) = algorithm {
            return algorithm;
        }
    }
}

/// The same algorithm with other numbers.
fn renumbered(algorithm: &Algorithm, random: &mut Random) -> Algorithm {
    let kind = std::mem::discriminant(algorithm);
    let allowance = algorithm.allowance();
    let changed = random.of(&[allowance.div_ceil(2), allowance * 2, allowance + 1]).min(AMOUNT_MAX);
    let window_us = algorithm.window_us().clamp(WINDOW_US_MIN, WINDOW_US_MAX);
    let simple = match algorithm {
        Algorithm::Concurrency(_) => Concurrency::new(changed.min(CONCURRENCY_MAX), window_us).map(Into::into),
        Algorithm::FixedWindow(_) => FixedWindow::new(changed, window_us).map(Into::into),
        Algorithm::SlidingWindow(_) => SlidingWindow::new(changed.min(LOG_LIMIT_MAX), window_us).map(Into::into),
        Algorithm::SlidingWindowCounter(_) => SlidingWindowCounter::new(changed, window_us).map(Into::into),
        Algorithm::TokenBucket(_) => TokenBucket::new(changed, allowance, window_us).map(Into::into),
    };
    if let (Ok(algorithm), true) = (simple, random.chance(60)) {
        return algorithm;
    }
    loop {
        let other = self::algorithm(random);
        if std::mem::discriminant(&other) == kind {
            return other;
        }
    }
}

fn amount(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 1,
        1 => AMOUNT_MAX,
        2 => 1 + random.below(AMOUNT_MAX),
        3 => 1 + random.below(1_000_000),
        _ => random.of(&[2, 3, 5, 7, 10, 50, 100]),
    }
}

fn log_limit(random: &mut Random) -> u64 {
    random.of(&[1, 5, 20, 100, LOG_LIMIT_MAX])
}

fn window_us(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => WINDOW_US_MIN,
        1 => WINDOW_US_MAX,
        2 => WINDOW_US_MIN + random.below(10_000_000),
        3 => WINDOW_US_MIN + random.below(WINDOW_US_MAX - WINDOW_US_MIN),
        _ => random.of(&[10_000, 1_000_000, 10_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]),
    }
}
