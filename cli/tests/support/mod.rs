//! Runs the built command in a directory of its own.

use std::process::Command;

/// A directory with the files of one test.
pub struct Directory(tempfile::TempDir);

impl Directory {
    /// A directory that holds these files.
    pub fn with(files: &[(&str, &str)]) -> Directory {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        Directory(directory)
    }
}

/// What a run printed, and its exit code.
pub struct Run {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

/// Runs the command with these arguments.
pub fn lockkeeper(directory: &Directory, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.current_dir(directory.0.path()).env_remove("LOCKKEEPER_STORE").args(arguments);
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code().unwrap() }
}
