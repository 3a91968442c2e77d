//! Writes `docs/reference/sluice.md` from the definitions of commands and settings, and keeps it
//! current: the test below fails when the page and the program differ.

use std::fmt::Write;
use std::path::Path;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};
use sluicegate_files::node::{Kind, docs};

use crate::args::Cli;

const INTRODUCTION: &str = "\
# sluice

One program holds every process and every tool. This page is generated from the program;
`UPDATE_REFERENCE=1 cargo test -p sluicegate reference` writes it anew.

Every command ends with 0 when all went well, 1 when its work failed, and 2 when arguments or files are
not usable as they stand. What a command finds goes to standard output, logs and remarks to standard
error. With `--json`, the last line of standard output is one JSON object.

Times are written with their unit: `250ms`, `20s`, `5m`, `1h`.
";

const NODES: &str = "\
## Node settings

`controller`, `aggregator` and `sidecar` take their settings from a YAML file (`--config FILE`) and from
flags; a flag wins over the file. Every setting has one name: the field `tick_ms` is the flag `--tick-ms`.
The file begins with

```yaml
apiVersion: sluicegate/v1
kind: aggregator        # controller, aggregator or sidecar
```

`sluice check` checks such files. The folder `configs/node` has commented examples.

Each process serves HTTP beside gRPC:

| path | what |
|---|---|
| `/metrics` | counters and gauges in the text format of Prometheus |
| `/healthz`, `/healthz/ready` | 200 when the process serves, 503 with a reason when it does not |
| `/healthz/live` | 200 while the process runs |
| `/status` | its state as JSON; `sluice status` shows it |

On SIGTERM or SIGINT a process stops in order (new streams are refused, what is under way is finished,
what was counted is reported) and ends with 0. `--ready-file FILE` writes a JSON object with the
addresses that were bound, `listen` and `http_listen`, once the process listens; with port 0 that is how
scripts learn the ports.
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let root = Cli::command();
    for command in root.get_subcommands() {
        write_command(&mut page, command.clone());
    }
    let _ = write!(page, "\n{NODES}");
    for kind in Kind::ALL {
        if kind != Kind::Client {
            write_settings(&mut page, kind);
        }
    }
    page
}

fn write_command(page: &mut String, command: Command) {
    let whole = format!("sluice {}", command.get_name());
    write_commands(page, command, &whole, "##");
}

/// A command, and then those within it.
fn write_commands(page: &mut String, command: Command, whole: &str, heading: &str) {
    let mut command = command.bin_name(whole);
    let usage = plain(&command.render_usage());
    let usage = usage.trim_start_matches("Usage: ");
    let about = command.get_long_about().or(command.get_about()).map(plain).unwrap_or_default();
    let _ = write!(page, "\n{heading} {whole}\n\n{}.\n\n", about.trim_end_matches('.'));
    let _ = write!(page, "```\n{usage}\n```\n");
    let mut under_before = None;
    for arg in command.get_arguments().filter(|a| !a.is_hide_set() && a.get_id() != "help") {
        let under = arg.get_help_heading().unwrap_or(if arg.is_positional() {
            "Arguments"
        } else {
            "Options"
        });
        if under_before != Some(under) {
            let _ = write!(page, "\n| {under} | |\n|---|---|\n");
            under_before = Some(under);
        }
        let _ = writeln!(page, "| {} | {} |", name(arg), meaning(arg));
    }
    for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
        let name = format!("{whole} {}", inner.get_name());
        write_commands(page, inner.clone(), &name, &format!("{heading}#"));
    }
}

fn name(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(|v| v.to_string()).collect();
    let takes_value = arg.get_action().takes_values();
    let values = if takes_value { values.join(" ") } else { String::new() };
    match arg.get_long() {
        Some(long) => {
            format!("`--{long}{}{}`", if values.is_empty() { "" } else { " " }, cell(&values))
        }
        None => format!("`{}`", cell(&values)),
    }
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(plain).unwrap_or_default();
    let mut text = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|v| v.to_string_lossy().into_owned())
        .filter(|v| !v.is_empty())
        .collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        let _ = write!(text, ". Default: `{}`", defaults.join(","));
    }
    let choices = arg.get_possible_values();
    if arg.get_action().takes_values() && !choices.is_empty() {
        let names: Vec<String> = choices.iter().map(|c| format!("`{}`", c.get_name())).collect();
        let _ = write!(text, ". One of {}", names.join(", "));
    }
    cell(&text)
}

fn write_settings(page: &mut String, kind: Kind) {
    let _ = write!(page, "\n### {kind}\n\n| field | what |\n|---|---|\n");
    for setting in docs(kind) {
        let text = setting.doc.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(page, "| `{}` | {} |", setting.name, cell(&text));
    }
}

/// A bar would end the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn plain(text: &StyledStr) -> String {
    console::strip_ansi_codes(&text.ansi().to_string()).into_owned()
}

#[test]
fn the_page_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/sluice.md");
    let wanted = page();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(&path, &wanted).expect("written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/reference/sluice.md differs from the program; \
         UPDATE_REFERENCE=1 cargo test -p sluicegate reference writes it anew"
    );
}

#[test]
fn every_command_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_node_setting_is_a_flag_of_its_command() {
    let root = Cli::command();
    for kind in [Kind::Controller, Kind::Aggregator, Kind::Sidecar] {
        let command = root.find_subcommand(kind.as_str()).expect("a command");
        for setting in docs(kind) {
            let long = setting.name.replace('_', "-");
            let has = command.get_arguments().any(|a| a.get_long() == Some(long.as_str()));
            assert!(has, "sluice {kind} has no --{long}");
        }
    }
}
