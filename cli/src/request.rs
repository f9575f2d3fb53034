//! A request as the command line describes it, and what a gateway would look up in it.

use anyhow::{Context, Result, bail};
use lockkeeper_core::admission::{Arrival, Body};
use lockkeeper_core::claim::Owner;
use lockkeeper_core::engine::{Engine, Step};
use lockkeeper_core::identity::{AddressPrefixes, Attribute, KeyPart};
use lockkeeper_core::selection::{GatewayRoute, Selection};

/// The request to explain.
#[derive(Clone, Debug, clap::Args)]
pub struct RequestOptions {
    /// The method
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// A URL, or a path alone when a `host` header is given or no route asks for the host
    #[arg(long)]
    pub url: String,
    /// A header field; may be given many times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// The client's address, with or without a port
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub peer: Option<String>,
    /// A value of the gateway's metadata, such as a verified claim (`jwt_authn.sub=alice`)
    #[arg(long = "metadata", value_name = "PATH=VALUE")]
    pub metadata: Vec<String>,
    /// The name of the gateway's own route
    #[arg(long, value_name = "NAME")]
    pub route_name: Option<String>,
    /// The policy that the gateway's own route names
    #[arg(long, value_name = "NAME")]
    pub route_policy: Option<String>,
}

/// What cannot be read as an address would pass for a missing one.
fn address(text: &str) -> Result<String, String> {
    let is_address = AddressPrefixes::default().network(text).is_some();
    is_address.then(|| text.to_owned()).ok_or_else(|| "expected an IP address, with or without a port".into())
}

/// The same, taken apart.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The authority, empty when missing.
    pub authority: String,
    /// The request target: path and query.
    pub target: String,
    headers: Vec<(String, String)>,
    peer: Option<String>,
    metadata: Vec<(String, String)>,
    route_name: Option<String>,
    route_policy: Option<String>,
}

impl Request {
    /// Takes the options apart.
    ///
    /// # Errors
    /// When a header or a metadata value is not written as one, or the URL is neither URL nor path.
    pub fn new(options: &RequestOptions) -> Result<Request> {
        let headers = options.headers.iter().map(|text| header(text)).collect::<Result<Vec<_>>>()?;
        let host = headers.iter().find(|(name, _)| name == "host").map(|(_, value)| value.clone());
        let (authority, target) = match options.url.split_once("://") {
            Some((_, rest)) => authority_and_target(rest),
            None if options.url.starts_with('/') || options.url == "*" => (String::new(), options.url.clone()),
            None => bail!("--url {:?}: expected a URL such as https://api.example.com/v1/x, or a path", options.url),
        };
        Ok(Request {
            method: options.method.clone(),
            authority: host.unwrap_or(authority),
            target,
            headers,
            peer: options.peer.clone(),
            metadata: options.metadata.iter().map(|text| metadata(text)).collect::<Result<Vec<_>>>()?,
            route_name: options.route_name.clone(),
            route_policy: options.route_policy.clone(),
        })
    }

    /// Finds the route and the policy.
    pub fn select(&self, engine: &Engine) -> Selection {
        let named = engine.policies().policy_from_route_metadata;
        let gateway =
            GatewayRoute { name: self.route_name.as_deref(), policy: self.route_policy.as_deref().filter(|_| named) };
        let selection = engine.select_routed(&self.method, &self.authority, &self.target, gateway);
        let values: Vec<_> = engine.route_headers(&selection).iter().map(|header| self.look_up(header)).collect();
        engine.select_by_headers(selection, &values)
    }

    /// The name of the gateway's own route, empty when it has none.
    pub fn route_name(&self) -> &str {
        self.route_name.as_deref().unwrap_or_default()
    }

    /// What the policy needs to know of the request, as a gateway would look it up.
    pub fn values(&self, engine: &Engine, selection: &Selection) -> Vec<Option<Vec<u8>>> {
        engine.attributes(selection).iter().map(|attribute| self.look_up(attribute)).collect()
    }

    /// Begins the decision, as if the request came now and had no content.
    pub fn begin(&self, engine: &Engine, selection: &Selection) -> Step {
        let arrival = Arrival { owner: Some(Owner::new([0; 16])), floor: 0, body: Body::Absent };
        engine.begin_arrived(selection, &self.values(engine, selection), &arrival)
    }

    fn look_up(&self, attribute: &Attribute) -> Option<Vec<u8>> {
        let text = match attribute {
            Attribute::ClientAddress => self.peer.clone(),
            Attribute::Header(name) => self.header(name),
            Attribute::Metadata(path) => self.metadata(KeyPart::Metadata(path.clone()).text()),
        };
        text.map(String::into_bytes)
    }

    /// A value by its path as key parts of policy files write it.
    fn metadata(&self, part: String) -> Option<String> {
        let path = part.strip_prefix("metadata:")?;
        self.metadata.iter().find(|(name, _)| name == path).map(|(_, value)| value.clone())
    }

    /// All lines of a header, joined by a comma as Envoy joins them.
    pub fn header(&self, wanted: &str) -> Option<String> {
        let lines: Vec<&str> =
            self.headers.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.as_str()).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    }
}

/// `api.example.com/v1?x` as authority and target; a URL without path has the path `/`.
fn authority_and_target(rest: &str) -> (String, String) {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let slash = if target.starts_with('/') { "" } else { "/" };
    (authority.to_owned(), format!("{slash}{target}"))
}

fn header(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once(':').with_context(|| format!("--header {text:?}: expected \"name: value\""))?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

fn metadata(text: &str) -> Result<(String, String)> {
    let (path, value) =
        text.split_once('=').with_context(|| format!("--metadata {text:?}: expected \"path=value\""))?;
    Ok((path.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str, headers: &[&str]) -> Result<Request> {
        Request::new(&RequestOptions {
            method: "GET".into(),
            url: url.into(),
            headers: headers.iter().map(|text| (*text).to_owned()).collect(),
            peer: None,
            metadata: Vec::new(),
            route_name: None,
            route_policy: None,
        })
    }

    #[test]
    fn a_url_is_an_authority_and_a_target_left_as_they_are() {
        let rows = [
            ("https://API.example.com:443//v1/%2e/x?a=/b", "API.example.com:443", "//v1/%2e/x?a=/b"),
            ("http://api.example.com", "api.example.com", "/"),
            ("http://api.example.com?x", "api.example.com", "/?x"),
            ("http://[::1]:80/", "[::1]:80", "/"),
            ("/v1/x", "", "/v1/x"),
        ];
        for (url, authority, target) in rows {
            let request = request(url, &[]).unwrap();
            assert_eq!((request.authority.as_str(), request.target.as_str()), (authority, target), "{url}");
        }
        assert!(request("v1/x", &[]).is_err());
    }

    #[test]
    fn several_lines_of_a_header_are_one_value() {
        let request = request("/", &["X-A: 1", "x-a:2 ", "Host: api.example.com"]).unwrap();
        assert_eq!(request.header("x-a").as_deref(), Some("1,2"));
        assert_eq!(request.header("x-b"), None);
        assert_eq!(request.authority, "api.example.com");
    }
}
