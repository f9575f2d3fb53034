//! The root context: takes the configuration, opens the pipe, keeps time for it and receives its replies.

use std::rc::Rc;

use lockkeeper_core::credentials::{Credentials, Password};
use lockkeeper_core::greeting::Greeting;
use lockkeeper_core::host_config::{HostConfig, PluginConfig};
use lockkeeper_core::policy::error::PolicyErrors;
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
        match PluginConfig::from_json(&json).and_then(|config| Ok((greeting(&config.host)?, config))) {
            Ok((greeting, config)) => {
                let gateway = Gateway::new(self.context_id, config, greeting);
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

/// What the store is told first. The password may be in the environment.
fn greeting(host: &HostConfig) -> Result<Greeting, PolicyErrors> {
    let Some(Credentials { user, password }) = &host.credentials else {
        return Ok(Greeting::new(None, None, host.database));
    };
    let password = match password {
        Password::Text(password) => password.clone(),
        Password::Variable(name) => password_of(name)?,
    };
    Ok(Greeting::new(user.as_deref(), Some(&password), host.database))
}

fn password_of(variable: &str) -> Result<String, PolicyErrors> {
    host::environment_variable(variable).filter(|password| !password.is_empty()).ok_or_else(|| {
        let mut errors = PolicyErrors::default();
        let expected = "a variable that is set, and named in environment_variables of this filter's vm_config";
        errors.push(Credentials::VARIABLE_PATH, "a variable that the filter does not have, or has empty", expected);
        errors
    })
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

    fn on_queue_ready(&mut self, _queue: u32) {
        if let Some(gateway) = self.gateway() {
            gateway.turn_ends();
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
