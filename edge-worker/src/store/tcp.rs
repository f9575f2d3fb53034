//! A socket for one request: connect, introduce ourselves and ask in one write, read the replies, close.

use lockkeeper_core::greeting::Greeting;
use lockkeeper_core::resp::{Decoder, Reply};
use lockkeeper_core::store::{Refusal, StoreFailure};

use super::handshake::{accepted, greeting};
use crate::host::Socket;
use crate::log;
use crate::settings::Server;

/// The connection of one request, opened by its first command. A second command, after NOSCRIPT, uses it again.
#[derive(Default)]
pub struct TcpSession {
    socket: Option<Socket>,
    decoder: Decoder,
    sent: bool,
}

impl TcpSession {
    /// Sends a command and waits for its reply, for as long as the caller does. A connection that failed is not used
    /// again.
    pub async fn ask(&mut self, server: &Server, command: &[u8]) -> Result<Reply, StoreFailure> {
        let answer = self.exchange(server, command).await;
        if !matches!(answer, Ok(_) | Err(StoreFailure::Refused(Refusal::NoScript))) {
            self.close();
        }
        answer
    }

    async fn exchange(&mut self, server: &Server, command: &[u8]) -> Result<Reply, StoreFailure> {
        self.sent = false;
        let (socket, greeting) = match self.socket.take() {
            Some(socket) => (socket, Greeting::default()),
            None => {
                let socket = Socket::connect(&server.host, server.port, server.tls).await;
                (socket.map_err(|_| StoreFailure::NotSent)?, greeting(server))
            }
        };
        socket.write(&[greeting.bytes(), command].concat());
        self.sent = true;
        let socket = self.socket.insert(socket);
        let mut refused = None;
        for _ in 0..greeting.replies() {
            refused = refused.or(accepted(&next_reply(socket, &mut self.decoder).await?).err());
        }
        let reply = next_reply(socket, &mut self.decoder).await?;
        match (refused, reply) {
            (None, Reply::Error(text)) => Err(StoreFailure::of_error(&text)),
            (None, reply) => Ok(reply),
            (Some(refused), reply) => Err(unwelcome(refused, &reply)),
        }
    }

    /// What it means that the caller stopped waiting.
    pub fn timed_out(&self) -> StoreFailure {
        if self.sent { StoreFailure::Unknown } else { StoreFailure::NotSent }
    }

    /// Closes the connection, if there is one.
    pub fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.close();
        }
        self.decoder = Decoder::default();
    }
}

/// What became of a command that followed a handshake which was refused. The server may have carried it out, as another user
/// or in another database.
fn unwelcome(refused: StoreFailure, reply: &Reply) -> StoreFailure {
    log::store_refuses(&refused);
    if matches!(reply, Reply::Error(_)) { refused } else { StoreFailure::Unknown }
}

async fn next_reply(socket: &Socket, decoder: &mut Decoder) -> Result<Reply, StoreFailure> {
    loop {
        if let Some(reply) = decoder.next_reply().map_err(|_| StoreFailure::Unknown)? {
            return Ok(reply);
        }
        decoder.extend(&socket.read().await.ok_or(StoreFailure::Unknown)?);
    }
}
