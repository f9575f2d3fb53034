//! Who a gateway is to the store, as the host configuration says it: `{ "user": …, "password": … }`, or
//! `{ "password_variable": … }` where the host has the password in its environment.

use std::fmt;

use crate::policy::error::PolicyErrors;
use crate::policy::node::Node;
use crate::policy::reader::Place;

/// Who a gateway is to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user; without one, the store's default user.
    pub user: Option<String>,
    /// Their password.
    pub password: Password,
}

/// A password, or where it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// The password.
    Text(String),
    /// The variable of the host's environment that holds it.
    Variable(String),
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Password::Text(_) => formatter.write_str("Text(..)"),
            Password::Variable(name) => formatter.debug_tuple("Variable").field(name).finish(),
        }
    }
}

impl Credentials {
    /// The place of the variable's name in a plugin configuration, for hosts that do not find it.
    pub const VARIABLE_PATH: &str = "$.host.credentials.password_variable";

    pub(crate) fn read(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Credentials> {
        let expected = "an object with user and password, or password_variable";
        if !matches!(place.node, Node::Object(_)) {
            // The password may be part of what stands there instead.
            errors.push(&place.path, "what is no object", expected);
            return None;
        }
        let object = place.object(errors, expected)?;
        let user =
            object.or("user", None, errors, |place, errors| named(place, "the name of a user", errors).map(Some));
        let text = object.optional("password").map(|place| secret(&place, errors).map(Password::Text));
        let variable =
            object.optional("password_variable").map(|place| variable(&place, errors).map(Password::Variable));
        let password = match (text, variable) {
            (Some(password), None) | (None, Some(password)) => password,
            (Some(_), Some(_)) => one_of_both("password and password_variable", object.path(), errors),
            (None, None) => one_of_both("neither password nor password_variable", object.path(), errors),
        };
        object.finish(errors, &["user", "password", "password_variable"]);
        Some(Credentials { user: user?, password: password? })
    }
}

fn one_of_both(found: &str, path: &str, errors: &mut PolicyErrors) -> Option<Password> {
    errors.push(path, found, "one of them");
    None
}

fn named(place: &Place<'_>, expected: &str, errors: &mut PolicyErrors) -> Option<String> {
    let text = place.text(errors, expected)?;
    if text.is_empty() || text.contains(char::is_control) {
        place.reject(errors, expected);
        return None;
    }
    Some(text.to_owned())
}

/// The password itself may stand there by mistake.
fn variable(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let name = secret(place, errors)?;
    if name.contains(|letter: char| letter.is_control() || letter == '=') {
        errors.push(&place.path, "what cannot be the name of a variable", "the name of an environment variable");
        return None;
    }
    Some(name)
}

/// Says what kind of value stands there, and not which.
fn secret(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<String> {
    let found = match place.node {
        Node::Text(text) if !text.is_empty() => return Some(text.clone()),
        Node::Text(_) => "an empty string",
        _ => "what is no string",
    };
    errors.push(&place.path, found, "a string that is not empty");
    None
}
