//! What a lab shows at its begin and at its end, as text.

use gpuaas_client::terminal::Style;
use gpuaas_client::waterfall;
use gpuaas_engine::ClockChoice;

use crate::summary::{EndedNode, LabSummary};

/// Above this many machines no waterfalls are drawn.
const DRAWN: usize = 8;

/// Where everything of a lab is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabAddresses {
    /// URL of the region.
    pub(crate) region: String,
    /// File of its administrator's API key.
    pub(crate) api_key_file: String,
    /// URL of the control plane.
    pub(crate) control_plane: String,
    /// File of the admin token.
    pub(crate) token_file: String,
}

impl LabAddresses {
    pub(crate) fn draw(&self) -> String {
        let Self { region, api_key_file, control_plane, token_file } = self;
        format!(
            "  MAAS region    {region}/\n  MAAS API key   {api_key_file}\n  control plane  {control_plane}\n  \
             admin token    {token_file}"
        )
    }
}

/// What is begun, how time goes, and where it is.
pub(crate) fn header(asked: Option<&str>, clock: &ClockChoice, addresses: &LabAddresses) -> String {
    let asked = asked.map(|asked| format!("lab with {asked}\n")).unwrap_or_default();
    let clock = match clock {
        ClockChoice::Real => "real time: the hardware takes no time".to_owned(),
        ClockChoice::File(_) => {
            "simulated time: the clock advances only while something waits".to_owned()
        }
        ClockChoice::Paced { factor, .. } => {
            format!("simulated time: the clock runs {factor} times as fast as real time")
        }
    };
    format!("{asked}{clock}\n{}", addresses.draw())
}

/// Where to watch.
pub(crate) fn console(url: &str, seconds: f64) -> String {
    format!("  console        {url}\n                 (signs in once, within {seconds:.0} s)")
}

/// How a lab ended: where the time of each machine went, and how many came to their end.
pub(crate) fn result(
    ended: &[EndedNode],
    summary: &LabSummary,
    (clock, is_plain): (&ClockChoice, bool),
    style: Style,
) -> String {
    let mut text = String::new();
    if ended.len() <= DRAWN {
        for one in ended {
            text.push_str(&format!("\n{}", waterfall::draw(&one.run, style)));
        }
    }
    text.push_str(&format!("\n{}", waterfall::bucket_table(&summary.runs, style)));
    let clock = match clock {
        ClockChoice::Real | ClockChoice::File(_) => String::new(),
        ClockChoice::Paced { factor, .. } => {
            format!(" ({factor} simulated seconds per second)")
        }
    };
    let LabSummary { active, nodes, wall_seconds, .. } = summary;
    let what = match is_plain {
        true => format!("{active} of {nodes} machines active"),
        false => format!("{nodes} machines completed the scenario"),
    };
    text.push_str(&format!("\n{what} in {wall_seconds:.1} s of real time{clock}"));
    text
}

/// Three commands to go on with, as they can be pasted.
pub(crate) fn next(program: &str) -> String {
    let program = shell_word(program);
    let commands = [
        ("lab --keep", "run the same lab and keep it running to explore"),
        (
            "lab --nodes 2 --scenario bare-metal",
            "see why a server that lost a GPU does not become active",
        ),
        ("lab --help", "list all scenarios and options"),
    ];
    let lines = commands.map(|(arguments, what)| format!("  # {what}\n  {program} {arguments}"));
    format!("\ntry next:\n{}", lines.join("\n"))
}

/// What another shell needs of a lab that is left running, as it can be pasted.
pub(crate) fn left_running(addresses: &LabAddresses, program: &str, first_node: &str) -> String {
    let [program, server, token_file] =
        [program, &addresses.control_plane, &addresses.token_file].map(shell_word);
    format!(
        "\nrunning until Ctrl-C:\n{}\n\nin another shell:\n  export GPUAAS_SERVER={server} \
         GPUAAS_TOKEN_FILE={token_file}\n  {program} node list\n  {program} explain \
         {first_node}\n  {program} run show {first_node}",
        addresses.draw(),
    )
}

/// A text as one word of a shell.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-[]".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use gpuaas_testkit::views;
    use gpuaas_types::NodeState;

    use super::*;
    use crate::record::RegionRecord;

    fn addresses() -> LabAddresses {
        LabAddresses {
            region: "http://127.0.0.1:41001/MAAS".to_owned(),
            api_key_file: "/tmp/gpuaas-lab/maas-api-key".to_owned(),
            control_plane: "http://127.0.0.1:41002".to_owned(),
            token_file: "/tmp/gpuaas-lab/data/admin-token".to_owned(),
        }
    }

    /// The whole of a lab as somebody sees it on a terminal of 80 columns, and on a wide one.
    #[test]
    fn screens_of_two_widths() {
        let ended: Vec<EndedNode> = ["j22u11", "j22u15", "j27u15"]
            .map(|name| {
                let (mut node, mut run) = (views::commissioning_node(), views::finished_run());
                node.state = NodeState::Active;
                node.hostname = name.to_owned();
                run.hostname = name.to_owned();
                EndedNode { node, run }
            })
            .to_vec();
        let summary = LabSummary::summarize(&ended, &[], &[], &RegionRecord::default(), 64.1);
        let epoch = views::commissioning_node().created_at;
        let clock = ClockChoice::paced(30.0, epoch);
        for width in [80, 160] {
            let style = Style { width, ascii: true, bounded: true, now: None };
            let text = [
                header(Some("3 machines (scenario plain, speed 30, seed 1)"), &clock, &addresses()),
                result(&ended, &summary, (&clock, true), style),
                next("/home/ann/gpuaas/target/lab/gpuaas"),
                left_running(&addresses(), "/home/ann/gpuaas/target/lab/gpuaas", "j22u11"),
            ]
            .join("\n");
            let is_command = |line: &str| line.contains("export ");
            let wide = text.lines().find(|line| line.len() > width && !is_command(line));
            assert_eq!(wide, None);
            insta::assert_snapshot!(format!("lab_at_{width}"), text);
        }
    }

    /// The line to paste is one command of a shell, and names what the lab said.
    #[test]
    fn the_export_of_a_kept_lab_is_read_by_a_shell() {
        let text = left_running(&addresses(), "gpuaas", "j22u11");
        let line = text.lines().find(|line| line.trim_start().starts_with("export ")).unwrap();
        let script = format!("{line}\nprintf '%s %s' \"$GPUAAS_SERVER\" \"$GPUAAS_TOKEN_FILE\"");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "http://127.0.0.1:41002 /tmp/gpuaas-lab/data/admin-token"
        );
    }

    /// Whoever pastes them may be in any folder, and the folder of the lab may be called anything.
    #[test]
    fn what_is_printed_can_be_pasted_anywhere_and_shows_no_key() {
        let file = "/tmp/ann's lab/data/admin-token";
        let addresses = LabAddresses { token_file: file.to_owned(), ..addresses() };
        let text = left_running(&addresses, "/opt/a b/gpuaas", "j22u11");
        let line = text.lines().find(|line| line.trim_start().starts_with("export ")).unwrap();
        let script = format!("cd /; {line}\nprintf %s \"$GPUAAS_TOKEN_FILE\"");
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), file);
        assert!(text.contains("\n  '/opt/a b/gpuaas' node list\n"), "{text}");
        assert!(!text.contains("consumer:"), "{text}");
    }
}
