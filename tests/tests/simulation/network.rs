//! The connection of one gateway to the store: bytes in order, in pieces, late, or not at all.

use crate::random::Random;

/// What happens to one of the next replies. None of it happens on a sound TCP connection: only the tag notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    Lost,
    Doubled,
    Garbage,
}

/// One connection.
pub struct Link {
    /// Never used twice.
    pub id: u64,
    /// Swallows everything, both ways, for ever.
    pub is_black_hole: bool,
    /// Closes after this many more bytes to the gateway.
    pub cut_after: Option<usize>,
    pub reply_fault: Option<ReplyFault>,
    /// Nothing overtakes: the time of the last delivery to the store.
    pub to_store_us: u64,
    /// And to the gateway.
    pub to_gateway_us: u64,
}

impl Link {
    pub fn new(id: u64) -> Link {
        Link { id, is_black_hole: false, cut_after: None, reply_fault: None, to_store_us: 0, to_gateway_us: 0 }
    }

    /// The bytes of one reply as they leave the store, after the fault that waits for it.
    pub fn spoil(&mut self, reply: Vec<u8>, random: &mut Random) -> Vec<u8> {
        match self.reply_fault.take() {
            None => reply,
            Some(ReplyFault::Lost) => Vec::new(),
            Some(ReplyFault::Doubled) => reply.repeat(2),
            Some(ReplyFault::Garbage) => (0..random.between(1, 40)).map(|_| random.next() as u8).collect(),
        }
    }

    /// The part of `bytes` that still gets through, and whether the connection closes after it.
    pub fn cut(&mut self, mut bytes: Vec<u8>) -> (Vec<u8>, bool) {
        let Some(left) = self.cut_after else { return (bytes, false) };
        let closes = bytes.len() >= left;
        bytes.truncate(left);
        self.cut_after = Some(left - bytes.len());
        (bytes, closes)
    }
}
