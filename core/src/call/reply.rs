//! The replies of the scripts that decide: verdicts in rows of integers, and what became of the claims.

use crate::algorithm::Verdict;
use crate::claim::{Admission, Asked};
use crate::decision::LimitVerdict;
use crate::engine::Counted;
use crate::resp::Reply;
use crate::script;

/// What the store says of a request's claims and limits.
pub(super) struct ClaimReply {
    pub admission: Admission,
    /// What the policy's limits said, where they were asked.
    pub verdicts: Vec<LimitVerdict>,
    /// What the limit on replays said, where it was asked.
    pub replay: Option<Verdict>,
}

/// The reply of the script that also takes claims; `None` when it has any other shape.
pub(super) fn claim_reply(reply: &Reply, counted: &[Counted], asked: Asked<'_>) -> Option<ClaimReply> {
    let Reply::Array(elements) = reply else { return None };
    let (admission, said) = Admission::parse(elements.get(1..)?, asked)?;
    let by_limits = matches!(admission, Admission::Granted { is_again: false, .. } | Admission::Denied);
    let (verdicts, replay) = match by_limits {
        true => (said.into_iter().zip(counted).map(|(verdict, one)| one.verdict(verdict)).collect(), None),
        false => (Vec::new(), said.first().copied()),
    };
    Some(ClaimReply { admission, verdicts, replay })
}

/// The verdicts in the script's reply: the tag, then four integers for each limit.
pub(super) fn verdicts(reply: &Reply, counted: &[Counted]) -> Option<Vec<LimitVerdict>> {
    let Reply::Array(elements) = reply else { return None };
    let verdicts = script::verdicts(elements.get(1..)?)?;
    if verdicts.len() != counted.len() {
        return None;
    }
    verdicts.zip(counted).map(|(verdict, counted)| Some(counted.verdict(verdict?))).collect()
}
