//! What becomes of a claim when its request ends: the response is kept, sealed or neither, or nobody knows what happened.

use crate::policy::OnUnknown;

/// Whether the upstream may have seen the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatched {
    /// It has not.
    Never,
    /// It may have.
    Maybe,
}

/// Says it of Envoy's facts: whether `upstream.local_address` is there, `upstream.request_attempt_count` if it can be
/// read, and `response.code_details`.
///
/// Never: no connection was ready, and there was one attempt at most. With more, an earlier one may have been sent and
/// only the last refused. An upstream that refuses a stream (RFC 9113 §8.7) says that it has not processed it.
pub fn dispatched(local_address_present: bool, attempts: Option<u64>, code_details: &str) -> Dispatched {
    let attempted_once = attempts.is_some_and(|attempts| attempts <= 1);
    let was_refused = code_details == "upstream_reset_before_response_started{remote_refused_stream_reset}";
    match attempted_once && (!local_address_present || was_refused) {
        true => Dispatched::Never,
        false => Dispatched::Maybe,
    }
}

/// Whether the upstream made the response, and not the gateway in its stead.
pub fn is_from_upstream(code_details: &str) -> bool {
    code_details == "via_upstream"
}

/// How the exchange with the upstream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Whether the upstream may have seen the request.
    pub dispatched: Dispatched,
    /// Whether the upstream itself answered, and the answer came to its end.
    pub is_complete: bool,
    /// The status; 0 when there is none.
    pub status: u16,
    /// Whether the connection became something else: 101, or a 2xx to CONNECT.
    pub is_upgrade: bool,
    /// Whether trailers followed the content.
    pub has_trailers: bool,
    /// Whether the content is events without end, or gRPC messages.
    pub is_stream: bool,
    /// Whether the content is larger than the policy keeps.
    pub is_too_large: bool,
    /// Whether the response sets a cookie.
    pub sets_cookie: bool,
}

/// What a policy says about ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRules {
    /// What happens to a retry when the outcome is unknown.
    pub on_unknown: OnUnknown,
    /// Whether a response that sets a cookie is sealed; else it is kept without the cookie.
    pub seal_set_cookie: bool,
}

/// What becomes of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response is kept for replays.
    Keep,
    /// The operation is done, and its response is not kept: retries are told so.
    Seal(SealReason),
    /// The claim is given back: the next request with the key runs.
    Release {
        /// Whether this attempt counts as none, since the upstream never saw it.
        uncount: bool,
    },
    /// The claim is no longer renewed. Once it has lapsed, retries are treated as the policy says of unknown outcomes.
    LeaveUnknown,
}

/// Why a response is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealReason {
    /// It has trailers.
    Trailers,
    /// It is a stream.
    Stream,
    /// It is larger than the policy keeps.
    TooLarge,
    /// It sets a cookie.
    SetCookie,
}

impl SealReason {
    /// A word for records and metrics.
    pub fn word(self) -> &'static str {
        match self {
            SealReason::Trailers => "trailers",
            SealReason::Stream => "stream",
            SealReason::TooLarge => "too-large",
            SealReason::SetCookie => "set-cookie",
        }
    }
}

/// What becomes of the claim. The first row that applies:
///
/// | exchange | claim |
/// | --- | --- |
/// | never dispatched, whoever answered | released, attempt not counted |
/// | the connection became something else | released |
/// | no complete answer of the upstream: timeout, reset, cut, client gone | left: unknown |
/// | 1xx but 101: it precedes an answer that did not come | left: unknown |
/// | 401, 403, 407, 408, 409, 421, 423, 425, 429: they describe the attempt, not the operation | released |
/// | 5xx, `on_unknown: reject` | left: unknown. It may have failed after it had done the work |
/// | 5xx, `on_unknown: retry_after_lease` | released: it is over, so nothing runs at the same time |
/// | any other 2xx, 3xx, 4xx with trailers, as a stream, or too large | sealed |
/// | the same, sets a cookie, policy seals those | sealed |
/// | any other 2xx, 3xx, 4xx | kept |
/// | no status of HTTP | left: unknown |
pub fn ending(exchange: &Exchange, rules: EndRules) -> Ending {
    if exchange.dispatched == Dispatched::Never {
        return Ending::Release { uncount: true };
    }
    if exchange.is_upgrade {
        return Ending::Release { uncount: false };
    }
    if !exchange.is_complete {
        return Ending::LeaveUnknown;
    }
    match (exchange.status, rules.on_unknown) {
        (401 | 403 | 407..=409 | 421 | 423 | 425 | 429, _) => Ending::Release { uncount: false },
        (200..=499, _) => seal_reason(exchange, rules).map_or(Ending::Keep, Ending::Seal),
        (500..=599, OnUnknown::RetryAfterLease) => Ending::Release { uncount: false },
        _ => Ending::LeaveUnknown,
    }
}

fn seal_reason(exchange: &Exchange, rules: EndRules) -> Option<SealReason> {
    let reasons = [
        (exchange.has_trailers, SealReason::Trailers),
        (exchange.is_stream, SealReason::Stream),
        (exchange.is_too_large, SealReason::TooLarge),
        (exchange.sets_cookie && rules.seal_set_cookie, SealReason::SetCookie),
    ];
    reasons.into_iter().find(|(applies, _)| *applies).map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCOUNTED: Ending = Ending::Release { uncount: true };
    const RELEASED: Ending = Ending::Release { uncount: false };

    fn answered(status: u16) -> Exchange {
        Exchange {
            dispatched: Dispatched::Maybe,
            is_complete: true,
            status,
            is_upgrade: false,
            has_trailers: false,
            is_stream: false,
            is_too_large: false,
            sets_cookie: false,
        }
    }

    fn rules(on_unknown: OnUnknown, seal_set_cookie: bool) -> EndRules {
        EndRules { on_unknown, seal_set_cookie }
    }

    #[test]
    fn each_row_of_the_table_of_ends() {
        use SealReason::{SetCookie, Stream, TooLarge, Trailers};
        let never = |status| Exchange { dispatched: Dispatched::Never, is_complete: false, ..answered(status) };
        let cut = |status| Exchange { is_complete: false, ..answered(status) };
        let cookie = Exchange { sets_cookie: true, ..answered(201) };
        let rows = [
            (never(503), UNCOUNTED),
            (never(404), UNCOUNTED),
            (never(200), UNCOUNTED),
            (never(0), UNCOUNTED),
            (Exchange { is_upgrade: true, is_complete: false, ..answered(101) }, RELEASED),
            (Exchange { is_upgrade: true, ..answered(200) }, RELEASED),
            (cut(0), Ending::LeaveUnknown),
            (cut(504), Ending::LeaveUnknown),
            (cut(200), Ending::LeaveUnknown),
            (cut(429), Ending::LeaveUnknown),
            (Exchange { is_stream: true, ..cut(200) }, Ending::LeaveUnknown),
            (answered(103), Ending::LeaveUnknown),
            (Exchange { has_trailers: true, ..answered(200) }, Ending::Seal(Trailers)),
            (Exchange { is_stream: true, ..answered(200) }, Ending::Seal(Stream)),
            (Exchange { is_too_large: true, ..answered(201) }, Ending::Seal(TooLarge)),
            (Exchange { is_too_large: true, ..answered(400) }, Ending::Seal(TooLarge)),
            (Exchange { is_stream: true, has_trailers: true, ..answered(200) }, Ending::Seal(Trailers)),
            (Exchange { is_too_large: true, ..answered(429) }, RELEASED),
            (cookie, Ending::Keep),
            (answered(0), Ending::LeaveUnknown),
            (answered(600), Ending::LeaveUnknown),
        ];
        for (exchange, expected) in rows {
            for on_unknown in [OnUnknown::Reject, OnUnknown::RetryAfterLease] {
                assert_eq!(ending(&exchange, rules(on_unknown, false)), expected, "{exchange:?} {on_unknown:?}");
            }
        }
        assert_eq!(ending(&cookie, rules(OnUnknown::Reject, true)), Ending::Seal(SetCookie));
        assert_eq!(ending(&answered(201), rules(OnUnknown::Reject, true)), Ending::Keep);
    }

    #[test]
    fn each_status_of_an_upstream() {
        let kept = [
            200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 400, 402, 404, 405, 406, 410, 411, 412, 413, 414, 415,
            422, 424, 428, 431, 451,
        ];
        let released = [401, 403, 407, 408, 409, 421, 423, 425, 429];
        let failed = [500, 501, 502, 503, 504, 507, 599];
        for (statuses, reject, retry) in [
            (&kept[..], Ending::Keep, Ending::Keep),
            (&released[..], RELEASED, RELEASED),
            (&failed[..], Ending::LeaveUnknown, RELEASED),
        ] {
            for status in statuses {
                let of = |on_unknown| ending(&answered(*status), rules(on_unknown, false));
                assert_eq!((of(OnUnknown::Reject), of(OnUnknown::RetryAfterLease)), (reject, retry), "{status}");
            }
        }
    }

    const BEFORE: &str = "upstream_reset_before_response_started";

    /// What was seen of a real Envoy: details, whether there was a local address, attempts.
    #[test]
    fn what_envoy_says_of_requests_that_no_upstream_saw() {
        let rows = [
            (format!("{BEFORE}{{connection_failure|delayed_connect_error:_Connection_refused}}"), 1),
            (format!("{BEFORE}{{connection_timeout}}"), 1),
            (format!("{BEFORE}{{remote_connection_failure|TLS_error}}"), 1),
            ("response_timeout".into(), 1),
            ("no_healthy_upstream".into(), 1),
            (format!("{BEFORE}{{overflow}}"), 1),
            ("route_not_found".into(), 0),
            ("cluster_not_found".into(), 0),
            ("fault_filter_abort".into(), 0),
            ("direct_response".into(), 0),
            ("downstream_remote_disconnect".into(), 1),
            ("downstream_remote_disconnect".into(), 0),
        ];
        for (details, attempts) in rows {
            assert_eq!(dispatched(false, Some(attempts), &details), Dispatched::Never, "{details} {attempts}");
            assert_eq!(
                dispatched(false, Some(2), &details),
                Dispatched::Maybe,
                "{details}: an earlier attempt was sent"
            );
            assert_eq!(dispatched(false, None, &details), Dispatched::Maybe, "{details}: attempts are not known");
            assert!(!is_from_upstream(&details));
        }
    }

    #[test]
    fn what_envoy_says_of_requests_that_an_upstream_may_have_seen() {
        let rows = [
            "response_timeout".into(),
            "upstream_per_try_timeout".into(),
            format!("{BEFORE}{{connection_termination}}"),
            format!("{BEFORE}{{protocol_error}}"),
            "stream_idle_timeout".into(),
            "max_duration_timeout".into(),
            "request_overall_timeout".into(),
            "upstream_reset_after_response_started{connection_termination}".into(),
            "downstream_remote_disconnect".into(),
            "via_upstream".to_owned(),
        ];
        for details in rows {
            assert_eq!(dispatched(true, Some(1), &details), Dispatched::Maybe, "{details}");
            assert_eq!(is_from_upstream(&details), details == "via_upstream");
        }
    }

    #[test]
    fn a_refused_stream_was_not_processed_unless_it_is_a_second_attempt() {
        let details = format!("{BEFORE}{{remote_refused_stream_reset}}");
        for (attempts, expected) in
            [(Some(1), Dispatched::Never), (Some(2), Dispatched::Maybe), (None, Dispatched::Maybe)]
        {
            assert_eq!(dispatched(true, attempts, &details), expected, "{attempts:?}");
        }
        let after = "upstream_reset_after_response_started{remote_refused_stream_reset}";
        assert_eq!(dispatched(true, Some(1), after), Dispatched::Maybe);
    }
}
