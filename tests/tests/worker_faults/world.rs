//! A Worker with one policy for each way to bear the store's absence.

use lockkeeper_tests::http::{Request, Response};
use lockkeeper_tests::workerd::Transport;
use lockkeeper_tests::{RestFront, Upstream, Workerd, WorkerdConfig, poll};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Of the Worker, for the store.
pub const DEADLINE: Duration = Duration::from_millis(200);
/// What an answer may take beyond it, on a machine under load.
pub const SLACK: Duration = Duration::from_millis(300);
const RECOVERY: Duration = Duration::from_secs(5);
/// The header that tells who decided, when the store did not.
const DEGRADED: &str = "x-degraded";

pub struct World {
    pub workerd: Workerd,
    _upstream: Upstream,
    _front: Option<RestFront>,
}

/// Policies `allow`, `deny` and `local` by path; each grants four, and a request spends what `x-cost` says.
pub fn policy(limit: u32) -> Value {
    let policy = |mode: &str| {
        let limit = json!({ "name": "all", "algorithm": "token_bucket", "capacity": limit, "refill": "1/1h",
                            "key": ["header:x-user"], "cost": { "header": "x-cost", "max": limit.min(1000) } });
        json!({ "limits": [limit], "limits_on_store_failure": mode })
    };
    let modes = ["allow", "deny", "local"];
    let policies: serde_json::Map<_, _> = modes.iter().map(|mode| (mode.to_string(), policy(mode))).collect();
    let routes: Vec<_> =
        modes.iter().map(|mode| json!({ "match": { "path": format!("/{mode}") }, "policy": mode })).collect();
    json!({ "version": 1, "policies": policies, "routes": routes })
}

impl World {
    pub fn start(transport: Transport, store: SocketAddr, policy: &Value) -> World {
        let upstream = Upstream::start().expect("a loopback port is free");
        let front = (transport == Transport::Rest).then(|| RestFront::start(store).expect("a loopback port is free"));
        let address = front.as_ref().map_or(store, RestFront::address);
        let config = WorkerdConfig::built().store(transport, address).deadline(DEADLINE).policy(policy);
        let config = config.origin(upstream.address()).variable("DEGRADED_HEADER", DEGRADED);
        let workerd = Workerd::start(&config).expect("workerd starts");
        World { workerd, _upstream: upstream, _front: front }
    }

    /// An answer that came in time.
    pub fn ask(&self, mode: &str, user: &str) -> Response {
        let request = Request::get(&format!("/{mode}")).header("x-user", user);
        let answer = self.workerd.client().send(&request).expect("workerd answers");
        assert!(answer.elapsed <= DEADLINE + SLACK, "{mode} took {:?}", answer.elapsed);
        answer
    }

    /// Each policy's own answer while the store fails; `local` grants four to a new user.
    pub fn assert_degraded(&self, user: &str) {
        let decided_by = |mode: &str| {
            let answer = self.ask(mode, user);
            (answer.status, answer.header(DEGRADED).map(str::to_owned))
        };
        let failure_mode = Some("failure_mode".to_owned());
        assert_eq!(decided_by("allow"), (200, failure_mode.clone()), "{user}");
        assert_eq!(decided_by("deny"), (503, failure_mode), "{user}");
        assert_eq!(decided_by("local"), (200, Some("local".to_owned())), "{user}");
    }

    /// Waits until the store decides.
    pub fn recover(&self, user: &str) {
        poll::until("the store decides again", RECOVERY, || {
            let answer = self.ask("deny", user);
            (answer.status != 503).then_some(())
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", self.workerd.process().log_tail()));
    }
}
