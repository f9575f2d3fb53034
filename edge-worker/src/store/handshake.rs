//! What a fresh connection says before its first command: who it is and which database it wants.

use lockkeeper_core::resp::{Reply, encode_command};
use lockkeeper_core::store::StoreFailure;

use crate::settings::Server;

/// The commands of a handshake, and how many replies they bring.
pub struct Handshake {
    /// What to send.
    pub bytes: Vec<u8>,
    /// Replies that come before that of the first command.
    pub replies: usize,
}

impl Handshake {
    /// The handshake with a server; empty where it wants neither credentials nor another database.
    pub fn of(server: &Server) -> Handshake {
        let mut handshake = Handshake { bytes: Vec::new(), replies: 0 };
        match (&server.user, &server.password) {
            (Some(user), Some(password)) => handshake.add(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
            (None, Some(password)) => handshake.add(&[b"AUTH", password.as_bytes()]),
            (_, None) => {}
        }
        if server.database != 0 {
            handshake.add(&[b"SELECT", server.database.to_string().as_bytes()]);
        }
        handshake
    }

    fn add(&mut self, command: &[&[u8]]) {
        encode_command(command, &mut self.bytes);
        self.replies = self.replies.saturating_add(1);
    }
}

/// Whether a reply to the handshake says that it worked.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(user: Option<&str>, password: Option<&str>, database: u32) -> (String, usize) {
        let [user, password] = [user, password].map(|text| text.map(str::to_owned));
        let handshake =
            Handshake::of(&Server { host: "store".into(), port: 6379, tls: false, user, password, database });
        (String::from_utf8(handshake.bytes).unwrap(), handshake.replies)
    }

    #[test]
    fn it_says_no_more_than_the_server_wants() {
        assert_eq!(said(None, None, 0), (String::new(), 0));
        assert_eq!(said(None, Some("pw"), 0), ("*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n".into(), 1));
        let all = "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n";
        assert_eq!(said(Some("me"), Some("pw"), 12), (all.into(), 2));
    }
}
