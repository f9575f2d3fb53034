//! Faults that real rate limiters had, each as a trace on both the script and Rust. Times are seconds after an edge that
//! every window used here starts at.

use lockkeeper_core::algorithm::{
    Algorithm, FixedWindow, LogState, SlidingWindow, SlidingWindowCounter, State, TokenBucket,
};

use crate::plant::Plant;
use crate::world::{Limit, World};

const SECOND_US: u64 = 1_000_000;
/// A multiple of 30 minutes, and of 900 s.
const EDGE_US: u64 = 1_796_083_200_000_000;

fn second(seconds: f64) -> u64 {
    EDGE_US + (seconds * 1e6).round() as u64
}

fn world() -> World {
    World::new(EDGE_US)
}

fn bucket(capacity: u64, tokens: u64, period_s: u64) -> TokenBucket {
    TokenBucket::new(capacity, tokens, period_s * SECOND_US).expect("a bucket")
}

fn fixed(limit: u64, window_s: u64) -> FixedWindow {
    FixedWindow::new(limit, window_s * SECOND_US).expect("a window")
}

fn counter(limit: u64, window_s: u64) -> SlidingWindowCounter {
    SlidingWindowCounter::new(limit, window_s * SECOND_US).expect("a counter")
}

fn log(limit: u64, window_s: u64) -> SlidingWindow {
    SlidingWindow::new(limit, window_s * SECOND_US).expect("a log")
}

/// Seconds at which one request each was admitted.
fn admitted_at(world: &mut World, limit: &Limit, seconds: impl IntoIterator<Item = f64>) -> Vec<f64> {
    seconds.into_iter().filter(|at| world.at(second(*at)).one(limit).admitted).collect()
}

#[test]
fn alg_01_a_denial_does_not_move_the_refill_clock() {
    let mut world = world();
    let quick = Limit::new("quick", bucket(1, 1, 1));
    let polled = admitted_at(&mut world, &quick, (0..=8).map(|half| f64::from(half) / 2.0));
    assert_eq!(polled, [0.0, 1.0, 2.0, 3.0, 4.0]);

    let slow = Limit::new("slow", bucket(100, 100, 900));
    assert_eq!(world.at(second(0.0)).admitted(101, &slow), 100);
    let polled = admitted_at(&mut world, &slow, (1..=60).map(f64::from));
    assert_eq!(polled, [9.0, 18.0, 27.0, 36.0, 45.0, 54.0]);
}

#[test]
fn alg_03_a_denied_expensive_request_takes_nothing() {
    let mut world = world();
    let cheap = Limit::new("key", bucket(10, 1, 10));
    assert_eq!(world.admitted(8, &cheap), 8);
    let denied = world.one(&cheap.clone().cost(5));
    assert_eq!((denied.admitted, denied.remaining, denied.retry_us), (false, 2, 30 * SECOND_US));
    assert_eq!(world.admitted(2, &cheap), 2);
    let impossible = world.one(&cheap.clone().cost(12));
    assert_eq!((impossible.admitted, impossible.remaining), (false, 0));
    let State::TokenBucket(state) = world.state("key") else { panic!("a bucket is stored") };
    assert_eq!(cheap.algorithm.fresh_at_us(&State::TokenBucket(state), EDGE_US), EDGE_US + 100 * SECOND_US);
}

#[test]
fn alg_04_the_counter_weighs_the_window_before() {
    let mut world = world();
    let limit = Limit::new("a", counter(100, 60));
    assert_eq!(world.at(second(30.0)).admitted(50, &limit), 50);
    assert_eq!(world.at(second(60.0)).admitted(10, &limit), 10);
    assert_eq!(world.at(second(66.0)).one(&limit).remaining, 44);
    assert_eq!(world.admitted(60, &limit), 44);

    let worst = Limit::new("b", counter(100, 60));
    assert_eq!(world.at(second(59.9)).admitted(100, &worst), 100);
    let late = (0..=1180).map(|step| 60.0 + f64::from(step) / 20.0);
    assert_eq!(admitted_at(&mut world, &worst, late).len(), 98);
}

#[test]
fn alg_06_capacity_is_the_burst_exactly() {
    let mut world = world();
    let limit = Limit::new("key", bucket(5, 10, 1));
    assert_eq!(world.admitted(6, &limit), 5);
    assert!(!world.at(second(0.099)).one(&limit).admitted);
    assert!(world.at(second(0.1)).one(&limit).admitted);
    assert_eq!(world.at(second(10.0)).admitted(6, &limit), 5);
}

#[test]
fn alg_07_a_request_that_one_limit_denies_spends_no_other() {
    let mut world = world();
    let limits = [Limit::new("minute", fixed(10, 60)), Limit::new("half-hour", fixed(30, 1800))];
    let mut burst = |at: f64, count: usize| {
        world.at(second(at));
        (0..count).filter(|_| world.decide(&limits).allowed).count()
    };
    assert_eq!((burst(0.0, 16), burst(60.0, 15), burst(120.0, 1)), (10, 10, 1));
    let State::FixedWindow(half_hour) = world.state("half-hour") else { panic!("a window is stored") };
    assert_eq!(half_hour.count, 21);
}

#[test]
fn a_shadow_limit_is_charged_only_with_all_enforced_ones() {
    let mut world = world();
    let limits = [Limit::new("enforced", fixed(2, 60)), Limit::new("shadow", fixed(1, 60)).shadow()];
    let outcomes: Vec<_> = (0..3).map(|_| world.decide(&limits)).collect();
    assert_eq!(outcomes.iter().map(|it| it.allowed).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(outcomes.iter().map(|it| it.verdicts[1].admitted).collect::<Vec<_>>(), [true, false, false]);

    let limits = [Limit::new("none", fixed(1, 60)).cost(2), Limit::new("watching", fixed(5, 60)).shadow()];
    let denied = world.decide(&limits);
    assert_eq!((denied.allowed, denied.verdicts[1].admitted, denied.verdicts[1].remaining), (false, true, 5));
    assert_eq!(world.state("watching"), State::Absent);
}

#[test]
fn clk_01_a_clock_that_steps_back_credits_nothing_and_strands_nobody() {
    let mut world = world();
    let limit = Limit::new("key", bucket(4, 2, 1));
    assert_eq!(world.at(second(100.0)).admitted(5, &limit), 4);
    assert_eq!(world.at(second(90.0)).admitted(5, &limit), 0);
    assert!(!world.at(second(90.4)).one(&limit).admitted);
    assert!(world.at(second(90.5)).one(&limit).admitted, "the wait is counted from the clock's new time");
    assert_eq!(world.at(second(100.0)).admitted(9, &limit), 4, "a step forward fills the bucket once");

    for (key, algorithm) in every("back", 5, 60) {
        let limit = Limit::new(&key, algorithm);
        assert_eq!(world.at(second(7200.0)).admitted(6, &limit), 5, "{key}");
        assert_eq!(world.at(second(3600.0)).admitted(6, &limit), 0, "{key}");
        assert_eq!(world.at(second(3720.0)).admitted(6, &limit), 5, "{key}");
    }
}

#[test]
fn clk_03_state_and_reply_keep_every_digit() {
    let mut world = world();
    for (key, algorithm) in every("digits", 50, 60) {
        let limit = Limit::new(&key, algorithm);
        world.at(EDGE_US + 123_456).one(&limit);
        world.at(EDGE_US + 123_496).one(&limit);
        let texts = world.texts(&key, &limit.algorithm);
        let expected: &[&str] = match limit.algorithm {
            Algorithm::Concurrency(_) => &[],
            Algorithm::FixedWindow(_) => &["1796083200000000:2"],
            Algorithm::SlidingWindow(_) => &["1796083200123456:0:1", "1796083200123496:1:2"],
            Algorithm::SlidingWindowCounter(_) => &["1796083200000000:2:0"],
            Algorithm::TokenBucket(_) => &["57600040:1796083200123496:1200000"],
        };
        assert_eq!(texts, expected);
    }
}

#[test]
fn ttl_01_an_immortal_counter_serves_again_a_window_later() {
    let mut world = world();
    let limit = Limit::new("immortal", fixed(5, 60));
    world.plant(&limit, Plant::Text(&format!("{EDGE_US}:99")));
    assert_eq!(world.one(&limit).retry_us, 60 * SECOND_US);
    assert!(world.at(second(60.0)).one(&limit).admitted);

    for plant in [Plant::Text("99"), Plant::Text(""), Plant::List(&["99"]), Plant::Hash] {
        for (key, algorithm) in every("planted", 5, 60) {
            let limit = Limit::new(&key, algorithm);
            world.plant(&limit, plant);
            assert_eq!(world.admitted(6, &limit), 5, "{key} after {plant:?}");
            world.plant(&limit, Plant::Immortal);
            assert!(!world.one(&limit).admitted, "{key} after {plant:?}");
        }
        let later = world.now_us + 600 * SECOND_US;
        world.at(later);
    }
}

#[test]
fn ttl_01_a_client_at_every_edge_is_always_served() {
    let edges = (0..60).map(|minute| f64::from(minute) * 60.0);
    assert_eq!(admitted_at(&mut world(), &Limit::new("key", fixed(1, 60)), edges).len(), 60);
}

#[test]
fn ttl_03_a_lifetime_is_neither_prolonged_nor_too_short() {
    let mut world = world();
    let slow = Limit::new("slow", fixed(3, 60));
    assert_eq!(admitted_at(&mut world, &slow, [0.0, 59.0, 118.0, 177.0]).len(), 4);
    let limit = Limit::new("bucket", bucket(3, 1, 15));
    assert_eq!(world.at(second(200.0)).admitted(4, &limit), 3);
    assert!(world.at(second(220.0)).one(&limit).admitted);
    assert_eq!(world.one(&limit).retry_us, 10 * SECOND_US);
}

#[test]
fn ttl_04_the_window_before_is_still_known() {
    let mut world = world();
    let limit = Limit::new("key", counter(100, 60));
    assert!(world.at(second(0.5)).one(&limit).admitted);
    assert_eq!(world.at(second(59.0)).admitted(99, &limit), 99);
    assert_eq!(world.at(second(61.0)).admitted(2, &limit), 1);
}

#[test]
fn hdr_01_waits_are_true_and_never_zero_on_a_denial() {
    let mut world = world();
    let half = Limit::new("half", bucket(1, 2, 1));
    assert_eq!(world.admitted(1, &half), 1);
    assert_eq!(world.one(&half).retry_us, SECOND_US / 2);
    let window = Limit::new("window", fixed(5, 60));
    assert_eq!(world.at(second(12.0)).admitted(7, &window), 5);
    let denied = world.one(&window);
    assert_eq!((denied.remaining, denied.reset_us, denied.retry_us), (0, 48 * SECOND_US, 48 * SECOND_US));
}

#[test]
fn hdr_02_obeying_retry_after_works() {
    let mut world = world();
    let limits: [(Algorithm, u64); 4] = [
        (fixed(5, 60).into(), 48),
        (log(5, 60).into(), 60),
        (counter(5, 60).into(), 60),
        (bucket(5, 1, 12).into(), 12),
    ];
    for (index, (algorithm, seconds)) in limits.into_iter().enumerate() {
        let limit = Limit::new(&index.to_string(), algorithm);
        assert_eq!(world.at(second(12.0)).admitted(5, &limit), 5);
        let denied_us = second(12.34);
        let denied = world.at(denied_us).one(&limit);
        assert!(!denied.admitted);
        let retry_after = denied.retry_us.div_ceil(SECOND_US);
        assert_eq!(retry_after, seconds, "{:?}", limit.algorithm);
        assert!(world.at(denied_us + retry_after * SECOND_US).one(&limit).admitted, "{:?}", limit.algorithm);
    }
}

#[test]
fn cfg_05_changed_numbers_neither_reset_nor_strand() {
    let mut world = world();
    let limit = |limit| Limit::new("window", fixed(limit, 3600));
    assert_eq!(world.at(second(10.0)).admitted(50, &limit(10)), 10);
    assert_eq!(world.admitted(15, &limit(20)), 10);
    let cut = world.one(&limit(5));
    assert_eq!((cut.admitted, cut.remaining, cut.retry_us), (false, 0, 3590 * SECOND_US));

    let large = Limit::new("bucket", bucket(1000, 1000, 1));
    let small = Limit::new("bucket", bucket(10, 10, 1));
    assert_eq!(world.admitted(1001, &large), 1000);
    assert_eq!(world.at(second(11.5)).admitted(20, &small), 10);

    for (key, algorithm) in every("cut", 50, 60) {
        assert_eq!(world.at(second(7200.0)).admitted(60, &Limit::new(&key, algorithm)), 50, "{key}");
    }
    for (key, algorithm) in every("cut", 5, 60) {
        let cut = world.one(&Limit::new(&key, algorithm));
        assert_eq!((cut.admitted, cut.remaining), (false, 0), "{key}");
        assert!((1..=120 * SECOND_US).contains(&cut.retry_us), "{key}: {cut:?}");
    }
}

#[test]
fn prf_03_a_log_holds_admitted_requests_only() {
    let mut world = world();
    let limit = Limit::new("key", log(10, 60));
    assert_eq!(world.admitted(20, &limit), 10);
    for tenth in 1..600 {
        let early = world.at(second(f64::from(tenth) / 10.0)).one(&limit);
        assert!(!early.admitted);
        assert_eq!(entries(world.state("key")), 10);
    }
    assert!(!world.at(second(60.0) - 1).one(&limit).admitted);
    assert_eq!(world.at(second(60.0)).admitted(20, &limit), 10);
    assert_eq!(world.texts("key", &limit.algorithm).len(), 10);
}

fn entries(state: State) -> usize {
    match state {
        State::SlidingWindow(LogState { entries }) => entries.len(),
        _ => 0,
    }
}

/// Each algorithm under a key of its own.
fn every(prefix: &str, limit: u64, window_s: u64) -> [(String, Algorithm); 4] {
    [
        (format!("{prefix}:window"), fixed(limit, window_s).into()),
        (format!("{prefix}:log"), log(limit, window_s).into()),
        (format!("{prefix}:counter"), counter(limit, window_s).into()),
        (format!("{prefix}:bucket"), bucket(limit, limit, window_s).into()),
    ]
}
