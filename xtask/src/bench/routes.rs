//! The time it takes to find the policy of a request among many routes, against few.

use super::row::{self, Row};
use anyhow::Result;
use lockkeeper_core::engine::Engine;
use lockkeeper_core::policy::PolicySet;
use lockkeeper_core::policy::load::LoadOptions;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};

const FEW: usize = 10;
const MANY: usize = 1_000;
/// Requests of one measurement.
const REQUESTS: usize = 20_000;

/// One row: the time among many routes in times of that among few.
pub fn measure(rounds: usize) -> Result<Row> {
    eprintln!("bench: {} requests among {FEW} and {MANY} routes", REQUESTS * rounds);
    let (few, many) = (engine(FEW)?, engine(MANY)?);
    let pairs: Vec<(f64, f64)> = (0..rounds).map(|_| (nanoseconds(&few, FEW), nanoseconds(&many, MANY))).collect();
    let median = |time: &dyn Fn(&(f64, f64)) -> f64| row::median(pairs.iter().map(time).collect());
    let detail = format!(
        "{:.0} ns a request among {MANY} routes, {:.0} ns among {FEW}",
        median(&|pair| pair.1),
        median(&|pair| pair.0)
    );
    let value = median(&|pair| pair.1 / pair.0);
    Ok(Row { name: "routes_1000".into(), connections: None, value, budget: row::ROUTES, detail, fault: None })
}

/// Routes of five kinds in turn, on ten hosts.
fn engine(routes: usize) -> Result<Engine> {
    let limit = json!({ "name": "l", "algorithm": "fixed_window", "limit": 1, "window": "1s", "key": ["route"] });
    let routes: Vec<Value> = (0..routes).map(|number| json!({ "match": matching(number), "policy": "api" })).collect();
    let file = json!({ "version": 1, "policies": { "api": { "limits": [limit] } }, "routes": routes });
    Ok(Engine::new(PolicySet::from_json(file.to_string().as_bytes(), LoadOptions::default())?))
}

fn matching(number: usize) -> Value {
    let host = format!("{}.example.com", number % 10);
    match number % 5 {
        0 => json!({ "host": host, "path": format!("/v1/exact-{number}") }),
        1 => json!({ "host": host, "path": format!("/v1/things-{number}/{{id}}") }),
        2 => json!({ "host": host, "path": format!("/v1/below-{number}/*") }),
        3 => json!({ "path": format!("/v1/{{tenant}}/reports-{number}"), "methods": ["GET"] }),
        _ => json!({ "host": format!("*.{host}"), "path": format!("/v1/exact-{number}"), "methods": ["GET"] }),
    }
}

fn request(number: usize) -> (String, String) {
    let host = format!("{}.example.com", number % 10);
    match number % 5 {
        0 => (host, format!("/v1/exact-{number}")),
        1 => (host, format!("/v1/things-{number}/7")),
        2 => (host, format!("/v1/below-{number}/a/b")),
        3 => (host, format!("/v1/acme/reports-{number}")),
        _ => (format!("www.{host}"), format!("/v1/exact-{number}")),
    }
}

/// The mean time of a selection. Panics when a request finds no route: it would flatter.
fn nanoseconds(engine: &Engine, routes: usize) -> f64 {
    // As many different requests of the same kinds for both, so that only the routes differ.
    let number = |step: usize| step * (routes / FEW) / 5 * 5 + step % 5;
    let requests: Vec<(String, String)> = (0..FEW).map(|step| request(number(step))).collect();
    let mut elapsed = Duration::ZERO;
    for _ in 0..REQUESTS / FEW {
        let start = Instant::now();
        for (host, target) in &requests {
            let selection = engine.select("GET", black_box(host), black_box(target));
            assert!(selection.route().is_some(), "{host}{target} has no route");
        }
        elapsed += start.elapsed();
    }
    elapsed.as_nanos() as f64 / REQUESTS as f64
}
