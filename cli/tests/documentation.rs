//! The transcripts of docs/CLI.md: each command prints what stands below it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// The commands of all `console` blocks, each with its output.
fn transcripts(text: &str) -> Vec<(&str, String)> {
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let commands = blocks.flat_map(|(block, _)| block.split("$ ").filter(|part| !part.is_empty()));
    commands.filter_map(|part| part.split_once('\n')).map(|(command, output)| (command, output.to_owned())).collect()
}

#[test]
fn commands_print_what_the_documentation_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = std::fs::read_to_string(root.join("docs/CLI.md")).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_lockkeeper")).parent().unwrap();
    let path = std::env::join_paths([built, "/usr/bin".as_ref(), "/bin".as_ref()]).unwrap();
    let transcripts = transcripts(&text);
    assert!(transcripts.len() >= 3, "{transcripts:?}");
    for (command, expected) in transcripts {
        let output = Command::new("sh").arg("-c").arg(command).current_dir(root).env("PATH", &path).output().unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(printed, expected, "of `{command}`");
    }
}
