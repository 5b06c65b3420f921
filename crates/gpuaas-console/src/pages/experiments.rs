//! Experiments: the list, and one experiment with both images side by side.

use askama::Template;
use axum::Form;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use gpuaas_types::experiment::{
    ExperimentArm, ExperimentNode, ExperimentState, ExperimentStop, ExperimentView, FailureVerdict,
    MeasureVerdict,
};
use serde::Deserialize;

use super::{Shell, draw, failed, list_or_failure, name_and_form, no_such_action, send_form};
use crate::actions::{Button, EXPERIMENT_NEXT, EXPERIMENT_STOP};
use crate::api::{Failure, Viewer};
use crate::comparison::{self, Comparison};
use crate::format::{self, Mark};
use crate::requests::{part, shell_word, with_query};
use crate::state::Console;

const PATH: &str = "/api/v1/experiments";

/// Which experiments to show.
#[derive(Deserialize, Default)]
pub(crate) struct Asked {
    #[serde(default)]
    site: String,
}

struct Line {
    href: String,
    id: String,
    mark: Mark,
    site: String,
    image_a: String,
    image_b: String,
    ended: String,
    verdict: Mark,
    by: String,
    created: String,
}

#[derive(Template)]
#[template(path = "experiments.html")]
struct ExperimentsPage {
    shell: Shell,
    site: String,
    lines: Vec<Line>,
    failure: Option<Failure>,
}

/// `GET /experiments`.
pub(crate) async fn list(
    State(console): State<Console>,
    viewer: Viewer,
    Query(asked): Query<Asked>,
) -> Response {
    let (path, now) = (with_query(PATH, &[("site", &asked.site)]), console.now());
    let (list, failure) = match list_or_failure::<ExperimentView>(&viewer, now, &path).await {
        Ok(answer) => answer,
        Err(response) => return response,
    };
    if viewer.wants_json() {
        return super::json(&list);
    }
    let cli = match &*asked.site {
        "" => "gpuaas experiment list".to_owned(),
        site => format!("gpuaas experiment list --site {}", shell_word(site)),
    };
    let shell = Shell::new(&viewer, "Experiments", "experiments", now).sources(cli, path);
    let line = |one: &ExperimentView| Line {
        href: format!("/experiments/{}", part(&one.id)),
        id: one.id.clone(),
        mark: state_mark(one.state),
        site: one.site.clone(),
        image_a: image(one, 0),
        image_b: image(one, 1),
        ended: ended(one),
        verdict: verdict(one),
        by: one.created_by.clone(),
        created: format!("{} ago", format::age(one.created_at, now)),
    };
    let lines = list.items.iter().map(line).collect();
    draw(&ExperimentsPage { shell, site: asked.site, lines, failure })
}

fn image(one: &ExperimentView, arm: usize) -> String {
    one.arms.get(arm).map(|arm| arm.image.clone()).unwrap_or_default()
}

fn state_mark(state: ExperimentState) -> Mark {
    let (shape, class) = match state {
        ExperimentState::Running => ("▶", "run"),
        ExperimentState::Ended => ("✓", "ok"),
        ExperimentState::Stopped => ("–", "off"),
        ExperimentState::Imported => ("◌", "wait"),
    };
    Mark { shape, word: state.as_str(), class }
}

fn has_ended(node: &ExperimentNode) -> bool {
    node.status.is_some_and(|status| !status.is_open())
}

/// Runs that have ended, of those that were planned.
fn ended(one: &ExperimentView) -> String {
    let ended = one.assignments.iter().filter(|node| has_ended(node)).count();
    format!("{ended} of {}", one.assignments.len())
}

/// What the measure says that the experiment is about.
fn verdict(one: &ExperimentView) -> Mark {
    match one.measures.first() {
        Some(measure) => measure_mark(measure.verdict),
        None => Mark { shape: "◌", word: "not enough runs yet", class: "wait" },
    }
}

pub(crate) const fn measure_mark(verdict: MeasureVerdict) -> Mark {
    let (shape, word, class) = match verdict {
        MeasureVerdict::Faster => ("✓", "B is faster", "ok"),
        MeasureVerdict::Slower => ("▲", "B is slower", "bad"),
        MeasureVerdict::SameWithinMargin => ("✓", "same within the margin", "ok"),
        MeasureVerdict::Inconclusive => ("?", "inconclusive", "wait"),
        MeasureVerdict::InsufficientSample => ("?", "not enough runs", "wait"),
        MeasureVerdict::NotComparable => ("?", "arms are not comparable", "wait"),
    };
    Mark { shape, word, class }
}

const fn failure_mark(verdict: FailureVerdict) -> Mark {
    let (shape, word, class) = match verdict {
        FailureVerdict::Worse => ("▲", "B fails more often", "bad"),
        FailureVerdict::NoEvidenceOfWorse => ("✓", "no evidence that B fails more often", "ok"),
        FailureVerdict::NotComparable => ("?", "arms are not comparable", "wait"),
    };
    Mark { shape, word, class }
}

/// What is said of failures.
struct Failures {
    mark: Mark,
    p: String,
    /// Class, failures of A, failures of B.
    classes: Vec<(String, usize, usize)>,
    interventions: [usize; 2],
}

struct Member {
    hostname: String,
    node_href: String,
    arm: &'static str,
    mark: Mark,
    run_href: String,
    took: String,
    failure: String,
}

#[derive(Template)]
#[template(path = "experiment.html")]
struct ExperimentPage {
    shell: Shell,
    experiment: ExperimentView,
    mark: Mark,
    verdict: Mark,
    ended: String,
    created: String,
    primary: String,
    comparison: Comparison,
    failures: Option<Failures>,
    members: Vec<Member>,
    buttons: Vec<Button>,
}

/// `GET /experiments/EXPERIMENT`.
pub(crate) async fn show(
    State(console): State<Console>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Response {
    let (name, as_json) = name_and_form(&name);
    let (path, now) = (format!("{PATH}/{}", part(name)), console.now());
    let experiment = match viewer.api.get::<ExperimentView>(&path).await {
        Ok(experiment) => experiment,
        Err(failure) => return failed(&viewer, now, &failure),
    };
    if as_json {
        return super::json(&experiment);
    }
    let shell = Shell::new(&viewer, &format!("Experiment {}", experiment.id), "experiments", now)
        .sources(format!("gpuaas experiment show {}", shell_word(&experiment.id)), path);
    let failures = experiment.failures.as_ref().map(|failures| Failures {
        mark: failure_mark(failures.verdict),
        p: format!("{:.3}", failures.p),
        classes: failures.classes.iter().map(|(class, [a, b])| (class.clone(), *a, *b)).collect(),
        interventions: failures.interventions,
    });
    draw(&ExperimentPage {
        mark: state_mark(experiment.state),
        verdict: verdict(&experiment),
        ended: ended(&experiment),
        created: format::time(experiment.created_at),
        primary: experiment.primary.as_str().replace('_', " "),
        comparison: comparison::layout(&experiment),
        failures,
        members: experiment.assignments.iter().map(member).collect(),
        buttons: buttons(&viewer, &experiment),
        shell,
        experiment,
    })
}

fn member(node: &ExperimentNode) -> Member {
    let sample = node.sample.as_ref();
    let took = sample.and_then(|sample| sample.time_to_active);
    Member {
        hostname: node.node.clone(),
        node_href: format!("/nodes/{}", part(&node.node)),
        arm: match node.arm {
            ExperimentArm::A => "A",
            ExperimentArm::B => "B",
        },
        mark: node
            .status
            .map_or(Mark { shape: "◌", word: "not started", class: "wait" }, format::run_mark),
        run_href: node.run.map(|run| format!("/runs/{run}")).unwrap_or_default(),
        took: took.map(format::duration).unwrap_or_default(),
        failure: sample.map(|sample| sample.failure_class.clone()).unwrap_or_default(),
    }
}

fn buttons(viewer: &Viewer, experiment: &ExperimentView) -> Vec<Button> {
    let is_running = experiment.state == ExperimentState::Running;
    let obstacle = if is_running { "" } else { "the experiment has ended" };
    let site = Some(&*experiment.site);
    let href = |verb: &str| format!("/experiments/{}/{verb}", part(&experiment.id));
    vec![
        Button::new(EXPERIMENT_NEXT, href("next"), viewer, site, obstacle),
        Button::new(EXPERIMENT_STOP, href("stop"), viewer, site, obstacle),
    ]
}

#[derive(Deserialize)]
pub(crate) struct Reason {
    #[serde(default)]
    reason: String,
}

/// `POST /experiments/EXPERIMENT/{next, stop}`.
pub(crate) async fn act(
    State(console): State<Console>,
    viewer: Viewer,
    Path((name, action)): Path<(String, String)>,
    Form(form): Form<Reason>,
) -> Response {
    if !["next", "stop"].contains(&&*action) {
        return no_such_action(&console, &viewer);
    }
    let name = part(&name);
    let body =
        ExperimentStop { actor: viewer.access.name.clone(), reason: form.reason.trim().to_owned() };
    let back = format!("/experiments/{name}");
    send_form(&console, &viewer, &format!("{PATH}/{name}/{action}"), &body, &back).await
}
