//! The `lockkeeper` command: everything is in the library, where tests can call it.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockkeeper::run(std::env::args_os())
}
