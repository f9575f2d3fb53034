//! A wall clock that a test can step, or let stand, for one process alone, by a library that is preloaded; the monotonic
//! clock goes on.

use crate::{EnvoyConfig, paths};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use tempfile::TempDir;

const LIBRARY: &str = "libstep_clock.so";
const STEP: &str = "step";

/// The clock; it must live as long as the Envoy that uses it.
pub struct StepClock {
    directory: TempDir,
    step: File,
}

impl StepClock {
    /// Builds the library. The clock shows the right time until it is stepped.
    pub fn build() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let source = paths::workspace().join("tests/preload/step_clock.rs");
        let mut rustc = Command::new("rustc");
        rustc.current_dir(paths::workspace()).args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "-C",
            "panic=abort",
        ]);
        let built =
            rustc.arg("-o").arg(directory.path().join(LIBRARY)).arg(&source).status().context("starting rustc")?;
        ensure!(built.success(), "{} does not build", source.display());
        let step = File::create(directory.path().join(STEP))?;
        let clock = Self { directory, step };
        clock.set(0);
        clock.stand_at(0);
        Ok(clock)
    }

    /// Steps the clock to so many seconds after the right time, before it when negative.
    pub fn set(&self, seconds: i64) {
        // In place: Envoy has the file mapped.
        self.step.write_all_at(&seconds.to_ne_bytes(), 0).expect("the step can be written");
    }

    /// Lets the clock stand at this time, in microseconds of Unix time; 0: lets it go on.
    pub fn stand_at(&self, unix_us: u64) {
        self.step.write_all_at(&unix_us.to_ne_bytes(), 8).expect("the time can be written");
    }

    /// Gives the clock to an Envoy.
    pub fn of(&self, config: EnvoyConfig) -> EnvoyConfig {
        self.environment().iter().fold(config, |config, (name, value)| config.environment(name, value))
    }

    /// What gives the clock to a process that has it in its environment.
    pub fn environment(&self) -> [(String, String); 2] {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        [("LD_PRELOAD".to_owned(), path(LIBRARY)), ("STEP_CLOCK_FILE".to_owned(), path(STEP))]
    }
}
