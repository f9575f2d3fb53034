//! Test configurations, all derived from the files that are shipped in `envoy/`: what is shipped is what is tested.

use crate::paths;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const HTTP_FILTERS: &str = "/filter_chains/0/filters/0/typed_config/http_filters";
const ROUTES: &str = "/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
const ACCESS_LOG: &str = "/filter_chains/0/filters/0/typed_config/access_log";
const UPSTREAM_FILTERS: &str =
    "/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/http_filters";
const OP_TIMEOUT: &str = "/filter_chains/0/filters/0/typed_config/settings/op_timeout";

/// An Envoy configuration under change. Each method panics when the shipped file no longer has what it changes.
#[derive(Clone, Debug)]
pub struct EnvoyConfig {
    root: Value,
    /// Worker threads.
    pub concurrency: u32,
    /// Listeners come from a file that [`crate::Envoy::reload`] replaces.
    pub reloadable: bool,
    /// Variables that Envoy finds in its environment, beside the test's own.
    pub environment: Vec<(String, String)>,
}

impl EnvoyConfig {
    /// The shipped file with free ports, the built filter and one worker.
    pub fn shipped() -> Self {
        Self::shipped_with(&paths::wasm())
    }

    /// The same with another build of the filter.
    pub fn shipped_with(wasm: &Path) -> Self {
        Self::of_file("envoy.yaml").wasm(wasm)
    }

    /// The shipped file in which Envoy's own Redis client stands between the pipe and Redis, as [`EnvoyConfig::shipped`].
    pub fn redis_proxy() -> Self {
        Self::of_file("redis-proxy.yaml").wasm(&paths::wasm())
    }

    fn of_file(name: &str) -> Self {
        let root = shipped_file(name).expect("the shipped files can be read");
        Self { root, concurrency: 1, reloadable: false, environment: Vec::new() }.free_ports()
    }

    /// Sets the number of worker threads.
    pub fn concurrency(mut self, workers: u32) -> Self {
        self.concurrency = workers;
        self
    }

    /// Sets a variable of Envoy's environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Passes variables of Envoy's environment on to the filter's VM.
    pub fn vm_variables(mut self, names: &[&str]) -> Self {
        at(self.filter_mut(), "/typed_config/config/vm_config")["environment_variables"] =
            json!({ "host_env_keys": names });
        self
    }

    /// Reaches the store by TLS.
    pub fn store_tls(mut self, context: Value) -> Self {
        let socket = json!({ "name": "envoy.transport_sockets.tls", "typed_config": context });
        self.cluster("lockkeeper_store")["transport_socket"] = socket;
        self
    }

    /// Lets [`crate::Envoy::reload`] replace the listeners.
    pub fn reloadable(mut self) -> Self {
        self.reloadable = true;
        self
    }

    /// The filter's module, for the filter and the bridge.
    pub fn wasm(mut self, file: &Path) -> Self {
        let file = Value::from(file.to_str().expect("the path is UTF-8"));
        for filter in [Self::filter_mut, Self::bridge_mut] {
            *at(filter(&mut self), "/typed_config/config/vm_config/code/local/filename") = file.clone();
        }
        self
    }

    /// The policy file to enforce.
    pub fn policy(self, policy: Value) -> Self {
        self.plugin(|plugin| plugin["policy"] = policy)
    }

    /// Merges fields into the host part of the plugin configuration.
    pub fn host(self, fields: Value) -> Self {
        self.plugin(|plugin| merge(&mut plugin["host"], fields))
    }

    /// How long a request may wait for its decision; Envoy gives up on the store, or on connecting to it, when the filter does.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        let text = json!(format!("{:.3}s", deadline.as_secs_f64()));
        self.cluster("lockkeeper_store")["connect_timeout"] = text.clone();
        if self.has_redis_proxy() {
            *at(self.listener("lockkeeper_redis"), OP_TIMEOUT) = text.clone();
            self.cluster("redis")["connect_timeout"] = text;
        }
        self.host(json!({ "deadline": format!("{}ms", deadline.as_millis()) }))
    }

    /// Changes the plugin configuration of the filter.
    pub fn plugin(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let mut plugin = self.plugin_configuration();
        change(&mut plugin);
        *self.plugin_text() = Value::from(plugin.to_string());
        self
    }

    /// The plugin configuration of the filter: `{ "host": …, "policy": … }`.
    pub fn plugin_configuration(&mut self) -> Value {
        let text = self.plugin_text().as_str().expect("the plugin configuration is a string");
        serde_json::from_str(text).expect("the plugin configuration is JSON")
    }

    /// Where Redis is.
    pub fn redis(mut self, address: SocketAddr) -> Self {
        let name = if self.has_redis_proxy() { "redis" } else { "lockkeeper_store" };
        set_endpoint(self.cluster(name), address);
        self
    }

    fn has_redis_proxy(&self) -> bool {
        has_named(&self.root["static_resources"]["clusters"], "redis")
    }

    /// Lets the filter read whole bodies before it decides.
    pub fn reads_bodies(mut self) -> Self {
        at(self.filter_mut(), "/typed_config/config")["allow_on_headers_stop_iteration"] = json!(true);
        self.host(json!({ "reads_bodies": true }))
    }

    /// Takes [`EnvoyConfig::reads_bodies`] back.
    pub fn without_bodies(mut self) -> Self {
        at(self.filter_mut(), "/typed_config/config")["allow_on_headers_stop_iteration"] = json!(false);
        self.host(json!({ "reads_bodies": false }))
    }

    /// Where admitted requests go.
    pub fn upstream(mut self, address: SocketAddr) -> Self {
        set_endpoint(self.cluster("upstream"), address);
        self
    }

    /// Admitted requests are answered by Envoy itself: 200, `ok`.
    pub fn direct_response(mut self) -> Self {
        let route = json!({ "match": { "prefix": "/" }, "direct_response": { "status": 200, "body": { "inline_string": "ok\n" } } });
        *at(self.listener("main"), ROUTES) = json!([route]);
        self
    }

    /// Leaves out the filter: a bare Envoy to compare with.
    pub fn without_filter(mut self) -> Self {
        let filters = at(self.listener("main"), HTTP_FILTERS);
        filters.as_array_mut().expect("a list of filters").retain(|filter| filter["name"] != "lockkeeper");
        self
    }

    /// Leaves out the access log.
    pub fn without_access_log(mut self) -> Self {
        *at(self.listener("main"), ACCESS_LOG) = json!([]);
        self
    }

    /// Adds a cluster.
    pub fn add_cluster(&mut self, cluster: Value) {
        let clusters = at(&mut self.root, "/static_resources/clusters");
        clusters.as_array_mut().expect("a list of clusters").push(cluster);
    }

    /// Runs the bridge in another VM.
    pub fn bridge_in(mut self, vm_id: &str) -> Self {
        *at(self.bridge_mut(), "/typed_config/config/vm_config/vm_id") = json!(vm_id);
        self
    }

    /// Takes away every address of the store, as a name does that does not resolve.
    pub fn without_store_addresses(mut self) -> Self {
        *at(self.cluster("lockkeeper_store"), "/load_assignment/endpoints") = json!([]);
        self
    }

    /// Leaves out the bridge: what the filter sends reaches the store as it is.
    pub fn without_bridge(mut self) -> Self {
        remove_named(at(self.cluster("lockkeeper_store"), UPSTREAM_FILTERS), "resp_bridge");
        self
    }

    /// Leaves out a cluster.
    pub fn without_cluster(mut self, name: &str) -> Self {
        remove_named(at(&mut self.root, "/static_resources/clusters"), name);
        self
    }

    /// Leaves out a listener.
    pub fn without_listener(mut self, name: &str) -> Self {
        remove_named(at(&mut self.root, "/static_resources/listeners"), name);
        self
    }

    /// The connection manager of the main listener, for what has no method here.
    pub fn connection_manager(&mut self) -> &mut Value {
        at(self.listener("main"), "/filter_chains/0/filters/0/typed_config")
    }

    /// A listener by name.
    pub fn listener(&mut self, name: &str) -> &mut Value {
        named(at(&mut self.root, "/static_resources/listeners"), name)
    }

    /// A cluster by name.
    pub fn cluster(&mut self, name: &str) -> &mut Value {
        named(at(&mut self.root, "/static_resources/clusters"), name)
    }

    /// The configuration file for Envoy, and the listener file it refers to when it is [`EnvoyConfig::reloadable`].
    pub fn render(&self, directory: &Path) -> (Value, Option<Value>) {
        let mut root = self.root.clone();
        // Whatever is discovered, files included, needs a name of the one who asks.
        root["node"] = json!({ "id": "test", "cluster": "test" });
        if !self.reloadable {
            return (root, None);
        }
        let mut listeners = at(&mut root, "/static_resources/listeners").take();
        for listener in listeners.as_array_mut().expect("a list of listeners") {
            listener["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
        }
        at(&mut root, "/static_resources").as_object_mut().expect("an object").remove("listeners");
        root["dynamic_resources"] = json!({ "lds_config": {
            "resource_api_version": "V3",
            "path_config_source": { "path": directory.join("listeners.json"), "watched_directory": { "path": directory } } } });
        (root, Some(json!({ "resources": listeners })))
    }

    /// Port 0: the kernel chooses, so two Envoys never meet.
    fn free_ports(mut self) -> Self {
        let free = json!({ "socket_address": { "address": "127.0.0.1", "port_value": 0 } });
        self.root["admin"]["address"] = free.clone();
        self.listener("main")["address"] = free;
        self
    }

    fn filter_mut(&mut self) -> &mut Value {
        at(self.listener("main"), &format!("{HTTP_FILTERS}/0"))
    }

    fn bridge_mut(&mut self) -> &mut Value {
        named(at(self.cluster("lockkeeper_store"), UPSTREAM_FILTERS), "resp_bridge")
    }

    fn plugin_text(&mut self) -> &mut Value {
        at(self.filter_mut(), "/typed_config/config/configuration/value")
    }
}

fn shipped_file(name: &str) -> Result<Value> {
    let path = paths::workspace().join("envoy").join(name);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    // Through a YAML value: only there are aliases resolved.
    let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text)?;
    Ok(serde_json::to_value(yaml)?)
}

fn at<'a>(value: &'a mut Value, pointer: &str) -> &'a mut Value {
    value.pointer_mut(pointer).unwrap_or_else(|| panic!("the shipped file has no {pointer}"))
}

fn named<'a>(list: &'a mut Value, name: &str) -> &'a mut Value {
    let items = list.as_array_mut().expect("a list");
    items
        .iter_mut()
        .find(|item| item["name"] == name)
        .unwrap_or_else(|| panic!("the shipped file has nothing named {name}"))
}

fn has_named(list: &Value, name: &str) -> bool {
    list.as_array().is_some_and(|items| items.iter().any(|item| item["name"] == name))
}

fn remove_named(list: &mut Value, name: &str) {
    named(list, name);
    list.as_array_mut().expect("a list").retain(|item| item["name"] != name);
}

fn set_endpoint(cluster: &mut Value, address: SocketAddr) {
    let socket = json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } });
    *at(cluster, "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address") = socket;
}

fn merge(target: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else { panic!("host fields are a JSON object") };
    target.as_object_mut().unwrap_or(&mut Map::new()).extend(fields);
}
