//! What can go wrong at the store, and what each error reply says about whether the command ran.

/// Why a call brought no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// The command never reached the store: nothing was charged.
    NotSent,
    /// The command may have run, or may still run later.
    Unknown,
    /// The store answered that it did not do it.
    Refused(Refusal),
}

/// The kinds of error replies that are told apart. Everything else is [`Refusal::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// NOAUTH, WRONGPASS, NOPERM: the gateway's credentials are wrong.
    Access,
    /// BUSY: another script runs for too long.
    Busy,
    /// CLUSTERDOWN, MASTERDOWN, TRYAGAIN.
    ClusterDown,
    /// LOADING: the store is starting.
    Loading,
    /// The script is not cached: nothing ran. Send it whole.
    NoScript,
    /// OOM: over `maxmemory`.
    OutOfMemory,
    /// MISCONF, NOREPLICAS: writes are disabled.
    WritesDisabled,
    /// READONLY: a replica, or a master that was demoted.
    ReadOnly,
    /// MOVED, ASK, CROSSSLOT: a Redis Cluster that is not configured as one.
    Topology,
    /// Any other error, and a reply of another shape than the script's.
    Other,
}

impl Refusal {
    /// All of them, for hosts that pass them on.
    pub const ALL: [Refusal; 10] = [
        Refusal::Access,
        Refusal::Busy,
        Refusal::ClusterDown,
        Refusal::Loading,
        Refusal::NoScript,
        Refusal::OutOfMemory,
        Refusal::WritesDisabled,
        Refusal::ReadOnly,
        Refusal::Topology,
        Refusal::Other,
    ];

    /// A word for metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Refusal::Access => "access",
            Refusal::Busy => "busy",
            Refusal::ClusterDown => "cluster_down",
            Refusal::Loading => "loading",
            Refusal::NoScript => "no_script",
            Refusal::OutOfMemory => "out_of_memory",
            Refusal::WritesDisabled => "writes_disabled",
            Refusal::ReadOnly => "read_only",
            Refusal::Topology => "topology",
            Refusal::Other => "other",
        }
    }

    /// Why, in words for whoever must put the store right; `None` of what passes by itself.
    pub fn reason(self) -> Option<&'static str> {
        Some(match self {
            Refusal::Access => "the credentials of this gateway are wrong, or their rights do not suffice",
            Refusal::Busy => "another script runs there for too long",
            Refusal::ClusterDown => "it has lost its cluster, or its primary",
            Refusal::OutOfMemory => "its memory is full (maxmemory)",
            Refusal::WritesDisabled => "it takes no writes (MISCONF, NOREPLICAS)",
            Refusal::ReadOnly => "it is a replica",
            Refusal::Topology => "it is a Redis Cluster, which is not supported",
            Refusal::Other => "it answers with an error that this gateway does not know",
            Refusal::Loading | Refusal::NoScript => return None,
        })
    }
}

impl StoreFailure {
    /// The kind of a refusal.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            StoreFailure::Refused(refusal) => Some(*refusal),
            StoreFailure::NotSent | StoreFailure::Unknown => None,
        }
    }

    /// A word for metrics and logs.
    pub fn word(&self) -> &'static str {
        match self {
            StoreFailure::NotSent => "not_sent",
            StoreFailure::Unknown => "unknown",
            StoreFailure::Refused(refusal) => refusal.word(),
        }
    }

    /// Classifies an error reply. Engines before Redis 7 and its relatives wrap an error inside a script
    /// (`ERR Error running script …: -READONLY …`), so the word is searched for behind the wrapper too.
    pub fn of_error(text: &str) -> StoreFailure {
        match text {
            // Envoy's redis_proxy: the command was never sent.
            "no upstream host" => return StoreFailure::NotSent,
            // Envoy's redis_proxy: the connection failed or timed out with the command in flight.
            "upstream failure" | "upstream protocol error" | "downstream protocol error" => {
                return StoreFailure::Unknown;
            }
            _ => {}
        }
        // Redis refuses what is long from a connection without credentials before it says NOAUTH: more than ten
        // arguments, or one of more than 16 KiB.
        if text.contains("unauthenticated") {
            return StoreFailure::Refused(Refusal::Access);
        }
        let first = text.split(' ').next().unwrap_or_default();
        let refusal = refusal_of(first).or_else(|| (first == "ERR").then(|| wrapped_refusal(text)).flatten());
        StoreFailure::Refused(refusal.unwrap_or(Refusal::Other))
    }
}

fn refusal_of(word: &str) -> Option<Refusal> {
    Some(match word {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => Refusal::Access,
        "BUSY" => Refusal::Busy,
        "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" => Refusal::ClusterDown,
        "LOADING" => Refusal::Loading,
        "NOSCRIPT" => Refusal::NoScript,
        "OOM" => Refusal::OutOfMemory,
        "MISCONF" | "NOREPLICAS" => Refusal::WritesDisabled,
        "READONLY" => Refusal::ReadOnly,
        "MOVED" | "ASK" | "CROSSSLOT" => Refusal::Topology,
        _ => return None,
    })
}

/// An error that happened inside a script never means that the script itself was missing.
fn wrapped_refusal(text: &str) -> Option<Refusal> {
    let words = text.split([' ', ':']).map(|word| word.trim_start_matches('-'));
    words.filter_map(refusal_of).find(|refusal| *refusal != Refusal::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;
    use StoreFailure::{NotSent, Refused, Unknown};

    #[test]
    fn error_replies_are_told_apart_bare_and_wrapped() {
        let rows = [
            ("NOSCRIPT No matching script. Please use EVAL.", Refused(Refusal::NoScript)),
            (
                "READONLY You can't write against a read only replica. script: 4f, on @user_script:7.",
                Refused(Refusal::ReadOnly),
            ),
            (
                "ERR Error running script (call to f_4f): @user_script:7: -READONLY You can't write",
                Refused(Refusal::ReadOnly),
            ),
            (
                "ERR Error running script (call to f_4f): @user_script:7: @user_script: 7: -OOM command not allowed",
                Refused(Refusal::OutOfMemory),
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", Refused(Refusal::OutOfMemory)),
            ("LOADING Redis is loading the dataset in memory", Refused(Refusal::Loading)),
            ("BUSY Redis is busy running a script.", Refused(Refusal::Busy)),
            ("MISCONF Redis is configured to save RDB snapshots", Refused(Refusal::WritesDisabled)),
            ("NOAUTH Authentication required.", Refused(Refusal::Access)),
            ("ERR Protocol error: unauthenticated multibulk length", Refused(Refusal::Access)),
            ("ERR Protocol error: unauthenticated bulk length", Refused(Refusal::Access)),
            ("CLUSTERDOWN The cluster is down", Refused(Refusal::ClusterDown)),
            ("MOVED 866 127.0.0.1:7001", Refused(Refusal::Topology)),
            ("CROSSSLOT Keys in request don't hash to the same slot", Refused(Refusal::Topology)),
            ("ERR max number of clients reached", Refused(Refusal::Other)),
            ("WRONGTYPE Operation against a key", Refused(Refusal::Other)),
            ("no upstream host", NotSent),
            ("upstream failure", Unknown),
            ("", Refused(Refusal::Other)),
        ];
        for (text, expected) in rows {
            assert_eq!(StoreFailure::of_error(text), expected, "{text:?}");
        }
    }
}
