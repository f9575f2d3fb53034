//! How responses look: which fields tell the quota, how far retries are spread, what scripts of other origins may read,
//! and what an answer says instead of our own words.

use std::borrow::Cow;

use super::HeaderMode;
use super::error::PolicyErrors;
use super::names::is_header_name;
use super::reader::{Members, Place};
use super::units::duration_us;
use crate::decision::{GrpcStatus, Header};

/// What holds for all responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRules {
    /// Which rate-limit fields responses carry.
    pub headers: HeaderMode,
    /// Up to this much is added to Retry-After.
    pub retry_after_jitter_us: u64,
    /// What scripts of other origins may read; `None` leaves that to others.
    pub cors: Option<Cors>,
}

/// What makes our answers readable for scripts of other origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Whose scripts.
    pub origins: Origins,
    /// Whether they may send credentials.
    pub allow_credentials: bool,
}

/// The origins whose scripts may read our answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// All of them, without credentials.
    Any,
    /// None by us: another filter names them.
    None,
    /// These.
    These(Vec<String>),
}

/// What an answer says instead of our own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomAnswer {
    /// The HTTP status.
    pub status: Option<u16>,
    /// Content type and content.
    pub body: Option<(String, String)>,
    /// Further fields.
    pub headers: Vec<Header>,
    /// The gRPC status.
    pub grpc_status: Option<GrpcStatus>,
}

/// The answers of a policy, or of all policies that say nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomAnswers {
    /// When a limit denies.
    pub denied: CustomAnswer,
    /// When the store failed and the policy says deny.
    pub unavailable: CustomAnswer,
}

const BODY_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 16;
const ORIGINS_MAX: usize = 100;
/// The longest jitter: more would be a wait of its own.
const JITTER_MAX_US: u64 = 300_000_000;
/// What we or the host say ourselves.
const OWN_HEADERS: [&str; 10] = [
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads the members of a file that hold for all responses.
pub(super) fn read_rules(file: &Members<'_>, errors: &mut PolicyErrors) -> Option<AnswerRules> {
    let modes = [
        ("rt", HeaderMode::Rt),
        ("aw", HeaderMode::Aw),
        ("both", HeaderMode::Both),
        ("legacy", HeaderMode::Legacy),
        ("off", HeaderMode::Off),
    ];
    let headers =
        file.optional("rate_limit_headers").map_or(Some(HeaderMode::Rt), |place| place.choice(errors, &modes));
    let jitter = file.optional("retry_after_jitter").map_or(Some(0), |place| read_jitter(&place, errors));
    let cors = file.optional("cors").map(|place| read_cors(&place, errors));
    let cors = match cors {
        None => None,
        Some(read) => Some(read?),
    };
    Some(AnswerRules { headers: headers?, retry_after_jitter_us: jitter?, cors })
}

fn read_jitter(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<u64> {
    let us = duration_us(place, errors)?;
    if us > JITTER_MAX_US {
        place.reject(errors, "at most \"5m\"");
    }
    Some(us)
}

fn read_cors(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Cors> {
    let object = place.object(errors, "an object with allow_origins and allow_credentials")?;
    let origins = object.optional("allow_origins").map_or(Some(Origins::None), |place| read_origins(&place, errors));
    let credentials = object.optional("allow_credentials");
    let allow_credentials = credentials.as_ref().map_or(Some(false), |place| place.boolean(errors));
    if let (Some(place), Some(true), Some(Origins::Any | Origins::None)) = (&credentials, allow_credentials, &origins) {
        place.reject(errors, "false, or allow_origins with the origins that may send credentials");
    }
    object.finish(errors, &["allow_origins", "allow_credentials"]);
    Some(Cors { origins: origins?, allow_credentials: allow_credentials? })
}

fn read_origins(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Origins> {
    let places = place.list(errors, "a list of origins such as [\"https://app.example.com\"], or [\"*\"]")?;
    if let [only] = &*places
        && only.node.as_text() == Some("*")
    {
        return Some(Origins::Any);
    }
    if places.is_empty() || places.len() > ORIGINS_MAX {
        place.reject(errors, format!("1 to {ORIGINS_MAX} origins; leave the field out for none"));
    }
    let origins: Vec<Option<String>> = places.iter().map(|place| read_origin(place, errors)).collect();
    origins.into_iter().collect::<Option<Vec<String>>>().map(Origins::These)
}

fn read_origin(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let expected = "an origin as browsers send it: scheme, lower-case host, and a port that is not the scheme's own";
    let text = place.text(errors, expected)?;
    let host = text.split_once("://").map(|(_, host)| host).unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && !b"/*?#@,".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_plain) {
        place.reject(errors, expected);
    }
    Some(text.to_owned())
}

/// Reads the members `denied` and `unavailable` of a file or a policy; what is left out is as in `defaults`.
pub(super) fn read_custom(
    object: &Members<'_>,
    defaults: &CustomAnswers,
    errors: &mut PolicyErrors,
) -> Option<CustomAnswers> {
    let denied = object
        .optional("denied")
        .map_or_else(|| Some(defaults.denied.clone()), |place| read_answer(&place, Kind::Denied, errors));
    let unavailable = object
        .optional("unavailable")
        .map_or_else(|| Some(defaults.unavailable.clone()), |place| read_answer(&place, Kind::Unavailable, errors));
    Some(CustomAnswers { denied: denied?, unavailable: unavailable? })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Denied,
    Unavailable,
}

fn read_answer(place: &Place<'_>, kind: Kind, errors: &mut PolicyErrors) -> Option<CustomAnswer> {
    let object = place.object(errors, "an object with status, content_type, body or headers")?;
    let status = object.optional("status").map(|place| {
        place.whole(errors, 400..=599, ": clients must not take it for a success").and_then(|s| u16::try_from(s).ok())
    });
    let body = read_body(&object, errors);
    let headers = object.optional("headers").map_or(Some(Vec::new()), |place| read_headers(&place, errors));
    let grpc = [("resource_exhausted", GrpcStatus::ResourceExhausted), ("unavailable", GrpcStatus::Unavailable)];
    let grpc_status = match kind {
        Kind::Denied => object.optional("grpc_status").map(|place| place.choice(errors, &grpc)),
        Kind::Unavailable => None,
    };
    let fields: &[&str] = match kind {
        Kind::Denied => &["status", "content_type", "body", "headers", "grpc_status"],
        Kind::Unavailable => &["status", "content_type", "body", "headers"],
    };
    object.finish(errors, fields);
    Some(CustomAnswer { status: status.flatten(), body: body?, headers: headers?, grpc_status: grpc_status.flatten() })
}

fn read_body(object: &Members<'_>, errors: &mut PolicyErrors) -> Option<Option<(String, String)>> {
    let content_type = object.optional("content_type");
    let Some(place) = object.optional("body") else {
        if let Some(place) = content_type {
            place.reject(errors, "a body beside it");
        }
        return Some(None);
    };
    let body = place.text(errors, "the content as a string")?;
    if body.len() > BODY_BYTES_MAX {
        place.reject(errors, format!("at most {BODY_BYTES_MAX} bytes"));
    }
    let content_type = match content_type {
        None => "text/plain; charset=utf-8".to_owned(),
        Some(place) => read_value(&place, "a content type such as \"application/json\"", errors)?,
    };
    Some(Some((content_type, body.to_owned())))
}

fn read_headers(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Vec<Header>> {
    let object = place.object(errors, "an object such as {\"x-reason\": \"rate-limit\"}")?;
    let members = object.all();
    if members.len() > HEADERS_MAX {
        place.reject(errors, format!("at most {HEADERS_MAX} headers"));
    }
    object.finish(errors, &[]);
    members.iter().map(|(name, place)| read_header(name, place, errors)).collect::<Vec<_>>().into_iter().collect()
}

fn read_header(name: &str, place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Header> {
    let lower = name.to_ascii_lowercase();
    if !is_header_name(name) {
        errors.push(&place.path, "a name that no header has", "a header such as \"x-reason\"");
    } else if OWN_HEADERS.contains(&&*lower) || lower.starts_with("x-ratelimit-") {
        errors.push(&place.path, "a header that the answer has already", "another header");
    }
    let value = read_value(place, "a value of visible ASCII characters", errors)?;
    Some((Cow::Owned(lower), value))
}

fn read_value(place: &Place<'_>, expected: &str, errors: &mut PolicyErrors) -> Option<String> {
    let text = place.text(errors, expected)?;
    let is_value = !text.is_empty() && text.trim() == text && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !is_value {
        place.reject(errors, expected);
    }
    Some(text.to_owned())
}
