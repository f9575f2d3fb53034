//! The policies of the simulation, and what each of their limits promises, computed without the algorithms' code.

/// What a limit may admit, as its definition says.
#[derive(Clone, Copy, Debug)]
pub enum Promise {
    /// In each window aligned to the epoch.
    Aligned { limit: u64, window_us: u64 },
    /// In every stretch of one window's length.
    Sliding { limit: u64, window_us: u64 },
    /// At once, and what flows in since.
    Bucket { capacity: u64, tokens: u64, period_us: u64 },
}

/// The limits by name, all of them small enough to deny often.
pub const PROMISES: [(&str, Promise); 5] = [
    ("deny.window", Promise::Aligned { limit: 5, window_us: 200_000 }),
    ("deny.bucket", Promise::Bucket { capacity: 20, tokens: 50, period_us: 1_000_000 }),
    ("allow.log", Promise::Sliding { limit: 4, window_us: 100_000 }),
    ("local.counter", Promise::Aligned { limit: 6, window_us: 150_000 }),
    ("local.shadow", Promise::Aligned { limit: 2, window_us: 100_000 }),
];

pub const JSON: &str = r#"{
    "version": 1, "namespace": "sim",
    "policies": {
        "deny": { "limits_on_store_failure": "deny", "limits": [
            { "name": "window", "algorithm": "fixed_window", "limit": 5, "window": "200ms", "key": ["client_address"] },
            { "name": "bucket", "algorithm": "token_bucket", "capacity": 20, "refill": "50/s", "cost": 2, "key": ["host"] } ] },
        "allow": { "limits_on_store_failure": "allow", "limits": [
            { "name": "log", "algorithm": "sliding_window", "limit": 4, "window": "100ms", "key": ["client_address"] } ] },
        "local": { "limits_on_store_failure": "local", "limits": [
            { "name": "counter", "algorithm": "sliding_window_counter", "limit": 6, "window": "150ms", "key": ["client_address"] },
            { "name": "shadow", "algorithm": "fixed_window", "limit": 2, "window": "100ms", "enforce": false, "key": ["path"] } ] }
    },
    "routes": [
        { "match": { "path": "/deny" }, "policy": "deny" },
        { "match": { "path": "/allow" }, "policy": "allow" },
        { "match": { "path": "/local" }, "policy": "local" }
    ]
}"#;

/// When, and how much, was charged under one key.
pub type Charges = Vec<(u64, u64)>;

/// Panics when the charges under a store key are more than its limit promises.
pub fn assert_kept(key: &str, charges: &Charges) {
    let (name, promise) =
        PROMISES.iter().find(|(name, _)| key.starts_with(&format!("sim:{name}:"))).expect("a key of these policies");
    let (from_us, granted): (&dyn Fn(u64) -> u64, &dyn Fn(u64) -> u64) = match *promise {
        Promise::Aligned { limit, window_us } => (&move |at_us| at_us - at_us % window_us, &move |_| limit),
        Promise::Sliding { limit, window_us } => (&move |at_us| at_us - window_us + 1, &move |_| limit),
        Promise::Bucket { capacity, tokens, period_us } => (&|_| 0, &move |us| capacity + us * tokens / period_us),
    };
    for (index, (at_us, _)) in charges.iter().enumerate() {
        let mut sum = 0;
        for (time_us, cost) in charges[..=index].iter().rev().take_while(|(time_us, _)| *time_us >= from_us(*at_us)) {
            sum += cost;
            assert!(sum <= granted(at_us - time_us), "{name} admitted too much: {charges:?}");
        }
    }
}
