//! `cargo xtask bench`: what a decision costs, as ratios of runs made in turn on this machine. Absolute times say nothing here.

mod claims;
mod distance;
mod gateways;
mod routes;
mod row;
mod script_time;
mod worker;
mod wrk;

use crate::build;
use anyhow::Result;
use gateways::{Gateways, Round, Subject};
use lockkeeper_tests::{Redis, paths, tools};
use row::{Budget, Row};
use std::process::ExitCode;
use std::time::Duration;

const CONNECTIONS: [u32; 3] = [1, 64, 256];
/// The least share of a strict run's requests that Redis must have decided for the run to count.
const DECIDED_BY_REDIS_MIN: f64 = 0.99;

/// How to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Measure for a third of the time: for a first impression
    #[arg(long)]
    quick: bool,
    /// Measure a part only
    #[arg(long)]
    only: Option<Part>,
}

/// Figures that are measured together.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Requests with idempotency keys
    Claims,
    /// Requests through Envoy, and the size of the filter
    Envoy,
    /// The time it takes to find a policy among many routes
    Routes,
    /// The time of a decision inside Redis
    Script,
    /// Requests through the Worker, and the time it takes to start
    Worker,
}

/// How long and how often each figure is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    run: Duration,
    /// Odd, so that the median is one of them.
    rounds: usize,
}

/// Measures everything and prints a row for each figure; the exit code fails when one misses its gate.
pub fn run(options: &Options) -> Result<ExitCode> {
    let effort = match options.quick {
        false => Effort { run: Duration::from_secs(2), rounds: 5 },
        true => Effort { run: Duration::from_secs(1), rounds: 3 },
    };
    warn_when_busy();
    let wanted = |part| options.only.is_none_or(|only| only == part);
    let mut rows = Vec::new();
    if wanted(Part::Routes) {
        rows.push(routes::measure(effort.rounds)?);
    }
    if [Part::Script, Part::Envoy, Part::Claims, Part::Worker].into_iter().any(wanted) {
        let redis = Redis::start()?;
        if wanted(Part::Script) {
            rows.extend(script_time::measure(&redis, effort.rounds)?);
        }
        if wanted(Part::Envoy) {
            tools::wrk()?;
            build::filter()?;
            rows.extend(gateway_rows(&redis, effort)?);
            rows.extend(distance::measure(&redis, effort)?);
            rows.push(size()?);
        }
        if wanted(Part::Claims) {
            tools::wrk()?;
            build::filter()?;
            rows.extend(claims::measure(&redis, effort)?);
        }
        if wanted(Part::Worker) {
            tools::wrk()?;
            crate::worker::worker()?;
            rows.extend(worker::measure(&redis, effort)?);
        }
    }
    if options.json {
        rows.iter().for_each(|row| println!("{}", row.json()));
    } else {
        row::print_table(&rows);
    }
    Ok(if rows.iter().all(Row::passes_gate) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Even ratios suffer when other work takes the processors in the middle of a pair.
fn warn_when_busy() {
    let load =
        std::fs::read_to_string("/proc/loadavg").ok().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    if let Some(load) = load.filter(|load| *load > 1.0) {
        eprintln!("bench: other work is running here (load average {load:.1}): do not trust the figures");
    }
}

fn gateway_rows(redis: &Redis, effort: Effort) -> Result<Vec<Row>> {
    eprintln!("bench: starting Envoys");
    let gateways = Gateways::start(redis)?;
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let runs = Subject::ALL.len() * effort.rounds;
        eprintln!("bench: {runs} runs of {:?} with {connections} connections", effort.run);
        let rounds = (0..effort.rounds)
            .map(|round| gateways.round(connections, round, effort.run))
            .collect::<Result<Vec<_>>>()?;
        for pair in Subject::PAIRS {
            rows.push(throughput_row(pair, connections, &rounds));
        }
        if connections == 1 {
            let ratios = rounds.iter().map(Round::added_latency).collect();
            let detail = "median latency added to a request ÷ median Redis round trip".into();
            rows.push(Row {
                name: "added_latency".into(),
                connections: Some(1),
                value: row::median(ratios),
                budget: row::LATENCY,
                detail,
                fault: None,
            });
        }
    }
    Ok(rows)
}

fn throughput_row((name, subject, baseline): (&str, Subject, Subject), connections: u32, rounds: &[Round]) -> Row {
    let median = |figure: &dyn Fn(&Round) -> f64| row::median(rounds.iter().map(figure).collect());
    let value = median(&|round| round.throughput(subject) / round.throughput(baseline));
    let [here, there] =
        [subject, baseline].map(|one| (median(&|round| round.throughput(one)), median(&|round| round.cpu_us(one))));
    let detail = format!(
        "{:.0} of {:.0} requests/s; {:.0} and {:.0} µs of Envoy's processor each",
        here.0, there.0, here.1, there.1
    );
    let share = rounds.iter().filter_map(|round| round.decided_by_redis(subject)).fold(1.0, f64::min);
    let fault = (share < DECIDED_BY_REDIS_MIN).then(|| format!("Redis decided only {:.0} % of a run", share * 100.0));
    let budget = row::throughput_budget(name, connections);
    Row { name: name.into(), connections: Some(connections), value, budget, detail, fault }
}

fn size() -> Result<Row> {
    let module = std::fs::read(paths::wasm_file("lockkeeper_filter.wasm"))?;
    let kib = build::stripped_bytes(&module)? as f64 / 1024.0;
    let detail = format!("KiB without names; {} with", module.len() / 1024);
    Ok(Row {
        name: "filter_wasm_kib".into(),
        connections: None,
        value: kib,
        budget: Budget::at_most(700.0, 350.0),
        detail,
        fault: None,
    })
}
