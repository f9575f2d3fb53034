//! A step of the wall clock, by an hour either way, changes nothing.

use crate::{config, per_user};
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::{Envoy, StepClock, poll};
use serde_json::json;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HOUR_SECONDS: i64 = 3_600;

/// A window shorter than the step that has no edge within the next minutes; windows are multiples on the monotonic clock.
fn window_without_edge() -> &'static str {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call gets the address of a live value of its type.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let left = |minutes: i64| minutes * 60 - now.tv_sec % (minutes * 60);
    if left(59) > left(47) { "59m" } else { "47m" }
}

/// How far the `date` that Envoy sends is from ours.
fn wall_clock_step(response: &Response) -> i64 {
    let date = response.header("date").expect("Envoy dates its answers");
    let output = Command::new("date").args(["--utc", "+%s", "--date", date]).output().expect("date runs");
    let seconds: i64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("date prints seconds");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs();
    seconds - i64::try_from(now).expect("seconds fit")
}

#[test]
fn a_step_of_the_wall_clock_grants_and_takes_nothing() {
    let clock = StepClock::build().expect("the clock that steps builds");
    let window = window_without_edge();
    let limits = [
        ("bucket", json!({ "algorithm": "token_bucket", "capacity": 50, "refill": "1/1m" })),
        ("fixed", json!({ "algorithm": "fixed_window", "limit": 50, "window": window })),
        ("log", json!({ "algorithm": "sliding_window", "limit": 50, "window": window })),
        ("counter", json!({ "algorithm": "sliding_window_counter", "limit": 50, "window": window })),
    ]
    .map(|(name, numbers)| (name, per_user(numbers)));
    let config = clock.of(config(&limits).concurrency(2));
    let envoy = Envoy::start(&config).expect("Envoy starts");
    let send = |name: &str, user: &str| {
        let request = Request::get(&format!("/{name}")).header("x-user", user);
        envoy.client().send(&request).expect("an answer")
    };
    for seconds in [HOUR_SECONDS, -HOUR_SECONDS] {
        let user = format!("stepped {seconds}");
        for (name, _) in &limits {
            clock.set(0);
            let admitted = (0..60).filter(|_| send(name, &user).status == 200).count();
            assert_eq!(admitted, 50, "{name} before the step");
            clock.set(seconds);
            // Envoy writes the date anew every half second.
            let stepped = poll::until("Envoy's clock steps", Duration::from_secs(5), || {
                let response = send(name, &user);
                assert_eq!(response.status, 429, "{name} after a step of {seconds} s");
                ((wall_clock_step(&response) - seconds).abs() < 10).then_some(response)
            });
            let stepped = stepped.expect("the step reaches Envoy");
            let retry_after: i64 =
                stepped.header("retry-after").and_then(|text| text.parse().ok()).expect("a retry time");
            println!("{name} after a step of {seconds} s: denied, retry after {retry_after} s");
            assert!((1..HOUR_SECONDS).contains(&retry_after), "{name}: retry after {retry_after} s");
            assert!((0..20).all(|_| send(name, &user).status == 429), "{name} after a step of {seconds} s");
            let fresh = (0..60).filter(|_| send(name, &format!("fresh {seconds}")).status == 200).count();
            assert_eq!(fresh, 50, "{name}: a client that came after the step");
        }
    }
}
