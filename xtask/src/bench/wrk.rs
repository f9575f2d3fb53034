//! Runs `wrk` against a server and reads what it prints.

use anyhow::{Context, Result, ensure};
use lockkeeper_tests::tools;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What one run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Requests answered.
    pub requests: f64,
    /// Requests answered each second.
    pub per_second: f64,
    /// The median latency, in µs.
    pub median_us: f64,
}

/// One run from one thread; an error when an answer was not a success.
pub fn run(server: SocketAddr, connections: u32, time: Duration) -> Result<Measured> {
    measure(server, connections, time, None)
}

/// The same with requests that a Lua script makes.
pub fn run_script(server: SocketAddr, connections: u32, time: Duration, script: &Path) -> Result<Measured> {
    measure(server, connections, time, Some(script))
}

fn measure(server: SocketAddr, connections: u32, time: Duration, script: Option<&Path>) -> Result<Measured> {
    let mut command = Command::new(tools::wrk()?);
    command.args(["--latency", "--threads", "1", "--connections", &connections.to_string()]);
    if let Some(script) = script {
        command.arg("--script").arg(script);
    }
    command.args(["--duration", &format!("{}s", time.as_secs()), &format!("http://{server}/")]);
    let output = command.output().context("starting wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk ended with {}: {text}", output.status);
    parse(&text).with_context(|| format!("wrk said:\n{text}"))
}

fn parse(text: &str) -> Result<Measured> {
    ensure!(!text.contains("Non-2xx"), "not every answer was a success");
    let after = |label: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(label))
            .with_context(|| format!("no line {label}"))?;
        line.split_whitespace().nth(1).with_context(|| format!("no value after {label}"))
    };
    let requests = text.lines().find(|line| line.contains(" requests in ")).context("no number of requests")?;
    let requests = requests.split_whitespace().next().context("no number of requests")?.parse()?;
    Ok(Measured { requests, per_second: after("Requests/sec:")?.parse()?, median_us: micros(after("50%")?)? })
}

fn micros(text: &str) -> Result<f64> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        unit => anyhow::bail!("unit {unit} of {text}"),
    };
    Ok(digits.parse::<f64>()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Running 1s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.10ms    1.00ms  20.00ms   90.00%
    Req/Sec    30.00k     1.00k   31.00k    70.00%
  Latency Distribution
     50%    1.98ms
     75%    2.50ms
     90%    3.00ms
     99%    5.00ms
  30123 requests in 1.00s, 4.00MB read
Requests/sec:  30100.25
Transfer/sec:      4.00MB
";

    #[test]
    fn its_output_is_read() {
        let measured = parse(OUTPUT).expect("the output is complete");
        assert_eq!(measured, Measured { requests: 30123.0, per_second: 30100.25, median_us: 1980.0 });
    }

    #[test]
    fn an_answer_that_is_no_success_is_an_error() {
        assert!(parse(&format!("{OUTPUT}  Non-2xx or 3xx responses: 3\n")).is_err());
    }

    #[test]
    fn all_units_of_time_are_read() {
        assert_eq!(
            ["87.00us", "1.50ms", "2.00s"].map(|text| micros(text).expect("a time")),
            [87.0, 1_500.0, 2_000_000.0]
        );
        assert!(micros("3.00m").is_err());
    }
}
