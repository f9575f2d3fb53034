//! The `lockkeeper` command: says what is wrong with a policy file, what a request gets under it and what the store
//! holds for that request, before and after deployment.

mod check;
mod claims;
pub mod document;
pub mod explain;
pub mod finding;
mod inspect;
pub mod places;
pub mod request;
mod schema;
mod secrets;
mod store;
mod style;
mod unlock;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Checks and explains Lockkeeper policies.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Report every error and warning of policy files or plugin configurations
    #[command(after_help = check::EXIT_CODES)]
    Check(check::Options),
    /// Show what a request gets: policy, limits, identity, store keys, answers
    Explain(explain::Options),
    /// Show what the store holds for a request: its claims, and what is left of its limits
    Inspect(inspect::Options),
    /// Delete what the store holds for a request, after asking
    Reset(inspect::ResetOptions),
    /// Give back the claims of a request whose holder will not, after asking
    Unlock(unlock::Options),
    /// Print the JSON Schema of policy files and plugin configurations, for editors
    Schema,
    /// Print a script that completes this command's arguments in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// How a command ended, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// 0: done, nothing to object.
    Success,
    /// 1: done, and there are objections.
    Objections,
    /// 2: not done: bad arguments, an unreadable file, an unreachable store.
    Failure,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> ExitCode {
        ExitCode::from(match ending {
            Ending::Success => 0,
            Ending::Objections => 1,
            Ending::Failure => 2,
        })
    }
}

/// Runs the command with its arguments, the first being its own name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are errors to the parser, which knows how to print and count them.
            let _ = error.print();
            return if error.use_stderr() { Ending::Failure.into() } else { Ending::Success.into() };
        }
    };
    let ending = match arguments.command {
        Command::Check(options) => check::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Inspect(options) => inspect::inspect(&options),
        Command::Reset(options) => inspect::reset(&options),
        Command::Unlock(options) => unlock::run(&options),
        Command::Schema => {
            style::print(schema::TEXT);
            Ok(Ending::Success)
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "lockkeeper", &mut std::io::stdout());
            Ok(Ending::Success)
        }
    };
    ending.unwrap_or_else(|error| style::fail(&error)).into()
}
