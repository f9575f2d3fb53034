//! Wrong things put into the store before a step: keys without a lifetime, foreign types, garbage.

use lockkeeper_core::algorithm::{Algorithm, State};

use crate::key::{Key, REST_MS_MIN};
use crate::wire::{Words, words};
use crate::world::{Limit, World};

/// How the store is to be wrong before the next step.
#[derive(Clone, Copy, Debug)]
pub enum Plant<'a> {
    /// The key loses its lifetime.
    Immortal,
    /// The key is to vanish too early.
    Hasty,
    /// A text that no script of ours has written, without a lifetime.
    Text(&'a str),
    /// A list of such texts.
    List(&'a [&'a str]),
    /// A hash.
    Hash,
}

impl World {
    /// Puts something wrong at a limit's key.
    pub fn plant(&mut self, limit: &Limit, plant: Plant<'_>) {
        let key = limit.key.as_str();
        let is_log = matches!(limit.algorithm, Algorithm::SlidingWindow(_));
        match plant {
            Plant::Immortal => self.hurry(key, None),
            Plant::Hasty => self.hurry(key, Some(self.now_us + REST_MS_MIN * 1000)),
            Plant::Text(text) => {
                let texts: &[&str] = if is_log { &[] } else { &[text] };
                self.replace(limit, texts, words(&["SET", key, text]));
            }
            Plant::List(elements) => {
                let texts = if is_log { elements } else { &[] };
                self.replace(limit, texts, words(&[&["RPUSH", key], elements].concat()));
            }
            Plant::Hash => self.replace(limit, &[], words(&["HSET", key, "field", "1"])),
        }
    }

    fn hurry(&mut self, key: &str, vanishes_us: Option<u64>) {
        if let Some(key) = self.keys.get_mut(key) {
            key.vanishes_us = vanishes_us;
        }
    }

    /// `texts` is what the limit's algorithm can read of it.
    fn replace(&mut self, limit: &Limit, texts: &[&str], command: Words) {
        self.store.run(&[words(&["DEL", &limit.key]), command]);
        let planted = Key {
            oracle: State::parse(&limit.algorithm, texts),
            algorithm: limit.algorithm.clone(),
            vanishes_us: None,
            planted: true,
        };
        self.keys.insert(limit.key.clone(), planted);
    }
}
