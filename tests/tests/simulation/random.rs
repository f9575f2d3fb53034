//! Random numbers that a seed repeats (SplitMix64, Steele et al. 2014).

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between `from` and `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }

    /// Cuts bytes into pieces of random lengths.
    pub fn pieces(&mut self, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let length = if self.percent(60) { bytes.len() } else { self.between(1, bytes.len() as u64) as usize };
            let rest = bytes.split_off(length);
            pieces.push(std::mem::replace(&mut bytes, rest));
        }
        pieces
    }
}
