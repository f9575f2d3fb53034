//! The root context: takes the configuration, opens the pipe, keeps time for it and receives its replies.

use std::rc::Rc;

use lockkeeper_core::host_config::PluginConfig;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{BufferType, ContextType};

use crate::bridge::Bridge;
use crate::gateway::Gateway;
use crate::host;
use crate::request::{PassThrough, Request};

/// One plugin configuration on one worker.
pub struct Root {
    context_id: u32,
    role: Role,
}

enum Role {
    /// Not configured, or its configuration was refused.
    None,
    Bridge,
    Limiter(Rc<Gateway>),
}

const BRIDGE_ROOT_ID: &[u8] = b"resp_bridge";

impl Root {
    /// A root without a role yet.
    pub fn new(context_id: u32) -> Root {
        Root { context_id, role: Role::None }
    }

    fn gateway(&self) -> Option<&Rc<Gateway>> {
        match &self.role {
            Role::Limiter(gateway) => Some(gateway),
            Role::None | Role::Bridge => None,
        }
    }

    fn configure(&mut self, size: usize) -> bool {
        let json = host::plugin_configuration(size).unwrap_or_default();
        match PluginConfig::from_json(&json) {
            Ok(config) => {
                let gateway = Gateway::new(self.context_id, config);
                gateway.start();
                self.role = Role::Limiter(Rc::new(gateway));
                true
            }
            Err(errors) => {
                let count = errors.0.len();
                log::error!("lockkeeper: the configuration is refused for {count} reason(s):\n{errors}");
                false
            }
        }
    }
}

impl Context for Root {
    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        if let Some(gateway) = self.gateway() {
            let bytes = host::buffer(BufferType::GrpcReceiveBuffer, 0, size).unwrap_or_default();
            gateway.received(token, &bytes);
        }
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        if let Some(gateway) = self.gateway() {
            gateway.stream_closed(token, status);
        }
    }

    fn on_done(&mut self) -> bool {
        self.gateway().is_none_or(|gateway| gateway.retire())
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        if host::property("plugin_root_id").ok().flatten().as_deref() == Some(BRIDGE_ROOT_ID) {
            Bridge::settle_in_this_vm();
            self.role = Role::Bridge;
            return true;
        }
        self.configure(size)
    }

    fn on_tick(&mut self) {
        if let Some(gateway) = self.gateway() {
            gateway.tick();
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(match &self.role {
            Role::Limiter(gateway) => Box::new(Request::new(context_id, Rc::clone(gateway))),
            Role::Bridge => Box::new(Bridge::default()),
            Role::None => Box::new(PassThrough),
        })
    }
}
