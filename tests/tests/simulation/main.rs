//! Many gateways against one store in virtual time, with every fault that a network and a store can have, seed by seed.
//! A failure prints its seed; `LOCKKEEPER_SIMULATION_SEED=<seed>` repeats it alone, and
//! `LOCKKEEPER_SIMULATION_SEEDS=<count>` runs more than usual.

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

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use summary::Summary;
use world::World;

/// Seeds of an ordinary run: about 100,000 requests.
const SEEDS: u64 = 60;

#[test]
fn whatever_fails_every_request_is_decided_once_in_time_and_by_its_own_reply() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    if let Some(seed) = number("LOCKKEEPER_SIMULATION_SEED") {
        return println!("{:#?}", run(seed..seed + 1, 1));
    }
    let seeds = number("LOCKKEEPER_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut total = Summary::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|first| scope.spawn(move || run(first..seeds, threads))).collect();
        for worker in workers {
            total.add(worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    println!("{total:#?}");
    total.assert_everything_happened(seeds);
}

/// Runs every `step`th seed.
fn run(seeds: Range<u64>, step: u64) -> Summary {
    let mut total = Summary::default();
    for seed in seeds.step_by(step as usize) {
        match catch_unwind(AssertUnwindSafe(|| World::new(seed).run())) {
            Ok(summary) => total.add(summary),
            Err(panic) => {
                eprintln!("the simulation failed: repeat it with LOCKKEEPER_SIMULATION_SEED={seed}");
                resume_unwind(panic);
            }
        }
    }
    total
}
