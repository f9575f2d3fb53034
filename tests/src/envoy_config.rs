//! Test configurations, all derived from the shipped `envoy/envoy.yaml`: what is shipped is what is tested.

use crate::paths;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const HTTP_FILTERS: &str = "/filter_chains/0/filters/0/typed_config/http_filters";
const ROUTES: &str = "/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
const ACCESS_LOG: &str = "/filter_chains/0/filters/0/typed_config/access_log";
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
        let root = shipped_file().expect("envoy/envoy.yaml can be read");
        Self { root, concurrency: 1, reloadable: false, environment: Vec::new() }.free_ports().wasm(wasm)
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

    /// Lets [`crate::Envoy::reload`] replace the listeners.
    pub fn reloadable(mut self) -> Self {
        self.reloadable = true;
        self
    }

    /// The filter's module, for the filter and the bridge.
    pub fn wasm(mut self, file: &Path) -> Self {
        let file = Value::from(file.to_str().expect("the path is UTF-8"));
        for listener in ["main", "lockkeeper_tunnel"] {
            *at(self.filter_mut(listener), "/typed_config/config/vm_config/code/local/filename") = file.clone();
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
        *at(self.listener("lockkeeper_redis"), OP_TIMEOUT) = text.clone();
        for cluster in ["redis", "lockkeeper_store", "lockkeeper_redis"] {
            self.cluster(cluster)["connect_timeout"] = text.clone();
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
        set_endpoint(self.cluster("redis"), address);
        self
    }

    /// Lets the filter read whole bodies before it decides.
    pub fn reads_bodies(mut self) -> Self {
        at(self.filter_mut("main"), "/typed_config/config")["allow_on_headers_stop_iteration"] = json!(true);
        self.host(json!({ "reads_bodies": true }))
    }

    /// Takes [`EnvoyConfig::reads_bodies`] back.
    pub fn without_bodies(mut self) -> Self {
        at(self.filter_mut("main"), "/typed_config/config")["allow_on_headers_stop_iteration"] = json!(false);
        self.host(json!({ "reads_bodies": false }))
    }

    /// Leaves out `redis_proxy`: the tunnel ends as a TCP connection to `store`.
    pub fn straight_to(mut self, store: SocketAddr) -> Self {
        set_endpoint(self.cluster("lockkeeper_redis"), store);
        self
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

    fn filter_mut(&mut self, listener: &str) -> &mut Value {
        at(self.listener(listener), &format!("{HTTP_FILTERS}/0"))
    }

    fn plugin_text(&mut self) -> &mut Value {
        at(self.filter_mut("main"), "/typed_config/config/configuration/value")
    }
}

fn shipped_file() -> Result<Value> {
    let path = paths::workspace().join("envoy/envoy.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    // Through a YAML value: only there are aliases resolved.
    let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text)?;
    Ok(serde_json::to_value(yaml)?)
}

fn at<'a>(value: &'a mut Value, pointer: &str) -> &'a mut Value {
    value.pointer_mut(pointer).unwrap_or_else(|| panic!("envoy.yaml has no {pointer}"))
}

fn named<'a>(list: &'a mut Value, name: &str) -> &'a mut Value {
    let items = list.as_array_mut().expect("a list");
    items.iter_mut().find(|item| item["name"] == name).unwrap_or_else(|| panic!("envoy.yaml has nothing named {name}"))
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
