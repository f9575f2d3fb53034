//! The Worker's settings, from its variables and secrets: how it reaches the store and the origin, and how it bears the
//! store's absence. What is enforced stands in the policy.

use std::net::Ipv6Addr;
use std::time::Duration;

/// Everything a deployment chooses beside the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How the store is reached.
    pub transport: Transport,
    /// No request waits longer for the store, connecting included, in microseconds.
    pub deadline_us: u64,
    /// A body that a fingerprint needs must have come by then, in microseconds.
    pub body_deadline_us: u64,
    /// The most bytes of such bodies that an isolate holds at a time.
    pub held_bodies_bytes: usize,
    /// Where requests go; `None`: the service binding, or the zone's own origin.
    pub origin: Option<String>,
    /// A response header that marks degraded decisions, if any.
    pub degraded_header: Option<String>,
    /// Sets of the isolate's own limiter.
    pub local_sets: u32,
    /// The part of each limit that an isolate grants when it limits by itself.
    pub local_share: f64,
    /// The part of denials and degraded decisions that is logged.
    pub log_sample: f64,
}

/// How the store is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// A socket for each request.
    Tcp(Server),
    /// Persistent connections of that many Durable Objects.
    DurableObject {
        /// Where the objects connect.
        server: Server,
        /// How many objects share the requests; at least 1.
        objects: u32,
        /// Where they should live: a location hint of the platform.
        location: Option<String>,
    },
    /// HTTP, as Upstash speaks it.
    Rest {
        /// The address without `/pipeline`.
        url: String,
        /// The bearer token.
        token: String,
    },
}

/// A server that speaks the Redis protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The user, where there is one beside the password.
    pub user: Option<String>,
    /// The password, if any.
    pub password: Option<String>,
    /// The database; 0 is not selected, for it is the one of a new connection.
    pub database: u32,
}

const DEADLINE_MAX: Duration = Duration::from_secs(10);
const BODY_DEADLINE: Duration = Duration::from_secs(10);
const BODY_DEADLINE_MAX: Duration = Duration::from_secs(60);
/// An isolate has 128 MiB for everything.
const HELD_BODIES_BYTES: u32 = 16 * 1024 * 1024;
const HELD_BODIES_BYTES_MAX: u32 = 64 * 1024 * 1024;
const OBJECTS_MAX: u32 = 1_000;
const LOCAL_SETS: u32 = 4_096;
const LOCAL_SETS_MAX: u32 = 65_536;
const LOG_SAMPLE: f64 = 0.01;

impl Settings {
    /// Reads all variables through `variable`.
    ///
    /// # Errors
    /// One line for each fault.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Vec<String>> {
        let mut reader = Reader { variable, faults: Vec::new() };
        let settings = reader.settings();
        match settings {
            Some(settings) if reader.faults.is_empty() => Ok(settings),
            _ => Err(reader.faults),
        }
    }
}

struct Reader<V> {
    variable: V,
    faults: Vec<String>,
}

impl<V: Fn(&str) -> Option<String>> Reader<V> {
    fn settings(&mut self) -> Option<Settings> {
        let transport = self.transport();
        let deadline = self.duration("STORE_DEADLINE", "a duration of at most 10 s, such as \"150ms\"", DEADLINE_MAX);
        let body_deadline =
            self.duration("BODY_DEADLINE", "a duration of at most 60 s, such as \"10s\"", BODY_DEADLINE_MAX);
        let held_bodies_bytes = self.whole("HELD_BODIES_BYTES", 0, HELD_BODIES_BYTES_MAX).unwrap_or(HELD_BODIES_BYTES);
        let origin = self.parsed("ORIGIN", "an http or https URL without path, query and fragment", origin);
        let degraded_header = self.parsed("DEGRADED_HEADER", "the name of a response header", |text| {
            let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            is_name.then(|| text.to_ascii_lowercase())
        });
        let local_sets = self.whole("LOCAL_SETS", 1, LOCAL_SETS_MAX).unwrap_or(LOCAL_SETS);
        let local_share = self.part("LOCAL_SHARE", |share| share > 0.0).unwrap_or(1.0);
        let log_sample = self.part("LOG_SAMPLE", |_| true).unwrap_or(LOG_SAMPLE);
        let transport = transport?;
        let deadline = deadline.unwrap_or_else(|| transport.default_deadline());
        Some(Settings {
            deadline_us: microseconds(deadline),
            body_deadline_us: microseconds(body_deadline.unwrap_or(BODY_DEADLINE)),
            held_bodies_bytes: usize::try_from(held_bodies_bytes).unwrap_or(0),
            transport,
            origin,
            degraded_header,
            local_sets,
            local_share,
            log_sample,
        })
    }

    fn transport(&mut self) -> Option<Transport> {
        match self.text("TRANSPORT").as_deref() {
            None | Some("durable_object") => {
                let (server, objects) = (self.server(), self.whole("STORE_OBJECTS", 1, OBJECTS_MAX));
                let location = self.text("STORE_LOCATION");
                Some(Transport::DurableObject { server: server?, objects: objects.unwrap_or(1), location })
            }
            Some("tcp") => self.server().map(Transport::Tcp),
            Some("rest") => self.rest(),
            Some(_) => self.fault("TRANSPORT", "\"durable_object\", \"tcp\" or \"rest\""),
        }
    }

    fn server(&mut self) -> Option<Server> {
        let found = self.required("STORE_URL", "redis://host:port, or rediss:// for TLS; credentials apart", server);
        let database = self.whole("STORE_DATABASE", 0, u32::MAX).unwrap_or(0);
        let (user, password) = (self.text("STORE_USER"), self.text("STORE_PASSWORD"));
        if user.is_some() && password.is_none() {
            return self.fault("STORE_PASSWORD", "the password of STORE_USER");
        }
        Some(Server { user, password, database, ..found? })
    }

    fn rest(&mut self) -> Option<Transport> {
        let url = self.required("STORE_URL", "an http or https URL", front);
        let token = self.required("STORE_TOKEN", "the bearer token of the store", |text| Some(text.to_owned()));
        Some(Transport::Rest { url: url?, token: token? })
    }

    /// A variable that is set and not empty.
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|text| !text.is_empty())
    }

    fn parsed<T>(&mut self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(name)?;
        parse(&text).or_else(|| self.fault(name, expected))
    }

    fn required<T>(&mut self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        match self.text(name) {
            Some(text) => parse(&text).or_else(|| self.fault(name, expected)),
            None => self.fault(name, expected),
        }
    }

    fn duration(&mut self, name: &str, expected: &str, most: Duration) -> Option<Duration> {
        self.parsed(name, expected, |text| {
            humantime::parse_duration(text).ok().filter(|duration| !duration.is_zero() && *duration <= most)
        })
    }

    fn whole(&mut self, name: &str, least: u32, most: u32) -> Option<u32> {
        let expected = format!("a whole number from {least} to {most}");
        self.parsed(name, &expected, |text| text.parse().ok().filter(|number| (least..=most).contains(number)))
    }

    fn part(&mut self, name: &str, is_valid: impl Fn(f64) -> bool) -> Option<f64> {
        self.parsed(name, "a number from 0 to 1", |text| {
            text.parse().ok().filter(|part| (0.0..=1.0).contains(part) && is_valid(*part))
        })
    }

    /// Values are not repeated: some are secrets.
    fn fault<T>(&mut self, name: &str, expected: &str) -> Option<T> {
        self.faults.push(format!("{name}: expected {expected}"));
        None
    }
}

impl Transport {
    /// Round trips that a decision may take: three or four to a server with a fresh connection, one and a hop else.
    fn default_deadline(&self) -> Duration {
        Duration::from_millis(match self {
            Transport::Tcp(_) => 250,
            Transport::DurableObject { .. } | Transport::Rest { .. } => 150,
        })
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn server(url: &str) -> Option<Server> {
    let (tls, rest) = match url.strip_prefix("redis://") {
        Some(rest) => (false, rest),
        None => (true, url.strip_prefix("rediss://")?),
    };
    let (host, port) = rest.trim_end_matches('/').rsplit_once(':')?;
    let port = port_number(port).filter(|_| is_host(host))?;
    Some(Server { host: host.to_owned(), port, tls, user: None, password: None, database: 0 })
}

fn front(url: &str) -> Option<String> {
    let url = url.trim_end_matches('/');
    let (authority, path) = after_scheme(url)?.split_once('/').unwrap_or((after_scheme(url)?, ""));
    let is_plain = !path.contains(|character: char| character.is_whitespace() || character.is_control());
    (is_plain && is_authority(authority)).then(|| url.to_owned())
}

fn origin(url: &str) -> Option<String> {
    let base = url.trim_end_matches('/');
    is_authority(after_scheme(base)?).then(|| base.to_owned())
}

fn after_scheme(url: &str) -> Option<&str> {
    url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))
}

/// A host, and a port where it is not the scheme's.
fn is_authority(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let is_address = host.starts_with('[') || !host.contains(':');
            is_address && is_host(host) && port_number(port).is_some()
        }
        _ => is_host(authority),
    }
}

fn is_host(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let is_name = |name: &str| name.chars().all(|character| character.is_alphanumeric() || "-._".contains(character));
    !host.is_empty() && (is_name(host) || bare.parse::<Ipv6Addr>().is_ok())
}

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::read(find)
    }

    #[test]
    fn each_transport_has_a_deadline_that_fits_it() {
        let url = ("STORE_URL", "redis://127.0.0.1:6379");
        let rest = [("TRANSPORT", "rest"), ("STORE_URL", "https://store.example/"), ("STORE_TOKEN", "t")];
        let rows = [(&[url][..], 150_000), (&[("TRANSPORT", "tcp"), url], 250_000), (&rest, 150_000)];
        for (variables, deadline_us) in rows {
            assert_eq!(read(variables).unwrap().deadline_us, deadline_us, "{variables:?}");
        }
        assert_eq!(
            read(&rest).unwrap().transport,
            Transport::Rest { url: "https://store.example".into(), token: "t".into() }
        );
    }

    #[test]
    fn a_server_is_a_name_and_a_port_with_credentials_apart() {
        let settings = read(&[
            ("TRANSPORT", "tcp"),
            ("STORE_URL", "rediss://store.example:6380"),
            ("STORE_USER", "gateway"),
            ("STORE_PASSWORD", "secret"),
            ("STORE_DATABASE", "3"),
        ]);
        let server = Server {
            host: "store.example".into(),
            port: 6380,
            tls: true,
            user: Some("gateway".into()),
            password: Some("secret".into()),
            database: 3,
        };
        assert_eq!(settings.unwrap().transport, Transport::Tcp(server));
    }

    #[test]
    fn all_faults_are_told_at_once_without_the_values() {
        let faults = read(&[
            ("TRANSPORT", "durable_object"),
            ("STORE_URL", "redis://user:secret@store:6379"),
            ("STORE_USER", "user"),
            ("STORE_OBJECTS", "0"),
            ("STORE_DEADLINE", "1h"),
            ("ORIGIN", "https://origin.example/path"),
            ("DEGRADED_HEADER", "not a name"),
            ("LOCAL_SHARE", "0"),
        ])
        .unwrap_err();
        let names: Vec<&str> = faults.iter().filter_map(|fault| fault.split(':').next()).collect();
        let expected = "STORE_URL STORE_PASSWORD STORE_OBJECTS STORE_DEADLINE ORIGIN DEGRADED_HEADER LOCAL_SHARE";
        assert_eq!(names.join(" "), expected);
        assert!(!faults.concat().contains("secret"));
    }

    #[test]
    fn nothing_works_without_a_store() {
        assert_eq!(read(&[]).unwrap_err().len(), 1);
        assert_eq!(read(&[("TRANSPORT", "rest")]).unwrap_err().len(), 2);
        assert_eq!(read(&[("TRANSPORT", "udp")]).unwrap_err().len(), 1);
    }

    #[test]
    fn an_address_that_nothing_can_be_sent_to_is_a_fault() {
        let store = ("STORE_URL", "redis://store:6379");
        let origins = ["https://o.example ", "https://o.example:99999", "https://o. example", "https://o.example:0"];
        for origin in
            origins.into_iter().chain(["https://", "https://:80", "https://a:+1", "https://::1", "https://[x]"])
        {
            let faults = read(&[store, ("ORIGIN", origin)]).unwrap_err();
            assert!(matches!(&*faults, [fault] if fault.starts_with("ORIGIN: expected")), "{origin}: {faults:?}");
        }
        for store in ["redis://a b:6379", "redis://a:6379 ", " redis://a:6379", "redis://a:99999", "redis://[x]:1"] {
            let faults = read(&[("TRANSPORT", "tcp"), ("STORE_URL", store)]).unwrap_err();
            assert!(matches!(&*faults, [fault] if fault.starts_with("STORE_URL: expected")), "{store}: {faults:?}");
        }
        for front in ["https://a b", "https://a:99999/x", "https://a/b c", "https://"] {
            let faults = read(&[("TRANSPORT", "rest"), ("STORE_TOKEN", "t"), ("STORE_URL", front)]).unwrap_err();
            assert!(matches!(&*faults, [fault] if fault.starts_with("STORE_URL: expected")), "{front}: {faults:?}");
        }
    }

    #[test]
    fn names_and_addresses_with_and_without_a_port_are_origins() {
        for origin in
            ["https://o.example", "http://o_1.example:8080", "http://127.0.0.1:1", "http://[::1]", "http://[::1]:80"]
        {
            let settings = read(&[("STORE_URL", "redis://[::1]:6379"), ("ORIGIN", origin)]).unwrap();
            assert_eq!(settings.origin.as_deref(), Some(origin));
        }
        let front = [("TRANSPORT", "rest"), ("STORE_TOKEN", "t"), ("STORE_URL", "http://[::1]:8079/a")];
        assert!(read(&front).is_ok());
    }
}
