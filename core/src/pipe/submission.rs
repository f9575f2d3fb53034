//! How a command is to be sent.

/// When a command was submitted and how it goes out.
#[derive(Clone, Debug)]
pub struct Submission {
    pub(super) now_us: u64,
    pub(super) deadline_us: u64,
    pub(super) tag: Option<String>,
    pub(super) is_bulky: bool,
}

impl Submission {
    /// A command of now, of no use after its deadline.
    pub fn new(now_us: u64, deadline_us: u64) -> Submission {
        Submission { now_us, deadline_us, tag: None, is_bulky: false }
    }

    /// Somebody else has marked it: `tag` must differ from those in flight.
    pub fn tagged(self, tag: String) -> Submission {
        Submission { tag: Some(tag), ..self }
    }

    /// It may be large, and then no request waits for it: calls that are queued with it go first.
    pub fn bulky(self, is_bulky: bool) -> Submission {
        Submission { is_bulky, ..self }
    }
}
