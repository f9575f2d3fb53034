//! What a fresh connection says to the store before its first command: who it is, and which database it wants.

use std::fmt;

use crate::resp::encode_command;

/// The commands of a greeting. Each is answered by one reply.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Greeting {
    bytes: Vec<u8>,
    replies: usize,
}

impl Greeting {
    /// The greeting with a password, of the default user or of `user`, and for a database; empty where the store wants
    /// neither. A fresh connection is in database 0.
    pub fn new(user: Option<&str>, password: Option<&str>, database: u32) -> Greeting {
        let mut greeting = Greeting::default();
        match (user, password) {
            (Some(user), Some(password)) => greeting.add(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
            (None, Some(password)) => greeting.add(&[b"AUTH", password.as_bytes()]),
            (_, None) => {}
        }
        if database != 0 {
            greeting.add(&[b"SELECT", database.to_string().as_bytes()]);
        }
        greeting
    }

    fn add(&mut self, command: &[&[u8]]) {
        encode_command(command, &mut self.bytes);
        self.replies = self.replies.saturating_add(1);
    }

    /// What to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many replies come before that of the first command.
    pub fn replies(&self) -> usize {
        self.replies
    }
}

/// Holds a password, so it shows none of its bytes.
impl fmt::Debug for Greeting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Greeting").field("replies", &self.replies).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(user: Option<&str>, password: Option<&str>, database: u32) -> (String, usize) {
        let greeting = Greeting::new(user, password, database);
        (String::from_utf8(greeting.bytes).unwrap(), greeting.replies)
    }

    #[test]
    fn it_says_no_more_than_the_store_wants() {
        assert_eq!(said(None, None, 0), (String::new(), 0));
        assert_eq!(said(None, Some("pw"), 0), ("*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n".into(), 1));
        let all = "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n";
        assert_eq!(said(Some("me"), Some("pw"), 12), (all.into(), 2));
    }

    #[test]
    fn it_shows_no_password() {
        assert_eq!(format!("{:?}", Greeting::new(None, Some("pw"), 0)), "Greeting { replies: 1, .. }");
    }
}
