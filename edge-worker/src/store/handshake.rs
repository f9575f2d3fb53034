//! What a fresh connection says before its first command, and what the store says to that.

use lockkeeper_core::greeting::Greeting;
use lockkeeper_core::resp::Reply;
use lockkeeper_core::store::StoreFailure;

use crate::settings::Server;

/// What a server wants to hear first.
pub fn greeting(server: &Server) -> Greeting {
    Greeting::new(server.user.as_deref(), server.password.as_deref(), server.database)
}

/// Whether a reply to the greeting says that it worked.
///
/// # Errors
/// What the server refused.
pub fn accepted(reply: &Reply) -> Result<(), StoreFailure> {
    match reply {
        Reply::SimpleString(_) => Ok(()),
        Reply::Error(text) => Err(StoreFailure::of_error(text)),
        _ => Err(StoreFailure::Unknown),
    }
}
