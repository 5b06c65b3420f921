use super::*;
use crate::wrap::wrap_lines;
use gpuaas_testkit::views;

/// Twelve minutes after the last moment of the views.
const NOW: gpuaas_types::Timestamp = gpuaas_types::Timestamp::from_micros(1_795_199_520_000_000);
const STYLE: Style = Style { width: 100, ascii: true, bounded: true, now: Some(NOW) };

#[test]
fn tables_of_lists() {
    let nodes_text =
        nodes(&List::whole(vec![views::commissioning_node(), views::parked_node()]), STYLE);
    let sites_text = sites(&List::whole(vec![views::site()]), STYLE);
    let profiles_text = profiles(&List::whole(vec![views::profile()]), STYLE);
    insta::assert_snapshot!(format!("{nodes_text}\n{sites_text}\n{profiles_text}"));
}

#[test]
fn one_of_each() {
    let site_text = site(&views::site(), STYLE);
    let profile_text = profile(&views::profile(), STYLE);
    insta::assert_snapshot!(format!("{site_text}\n{profile_text}"));
}

#[test]
fn a_waiting_node_explained() {
    insta::assert_snapshot!(node(&views::commissioning_node(), STYLE));
}

#[test]
fn a_parked_node_explained() {
    insta::assert_snapshot!(node(&views::parked_node(), STYLE));
}

#[test]
fn a_node_in_service_with_problems() {
    insta::assert_snapshot!(node(&views::offline_node(), STYLE));
}

fn explained(node: &NodeView) -> Explanation {
    let node = node.clone();
    Explanation {
        node: gpuaas_types::explain::ExplainedNode {
            id: node.id,
            hostname: node.hostname,
            site: node.site,
            state: node.state,
        },
        run: node.run,
        step: Some(gpuaas_types::Step::Discover),
        waiting_for: None,
        code: Some("two_candidates".to_owned()),
        since: None,
        expected_by: None,
        expected_from: None,
        deadline: None,
        mark: None,
        owner: Some(Owner::InfraOperator),
        next_action: "remove one of them".to_owned(),
        actions: node.park.map(|park| park.actions).unwrap_or_default(),
        evidence: vec!["abc124 has the hostname".to_owned()],
        problems: Vec::new(),
        maas: node.maas,
        text: vec![
            "Parked: the machine is in use.".to_owned(),
            "MAAS: no machine is bound to the node yet.".to_owned(),
            "Next: remove one of them.".to_owned(),
        ],
    }
}

#[test]
fn an_explanation() {
    insta::assert_snapshot!(explanation(&explained(&views::parked_node()), STYLE));
}

#[test]
fn nodes_that_do_not_go_on() {
    let list = List::whole(views::late_nodes());
    let (mut terminal, captured) = Terminal::captured();
    print(&mut terminal, Format::Json, &list, stuck).unwrap();
    let wide = Style { width: 200, ..STYLE };
    insta::assert_snapshot!(format!("{}\n{}", stuck(&list, wide), captured.stdout()));
}

#[test]
fn differences_of_every_kind() {
    let list = List::whole(views::drift_of_every_kind());
    let (mut terminal, captured) = Terminal::captured();
    print(&mut terminal, Format::Json, &list, drift).unwrap();
    let wide = Style { width: 200, ..STYLE };
    insta::assert_snapshot!(format!("{}\n{}", drift(&list, wide), captured.stdout()));
}

#[test]
fn a_run_shown() {
    insta::assert_snapshot!(run(&views::finished_run(), STYLE));
}

/// Screens as an operator has them: 80 columns, and a wide one.
#[test]
fn screens_of_two_widths() {
    let node = views::parked_node();
    let list = List::whole(vec![views::commissioning_node(), views::parked_node()]);
    for width in [80, 160] {
        let style = Style { width, ..STYLE };
        let drawn = [
            nodes(&list, style),
            stuck(&List::whole(views::late_nodes()), style),
            wrap_lines(&explanation(&explained(&node), style), width),
            wrap_lines(&run(&views::finished_run(), style), width),
        ];
        let text = drawn.join("\n");
        let is_long = |line: &&str| line.len() > width && !line.trim_start().starts_with("gpuaas ");
        assert_eq!(text.lines().find(is_long), None);
        insta::assert_snapshot!(format!("screens_at_{width}"), text);
    }
}

#[test]
fn json_and_yaml_hold_the_promised_fields() {
    let (mut terminal, captured) = Terminal::captured();
    print(&mut terminal, Format::Json, &views::commissioning_node(), node).unwrap();
    let value: serde_json::Value = serde_json::from_str(&captured.stdout()).unwrap();
    assert_eq!(value["state"], "registered");
    assert_eq!(value["run"]["step"], "commission");
    assert_eq!(value["run"]["status"], "waiting");
    assert!(value["waiting_for"].is_string());
    assert_eq!(value["maas"]["status_name"], "Commissioning");
    assert!(value["maas"]["observed_seconds_ago"].is_number());
    assert_eq!(value["timeline"].as_array().unwrap().len(), 2);

    let (mut terminal, captured) = Terminal::captured();
    print(&mut terminal, Format::Yaml, &views::commissioning_node(), node).unwrap();
    let yaml: serde_json::Value = serde_saphyr::from_str(&captured.stdout()).unwrap();
    assert_eq!(yaml, value);
}
