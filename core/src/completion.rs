//! What a decision's answer still lacks when it is made: spread, origin and time of day, which only the host knows.

use crate::decision::{Action, Decision, Header};
use crate::policy::{AnswerRules, Cors, Origins};
use crate::rate_limit_fields::{LEGACY_RESET, whole_seconds};

/// What the host knows when a response goes out. What is [not needed](Needs) may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circumstances<'a> {
    /// A random number, any of 64 bits.
    pub random: u64,
    /// Seconds of Unix time.
    pub unix_s: u64,
    /// The request header `origin`.
    pub origin: Option<&'a [u8]>,
}

/// Which circumstances matter for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// [`Circumstances::random`]
    pub random: bool,
    /// [`Circumstances::unix_s`]
    pub unix_s: bool,
    /// [`Circumstances::origin`]
    pub origin: bool,
}

/// Headers that scripts may read without being told so.
const READABLE: [&str; 3] = ["cache-control", "content-type", "vary"];

impl Decision {
    /// Which circumstances [`Decision::complete`] needs.
    pub fn needs(&self, rules: &AnswerRules) -> Needs {
        let is_answer = matches!(self.action, Action::Answer(_));
        Needs {
            random: is_answer && rules.retry_after_jitter_us > 0,
            unix_s: self.reset_in_s.is_some(),
            origin: is_answer && rules.cors.is_some(),
        }
    }

    /// Completes the response. Called once, before it goes out.
    pub fn complete(&mut self, rules: &AnswerRules, circumstances: Circumstances<'_>) {
        let reset_in_s = self.reset_in_s.take();
        let headers = match &mut self.action {
            Action::Forward { response_headers } => response_headers,
            Action::Answer(answer) => {
                spread(&mut answer.headers, rules.retry_after_jitter_us, circumstances.random);
                &mut answer.headers
            }
        };
        if let Some(seconds) = reset_in_s {
            headers.push((LEGACY_RESET.into(), circumstances.unix_s.saturating_add(seconds).to_string()));
        }
        if let (Action::Answer(answer), Some(cors)) = (&mut self.action, &rules.cors) {
            let ours = answer.headers.iter().map(|(name, _)| &**name);
            let names: Vec<&str> = ours.chain(answer.stored_headers.iter().map(|(name, _)| name.as_str())).collect();
            let fields = cors_fields(cors, circumstances.origin, &names);
            answer.headers.extend(fields);
        }
    }
}

/// Adds up to the jitter to Retry-After, so that not all clients come back in the same second.
fn spread(headers: &mut [Header], jitter_us: u64, random: u64) {
    let added_us = jitter_us.checked_add(1).and_then(|count| random.checked_rem(count)).unwrap_or(0);
    let Some((_, value)) = headers.iter_mut().find(|(name, _)| name == "retry-after") else { return };
    if let Ok(seconds) = value.parse::<u64>() {
        *value = seconds.saturating_add(whole_seconds(added_us)).to_string();
    }
}

/// The fields that let scripts of `origin` read the response and its headers of these `names`.
fn cors_fields(cors: &Cors, origin: Option<&[u8]>, names: &[&str]) -> Vec<Header> {
    let mut fields: Vec<Header> = Vec::new();
    if matches!(&cors.origins, Origins::These(_)) {
        fields.push(("vary".into(), "origin".into()));
    }
    let Some(origin) = origin.and_then(|origin| std::str::from_utf8(origin).ok()).filter(|text| !text.is_empty())
    else {
        return fields;
    };
    let mut exposed: Vec<&str> = names.iter().copied().filter(|name| !READABLE.contains(name)).collect();
    exposed.dedup();
    fields.push(("access-control-expose-headers".into(), exposed.join(", ")));
    match &cors.origins {
        Origins::Any => fields.push(("access-control-allow-origin".into(), "*".into())),
        Origins::These(allowed) if allowed.iter().any(|one| one == origin) => {
            fields.push(("access-control-allow-origin".into(), origin.to_owned()));
            if cors.allow_credentials {
                fields.push(("access-control-allow-credentials".into(), "true".into()));
            }
        }
        Origins::These(_) | Origins::None => {}
    }
    fields
}
