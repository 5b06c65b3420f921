//! `gpuaas man`: the manual pages, from the tree of commands that is typed.

use std::fs;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::codes::CommandCode;

use crate::args::{ManArgs, tree};

/// Writes a page of each command into the folder, `gpuaas-node-list.1` and so on.
///
/// # Errors
/// `file_unreadable` where the folder cannot be written.
pub(crate) fn write(args: &ManArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let detail = format!("{}: {error}", args.to.display());
        Failure::local(CommandCode::FileUnreadable, detail)
            .hint("use a folder that this user can write to, such as ~/.local/share/man/man1")
    };
    fs::create_dir_all(&args.to).map_err(failed)?;
    clap_mangen::generate_to(tree(), &args.to).map_err(failed)?;
    terminal
        .message(&format!("run `man -l {}/gpuaas.1` to read the first page", args.to.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_example() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("share/man/man1");
        let (mut terminal, _) = Terminal::captured();
        write(&ManArgs { to: to.clone() }, &mut terminal).unwrap();
        let page = |name: &str| fs::read_to_string(to.join(name)).unwrap();
        assert!(page("gpuaas.1").contains(".TH gpuaas 1"));
        assert!(page("gpuaas.1").contains("Exit codes"), "{}", page("gpuaas.1"));
        let list = page("gpuaas-node-list.1");
        assert!(list.contains("stuck") && list.contains("gpuaas node list"), "{list}");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let failure = write(&ManArgs { to: file.join("man1") }, &mut terminal).unwrap_err();
        assert_eq!(failure.code(), "file_unreadable");
        assert!(!failure.problem.hint.is_empty());
    }
}
