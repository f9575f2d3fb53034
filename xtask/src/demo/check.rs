//! `cargo xtask demo --check`: sends the requests of the guide and compares what comes back with what the policy says.

use super::Demo;
use anyhow::{Context, Result};
use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::poll;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The policy's fixed window.
const WINDOW: Duration = Duration::from_secs(60);
/// A check takes less than this, so it is not begun closer to the end of a window.
const CHECK: Duration = Duration::from_secs(3);
/// How soon limits are shared again once Redis is back.
const RECOVERY: Duration = Duration::from_secs(2);

struct Checks<'a> {
    demo: &'a mut Demo,
    failed: u32,
}

/// Runs all checks; the exit code says whether all held.
pub fn run(demo: &mut Demo) -> Result<ExitCode> {
    let with_redis = demo.redis.is_some();
    let mut checks = Checks { demo, failed: 0 };
    checks.bucket()?;
    if with_redis {
        checks.window()?;
        checks.payments()?;
        checks.outage()?;
    } else {
        checks.expect("POST /v1/login without a store", "503", &checks.login("ada")?);
    }
    let failed = checks.failed;
    println!("{}", if failed == 0 { "all as expected".to_owned() } else { format!("{failed} not as expected") });
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Checks<'_> {
    /// Policy `api`: a bucket of five that refills one a second.
    fn bucket(&mut self) -> Result<()> {
        self.first_decision()?;
        for number in 1..=5 {
            self.expect(&format!("GET /hello, {number} of 5"), "200", &self.get()?);
        }
        let denied = self.get()?;
        self.expect("GET /hello once more", "429 retry-after=1 application/problem+json", &denied);
        let (asked, wait) = (Instant::now(), Duration::from_secs(1));
        poll::until("the time the answer asked for", wait * 2, || (asked.elapsed() >= wait).then_some(()))?;
        self.expect("GET /hello after that second", "200", &self.get()?);
        Ok(())
    }

    /// The pipe to the store opens with the first request; it is admitted either way, and on a key of its own.
    fn first_decision(&self) -> Result<()> {
        poll::until("the store decides", RECOVERY, || match self.demo.redis {
            Some(_) => {
                self.login("first").ok()?;
                (self.decided_by()? == "store").then_some(())
            }
            None => Some(()),
        })
    }

    /// Policy `login`: three a minute for each user.
    fn window(&mut self) -> Result<()> {
        poll::until("the next minute", CHECK * 2, || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis();
            (now % WINDOW.as_millis() < (WINDOW - CHECK).as_millis()).then_some(())
        })?;
        for number in 1..=3 {
            self.expect(&format!("POST /v1/login as ada, {number} of 3"), "200", &self.login("ada")?);
        }
        self.expect("POST /v1/login as ada once more", "429 application/problem+json", &self.login("ada")?);
        self.expect("POST /v1/login as bob", "200", &self.login("bob")?);
        Ok(())
    }

    /// Policy `payments`: a key runs once.
    fn payments(&mut self) -> Result<()> {
        let before = self.demo.upstream.count();
        self.expect("POST /v1/payments with a key", "200", &self.pay(Some("k-1"), "{\"amount\":1}")?);
        let again = self.pay(Some("k-1"), "{\"amount\":1}")?;
        self.expect("POST /v1/payments, the same again", "200 idempotent-replayed", &again);
        let other = self.pay(Some("k-1"), "{\"amount\":2}")?;
        self.expect("POST /v1/payments, another amount with that key", "422 application/problem+json", &other);
        self.expect("POST /v1/payments without a key", "400 application/problem+json", &self.pay(None, "{}")?);
        let runs = self.demo.upstream.count() - before;
        self.compare("payments that reached the upstream", "1", &runs.to_string());
        Ok(())
    }

    /// Redis away: `api` is limited by this Envoy, `login` is refused; Redis back: as before.
    fn outage(&mut self) -> Result<()> {
        self.redis()?.kill();
        poll::until("this Envoy decides", RECOVERY, || {
            self.get().ok()?;
            (self.decided_by()? == "local").then_some(())
        })?;
        self.expect("POST /v1/login while Redis is down", "503", &self.login("ada")?);
        let answers: Vec<_> = (0..6).map(|_| self.get()).collect::<Result<_>>()?;
        let denied = answers.last().context("six answers")?;
        self.expect("GET /hello, six more while Redis is down", "429 application/problem+json", denied);
        self.redis()?.restart()?;
        let back = Instant::now();
        let answer = poll::until("the store decides again", RECOVERY * 2, || {
            let answer = self.login("eve").ok()?;
            (answer.status == 200).then_some(answer)
        })?;
        self.expect(&format!("POST /v1/login {} ms after Redis is back", back.elapsed().as_millis()), "200", &answer);
        Ok(())
    }

    fn get(&self) -> Result<Response> {
        self.demo.envoy.client().send(&Request::get("/hello"))
    }

    fn pay(&self, key: Option<&str>, body: &str) -> Result<Response> {
        let request = Request::new("POST", "/v1/payments").header("authorization", "Bearer demo").body(body);
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        self.demo.envoy.client().send(&request)
    }

    fn login(&self, user: &str) -> Result<Response> {
        self.demo.envoy.client().send(&Request::new("POST", "/v1/login").header("x-user", user))
    }

    /// Who made the last decision, by the access log.
    fn decided_by(&self) -> Option<String> {
        let log = self.demo.envoy.access_log();
        Some(log.last()?.get("decided_by")?.as_str()?.to_owned())
    }

    fn redis(&mut self) -> Result<&mut lockkeeper_tests::Redis> {
        self.demo.redis.as_mut().context("this check is for a demo with Redis")
    }

    /// Prints expected and seen. `expected` is a status, then whatever else the answer must have.
    fn expect(&mut self, what: &str, expected: &str, response: &Response) {
        let retry_after =
            response.header("retry-after").map_or_else(String::new, |value| format!(" retry-after={value}"));
        let replayed = if response.header("idempotent-replayed").is_some() { " idempotent-replayed" } else { "" };
        let content_type = response.header("content-type").unwrap_or("-");
        self.compare(what, expected, &format!("{}{retry_after}{replayed} {content_type}", response.status));
    }

    fn compare(&mut self, what: &str, expected: &str, seen: &str) {
        let holds = expected.split(' ').all(|part| seen.split(' ').any(|word| word == part));
        self.failed += u32::from(!holds);
        println!("{}  {what:<44} expected {expected:<44} seen {seen}", if holds { "ok    " } else { "FAILED" });
    }
}
