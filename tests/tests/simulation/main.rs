//! Many gateways against one store in virtual time, with every fault that a network and a store can have, seed by seed.
//! A failure prints its seed; `LOCKKEEPER_SIMULATION_SEED=<seed>` runs that one alone.

mod faults;
mod gateway;
mod network;
mod policy;
mod random;
mod requests;
mod store;
mod summary;
mod traffic;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use summary::Summary;
use world::World;

/// Seeds of an ordinary run.
const SEEDS: u64 = 400;

#[test]
fn whatever_fails_every_request_is_decided_once_in_time_and_by_its_own_reply() {
    let seeds = match std::env::var("LOCKKEEPER_SIMULATION_SEED") {
        Ok(seed) => seed.parse().map(|seed| seed..seed + 1).expect("LOCKKEEPER_SIMULATION_SEED is a number"),
        Err(_) => 0..SEEDS,
    };
    let whole_run = seeds.end - seeds.start == SEEDS;
    let mut total = Summary::default();
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| World::new(seed).run())) {
            Ok(summary) => total.add(summary),
            Err(panic) => {
                eprintln!("the simulation failed: repeat it with LOCKKEEPER_SIMULATION_SEED={seed}");
                resume_unwind(panic);
            }
        }
    }
    println!("{total:#?}");
    if whole_run {
        total.assert_everything_happened();
    }
}
