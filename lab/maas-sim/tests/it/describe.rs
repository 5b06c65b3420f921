//! `describe/` read as the command line of MAAS reads it: a command for each operation, its place
//! in the path, and its arguments from the text.
//!
//! That program takes the first paragraph of a text for the title and lines `:param NAME: …` for
//! what may be given as `NAME=VALUE`; `Required` begins what must be. An argument that is not
//! there is refused before anything is sent.

#![expect(clippy::expect_used, clippy::panic, reason = "test harness")]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{TestRegion, zero};
use serde_json::Value;

/// What the command line knows of one operation.
#[derive(Debug, Default)]
struct Command {
    method: String,
    op: Option<String>,
    uri: String,
    title: String,
    /// Places of the path, in order.
    places: Vec<String>,
    /// Arguments: name, type, and whether it must be given.
    arguments: BTreeMap<String, (String, bool)>,
}

/// `MachinesHandler` is `machines`, `BootResourceHandler` `boot-resource`.
fn command_name(handler: &str) -> String {
    let bare = handler.trim_start_matches("Anon").trim_end_matches("Handler");
    let mut out = String::new();
    let letters: Vec<char> = bare.chars().collect();
    for (i, c) in letters.iter().enumerate() {
        let begins = c.is_ascii_uppercase()
            && i > 0
            && (letters[i - 1].is_ascii_lowercase()
                || letters.get(i + 1).is_some_and(char::is_ascii_lowercase));
        if begins {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn between<'a>(line: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    line.trim().strip_prefix(begin)?.split_once(": ")
}

fn command(handler: &Value, action: &Value) -> Command {
    let text = action["doc"].as_str().unwrap_or("");
    let (title, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut out = Command {
        method: action["method"].as_str().unwrap_or("").to_owned(),
        op: action["op"].as_str().map(str::to_owned),
        uri: handler["uri"].as_str().unwrap_or("").to_owned(),
        title: title.trim().to_owned(),
        places: handler["params"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|p| p.as_str().map(str::to_owned))
            .collect(),
        arguments: BTreeMap::new(),
    };
    for line in body.lines() {
        if let Some((name, rest)) = between(line, ":param ") {
            out.arguments.insert(name.to_owned(), (String::new(), rest.starts_with("Required")));
        } else if let Some((name, kind)) = between(line, ":type ")
            && let Some(argument) = out.arguments.get_mut(name)
        {
            argument.0 = kind.to_owned();
        }
    }
    out
}

/// All commands of an administrator, by name of the handler and of the action.
fn commands(region: &mut TestRegion) -> BTreeMap<(String, String), Command> {
    let document = region.get("describe/");
    let mut out = BTreeMap::new();
    for resource in document["resources"].as_array().expect("resources") {
        let handler = &resource["auth"];
        let name = command_name(handler["name"].as_str().expect("a handler has a name"));
        for action in handler["actions"].as_array().expect("actions") {
            let action_name = action["name"].as_str().expect("an action has a name").to_owned();
            let twice = out.insert((name.clone(), action_name), command(handler, action));
            assert!(twice.is_none(), "{name}: two actions of one name");
        }
    }
    out
}

#[test]
fn every_operation_is_a_command_with_its_arguments() {
    let mut region = TestRegion::new(zero());
    let commands = commands(&mut region);
    assert!(commands.len() > 150, "{}", commands.len());
    let kinds = BTreeSet::from(["String", "Boolean", "Int"]);
    for (name, command) in &commands {
        assert!(!command.title.is_empty() && !command.title.contains('\n'), "{name:?}");
        assert!(["GET", "POST", "PUT", "DELETE"].contains(&command.method.as_str()), "{name:?}");
        for place in &command.places {
            let argument = command.arguments.get(&format!("{{{place}}}"));
            assert!(argument.is_some_and(|(_, required)| *required), "{name:?}: {place}");
            assert!(command.uri.contains(&format!("{{{place}}}")), "{name:?}: {place}");
        }
        for (argument, (kind, _)) in &command.arguments {
            assert!(kinds.contains(kind.as_str()), "{name:?}: {argument} is a {kind:?}");
        }
    }
}

/// Sends what the command line sends for `maas PROFILE HANDLER ACTION PLACE… NAME=VALUE…`.
fn typed(
    region: &mut TestRegion,
    commands: &BTreeMap<(String, String), Command>,
    line: &str,
) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    let key = (words[0].to_owned(), words[1].replace('-', "_"));
    let command = commands.get(&key).unwrap_or_else(|| panic!("no command {line}"));
    let (places, data) = words[2..].split_at(command.places.len());
    let mut uri = command.uri.clone();
    for (place, value) in command.places.iter().zip(places) {
        uri = uri.replace(&format!("{{{place}}}"), value);
    }
    let names: Vec<&str> = data.iter().filter_map(|d| d.split('=').next()).collect();
    for name in &names {
        assert!(command.arguments.contains_key(*name), "{line}: {name} is not in the text");
    }
    for (name, (_, required)) in &command.arguments {
        let given = names.contains(&name.as_str()) || name.starts_with('{');
        assert!(given || !required, "{line}: {name} is required");
    }
    let path = uri.split_once("/MAAS/api/2.0/").expect("a path of the API").1;
    let op = command.op.as_ref().map(|op| format!("op={op}"));
    let response = if matches!(command.method.as_str(), "GET" | "DELETE") {
        let query: Vec<String> =
            op.into_iter().chain(data.iter().map(|d| (*d).to_owned())).collect();
        region.send(&command.method, &format!("{path}?{}", query.join("&")), "")
    } else {
        let query = op.map(|op| format!("?{op}")).unwrap_or_default();
        region.send(&command.method, &format!("{path}{query}"), &data.join("&"))
    };
    assert!(response.status < 300, "{line}: {} {}", response.status, response.body_text());
    response.body_json()
}

#[test]
fn what_is_typed_is_sent() {
    let mut region = TestRegion::new(zero());
    let commands = commands(&mut region);
    let mut run = |line: &str| typed(&mut region, &commands, line);
    let made = run(
        "machines create architecture=amd64 mac_addresses=02:00:00:00:00:01 hostname=typed power_type=ipmi power_parameters_power_address=198.18.0.9",
    );
    let id = made["system_id"].as_str().expect("id").to_owned();
    run("tags create name=rack-1 comment=first");
    run(&format!("tag update-nodes rack-1 add={id}"));
    assert_eq!(run("machines read tags=rack-1").as_array().map(Vec::len), Some(1));
    let found = run(&format!("machine read {id}"));
    assert_eq!(found["status_name"], "Ready", "hardware of this class takes no time");
    run(&format!("machine set-storage-layout {id} storage_layout=lvm vg_name=vg0"));
    run(&format!("machine deploy {id} distro_series=jammy comment=try"));
    assert_eq!(run(&format!("machine read {id}"))["status_name"], "Deployed");
    run(&format!("machine release {id} erase=true quick_erase=true"));
    run("zones create name=east description=hall");
    run(&format!("machine update {id} zone=east"));
    let route = run("static-routes create source=2 destination=3 gateway_ip=10.10.0.1 metric=10");
    run(&format!("static-route update {} metric=20", route["id"]));
    let subnet = run("subnets create cidr=10.77.0.0/24 name=typed");
    run(&format!("subnet update {} gateway_ip=10.77.0.1", subnet["id"]));
    run(&format!("subnet delete {}", subnet["id"]));
    let fabric = run("fabrics create name=typed");
    let vlan = run(&format!("vlans create {} vid=7 name=seven", fabric["id"]));
    run(&format!("vlan update {} {} mtu=9000", fabric["id"], vlan["vid"]));
    run("maas set-config name=node_timeout value=40");
    assert_eq!(run("maas get-config name=node_timeout"), 40);
    run("users create username=bo email=bo@example.com password=x is_superuser=0");
    run("user delete bo");
    run(&format!("events query id={id} level=DEBUG limit=5"));
}
