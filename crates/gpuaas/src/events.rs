//! `gpuaas events` and `gpuaas webhook`: what happens to nodes, and where it is told.

use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::arguments::Format;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::api::List;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::event::{
    DeadLetter, EventSinkKind, EventSinkRemoval, EventSinkView, NodeEvent, ReplayAnswer,
    ReplayRequest, WebhookRequest,
};
use gpuaas_types::filter::ListFilter;

use crate::args::{EventFollowArgs, EventsArgs, EventsCommand, WebhookAddArgs, WebhookCommand};
use crate::private_file::PrivateFile;
use crate::watch::{is_passing, print_list};

/// Longest pause before a stream is asked for again, in seconds.
const LONGEST_PAUSE_SECONDS: f64 = 30.0;

/// `gpuaas events`.
///
/// # Errors
/// What the control plane or this machine refuses, or that the former does not answer.
pub async fn run(args: EventsArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    match args.command {
        None => follow(args.follow, terminal).await,
        Some(EventsCommand::Follow(args)) => follow(args, terminal).await,
        Some(EventsCommand::Sinks(args)) => {
            let sinks = ApiClient::from_args(&args.api)?.event_sinks().await?;
            output::print(terminal, args.api.format, &sinks, sinks_table)
        }
        Some(EventsCommand::DeadLetters(args)) => {
            let client = ApiClient::from_args(&args.api)?;
            let filter = args.filter.as_ref().map(ListFilter::compact);
            let ask = async || client.dead_letters(args.sink.as_deref(), filter.as_deref()).await;
            print_list((&client, &args.api), args.watch, terminal, ask, letters_table).await
        }
        Some(EventsCommand::Replay(args)) => {
            let body = ReplayRequest { sink: args.sink, letter: args.letter, reason: args.reason };
            let answer = ApiClient::from_args(&args.api)?.replay_dead_letters(&body).await?;
            output::print(terminal, args.api.format, &answer, |answer: &ReplayAnswer, _| {
                format!("dead letters to redeliver: {}", answer.letters)
            })
        }
    }
}

/// `gpuaas webhook`.
///
/// # Errors
/// What the control plane or this machine refuses, or that the former does not answer.
pub async fn webhook(command: WebhookCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        WebhookCommand::Add(args) => add_webhook(args, terminal).await,
        WebhookCommand::List(args) => {
            let mut sinks = ApiClient::from_args(&args.api)?.event_sinks().await?;
            sinks.items.retain(|sink| sink.kind == EventSinkKind::Webhook);
            output::print(terminal, args.api.format, &sinks, sinks_table)
        }
        WebhookCommand::Remove(args) => {
            let body = EventSinkRemoval { reason: args.reason };
            let left =
                ApiClient::from_args(&args.api)?.remove_event_sink(&args.name, &body).await?;
            terminal.message(&format!("stopped deliveries to {}", args.name));
            output::print(terminal, args.api.format, &left, sinks_table)
        }
    }
}

async fn add_webhook(args: WebhookAddArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let to_stdout = args.to == Path::new("-");
    // Made before the secret is, which is shown once.
    let file = if to_stdout { None } else { Some(PrivateFile::create(&args.to)?) };
    let WebhookAddArgs { name, url, site, reason, .. } = args;
    let body = WebhookRequest { name, url, site, reason };
    let made = match (client.add_webhook(&body).await, file) {
        (Ok(made), Some(file)) => {
            file.write_secret(made.secret.expose())?;
            made
        }
        (Ok(made), None) => return terminal.data(made.secret.expose()),
        (Err(failure), file) => {
            if let Some(file) = file {
                file.discard();
            }
            return Err(failure);
        }
    };
    terminal.message(&format!("wrote the secret of {} to {}", made.view.name, args.to.display()));
    let one = |sink: &EventSinkView, style| sinks_table(&List::whole(vec![sink.clone()]), style);
    output::print(terminal, args.api.format, &made.view, one)
}

/// Prints events until `--count`, and comes back after each break of the stream.
async fn follow(args: EventFollowArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let filter = [("site", args.site.as_deref()), ("node", args.node.as_deref())];
    let (mut after, mut left) = (args.after, args.count);
    let mut stream = client.follow_events(&filter, after).await?;
    let mut pause = 1.0;
    loop {
        while left != Some(0) {
            let event = match stream.next().await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(failure) if is_passing(&failure) => break,
                Err(failure) => return Err(failure),
            };
            terminal.data(&line(&event, args.api.format)?)?;
            (after, pause) = (Some(event.id), 1.0);
            left = left.map(|left| left - 1);
        }
        if left == Some(0) {
            return Ok(());
        }
        stream = loop {
            RealClock.sleep_until(RealClock.now().plus_seconds(pause)).await;
            match client.follow_events(&filter, after).await {
                Ok(stream) => break stream,
                Err(failure) if is_passing(&failure) => {
                    pause = f64::min(pause * 2.0, LONGEST_PAUSE_SECONDS);
                    let detail = &failure.problem.detail;
                    terminal.message(&format!("the stream broke, reconnecting: {detail}"));
                }
                Err(failure) => return Err(failure),
            }
        };
    }
}

/// An event as one piece of the output.
fn line(event: &NodeEvent, format: Format) -> Result<String, Failure> {
    let unwritable = |detail: String| Failure::local(CommandCode::AnswerUnprintable, detail);
    match format {
        Format::Table | Format::Wide => {
            let at = event.line.at.to_chrono().format("%Y-%m-%d %H:%M:%S%.3f");
            let text = format!("{at}  {}/{}  {}", event.site, event.hostname, event.line.text);
            // A terminal obeys none of what a host has sent.
            Ok(text
                .chars()
                .map(|c| if gpuaas_types::text::is_invisible(c) { ' ' } else { c })
                .collect())
        }
        Format::Name => Ok(event.id.to_string()),
        Format::Json => serde_json::to_string(event).map_err(|error| unwritable(error.to_string())),
        Format::Yaml => serde_saphyr::to_string(event)
            .map(|text| format!("---\n{text}"))
            .map_err(|error| unwritable(error.to_string())),
    }
}

fn sinks_table(list: &List<EventSinkView>, style: Style) -> String {
    let rows = list.items.iter().map(|sink| {
        let at = |moment: Option<gpuaas_types::Timestamp>| {
            moment.map_or_else(|| "-".to_owned(), |at| style.moment(at))
        };
        vec![
            sink.name.clone(),
            sink.kind.to_string(),
            sink.url.clone(),
            sink.site.clone().unwrap_or_else(|| "every".to_owned()),
            sink.delivered.to_string(),
            at(sink.waiting_since),
            at(sink.failing_since),
            sink.dead_letters.to_string(),
            output::or_dash(Some(&sink.last_error)),
        ]
    });
    let head = [
        "NAME",
        "KIND",
        "URL",
        "SITE",
        "DELIVERED",
        "WAITS SINCE",
        "FAILS SINCE",
        "DEAD LETTERS",
        "LAST ERROR",
    ];
    output::table(style, &head, rows)
}

fn letters_table(list: &List<DeadLetter>, style: Style) -> String {
    let rows = list.items.iter().map(|letter| {
        vec![
            letter.id.to_string(),
            letter.sink.clone(),
            letter.event.hostname.clone(),
            letter.event.line.code.clone(),
            style.moment(letter.event.line.at),
            style.moment(letter.failed_at),
            if letter.replaying { "is sent again".to_owned() } else { letter.error.clone() },
        ]
    });
    let head = ["LETTER", "SINK", "HOST", "EVENT", "HAPPENED", "GIVEN UP", "WHY"];
    output::table(style, &head, rows)
}

#[cfg(test)]
mod tests {
    use gpuaas_types::NodeId;
    use gpuaas_types::api::{Source, TimelineEvent};
    use gpuaas_types::event::EventCursor;

    use super::*;

    fn event() -> NodeEvent {
        NodeEvent {
            id: EventCursor { xact: 3, id: 4 },
            node_id: NodeId(Default::default()),
            hostname: "j22u11".to_owned(),
            site: "lab".to_owned(),
            line: TimelineEvent {
                at: gpuaas_types::Timestamp::from_micros(1_795_176_000_000_000),
                run_id: None,
                step: None,
                source: Source::Agent,
                code: "said".to_owned(),
                text: "a \u{1b}[2J \u{9b}2J word\nanother".to_owned(),
            },
        }
    }

    #[test]
    fn an_event_is_a_line_that_no_terminal_obeys() {
        let text = line(&event(), Format::Table).unwrap();
        assert!(text.contains("lab/j22u11  a  [2J  2J word another"), "{text}");
        assert!(!text.chars().any(char::is_control));
        assert_eq!(line(&event(), Format::Name).unwrap(), "3-4");
        let json = line(&event(), Format::Json).unwrap();
        assert_eq!(serde_json::from_str::<NodeEvent>(&json).unwrap(), event());
        assert!(!json.contains('\n'));
        assert!(line(&event(), Format::Yaml).unwrap().starts_with("---\n"));
    }
}
