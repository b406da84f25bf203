//! `holdfast completions` and `holdfast man`: what a package of the program installs beside it.
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::run::shown;
use crate::terminal;

/// Prints the completions of a shell.
///
/// # Errors
/// When they can't be written.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    terminal::print(&completions_of(args.shell))
}

fn completions_of(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "holdfast", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes the man pages into a folder, one for each command; without a folder, prints the first one.
///
/// # Errors
/// When they can't be written.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut program = Cli::command();
    program.build();
    let Some(folder) = &args.folder else {
        return terminal::print(&page(program)?);
    };
    let failed = |path: &Path, error: std::io::Error| {
        Failure::failed(format!("can't write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let mut pages = vec![("holdfast.1".to_owned(), page(program.clone())?)];
    let shown_ones = program
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    for command in shown_ones {
        let name = format!("holdfast-{}", command.get_name());
        pages.push((format!("{name}.1"), page(command.clone())?));
    }
    for (name, page) in &pages {
        let path = folder.join(name);
        std::fs::write(&path, page).map_err(|error| failed(&path, error))?;
    }
    terminal::say(&format!(
        "{} pages in {}",
        pages.len(),
        shown(&folder.display().to_string())
    ));
    Ok(())
}

fn page(command: clap::Command) -> Result<String, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::failed(format!("can't make a man page: {error}")))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions_of(shell);
            for command in ["verify", "gc", "copy", "savepoint", "take-over"] {
                assert!(script.contains(command), "{shell}: {command}");
            }
        }
    }

    #[test]
    fn man_pages_tell_exit_codes_and_each_command_has_one() {
        let folder = tempfile::tempdir().unwrap();
        man(&ManArgs {
            folder: Some(folder.path().to_owned()),
        })
        .unwrap();
        for command in ["run", "list", "show", "verify", "gc", "copy", "stop"] {
            let page = folder.path().join(format!("holdfast-{command}.1"));
            let page = std::fs::read_to_string(page).unwrap();
            assert!(page.contains(".TH"), "{page}");
        }
        let page = std::fs::read_to_string(folder.path().join("holdfast-gc.1")).unwrap();
        assert!(page.contains("Exit codes"), "{page}");
    }
}
