//! What the flows of the guests' bridge let a port do, as `ovs-ofctl dump-flows` shows them.

use super::verdict::Verdict;

/// Table of what comes from the host itself.
const FROM_HOST: &str = "table=1,";
/// What a flow of a port names besides the port: its MAC address, and one of its IPv4 address.
const MAC: &str = "dl_src=";
const ADDRESSES: [&str; 2] = ["nw_src=", "arp_spa="];

/// One flow.
struct Flow<'a> {
    /// Table, priority and match.
    of: &'a str,
    actions: Vec<&'a str>,
}

/// Judges the flows of a bridge, a line each: what comes in at a port goes to the host (`LOCAL`) alone, and
/// only with the addresses of that port; what no flow names is dropped, and nothing is learned. Those of the
/// host's own port may do what they like.
pub(super) fn isolate(dump: &str) -> Verdict {
    let flows: Vec<Flow<'_>> = dump.lines().filter_map(parse).collect();
    let of_ports: Vec<&Flow<'_>> = flows
        .iter()
        .filter(|flow| !flow.has("in_port=LOCAL") && !flow.of.contains(FROM_HOST))
        .collect();
    let named = |what: &str, flow: &Flow<'_>| {
        let of = flow.of.split(", ").last().unwrap_or_default().trim();
        (false, format!("{what}: {of} actions={}", flow.actions.join(",")))
    };
    let learns = |flow: &&Flow<'_>| flow.actions.iter().any(|one| one.starts_with("learn("));
    if let Some(flow) = flows.iter().find(learns) {
        return named(
            "a flow learns addresses, so one port can take over the address of another",
            flow,
        );
    }
    let apart = |flow: &&&Flow<'_>| flow.is_drop() || flow.actions.iter().all(|one| is_local(one));
    if let Some(flow) = of_ports.iter().find(|flow| !apart(flow)) {
        return named("a flow lets ports reach other ports", flow);
    }
    let pinned = |flow: &&&Flow<'_>| {
        flow.is_drop()
            || (flow.has("in_port=")
                && flow.has(MAC)
                && ADDRESSES.iter().any(|address| flow.has(address)))
    };
    if let Some(flow) = of_ports.iter().find(|flow| !pinned(flow)) {
        return named("a flow lets ports send from any address", flow);
    }
    let is_default = |flow: &&&Flow<'_>| {
        flow.is_drop() && flow.of.contains("table=0,") && flow.of.trim_end().ends_with("priority=0")
    };
    if !of_ports.iter().any(|flow| is_default(&flow)) {
        return (false, "the lowest-priority flow of table 0 does not drop".to_owned());
    }
    (true, format!("{} port flows, all of them lead to the host only", of_ports.len()))
}

impl Flow<'_> {
    /// Whether its match begins a part so.
    fn has(&self, begin: &str) -> bool {
        self.of.split([',', ' ']).any(|part| part.starts_with(begin))
    }

    fn is_drop(&self) -> bool {
        self.actions == ["drop"]
    }
}

fn parse(line: &str) -> Option<Flow<'_>> {
    let (of, actions) = line.split_once("actions=")?;
    let mut depth = 0_u32;
    let actions = actions.trim().split(move |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    Some(Flow { of, actions: actions.collect() })
}

fn is_local(action: &str) -> bool {
    matches!(action, "LOCAL" | "output:LOCAL")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = " cookie=0x0, table=0, priority=200,in_port=LOCAL actions=resubmit(,1)\n \
        cookie=0x0, table=0, priority=0 actions=drop\n \
        cookie=0x0, table=1, priority=50,dl_dst=ff:ff:ff:ff:ff:ff actions=FLOOD\n";
    const GUEST: &str = " cookie=0x0, duration=1s, table=0, n_packets=3, \
        priority=100,arp,in_port=32779,dl_src=02:00:00:00:00:11,arp_spa=10.100.0.11 actions=LOCAL\n \
        cookie=0x0, table=0, priority=100,ip,in_port=32779,dl_src=02:00:00:00:00:11,\
        nw_src=10.100.0.11 actions=LOCAL\n \
        cookie=0x0, table=1, priority=100,dl_dst=02:00:00:00:00:11 actions=output:32779\n";

    #[test]
    fn flows_that_let_a_port_reach_another_are_named() {
        assert!(isolate(&format!("OFPST_FLOW reply:\n{BASE}")).0, "no guest is there yet");
        assert!(isolate(&format!("{BASE}{GUEST}")).0);
        let normal = " cookie=0x0, duration=1s, table=0, n_packets=0, priority=0 actions=NORMAL\n";
        let (passed, seen) = isolate(&format!("{BASE}{GUEST}{normal}"));
        assert!(!passed && seen.ends_with("priority=0 actions=NORMAL"), "{seen}");
        for to in ["FLOOD", "output:3", "resubmit(,1)"] {
            let (passed, seen) =
                isolate(&format!("{BASE}{GUEST}").replace("LOCAL\n", &format!("{to}\n")));
            assert!(!passed && seen.contains("reach other ports"), "{to}: {seen}");
        }
    }

    #[test]
    fn flows_that_let_a_port_send_with_another_address_are_named() {
        for missing in ["in_port=32779,", "dl_src=02:00:00:00:00:11,", "nw_src=10.100.0.11"] {
            let (passed, seen) = isolate(&format!("{BASE}{GUEST}").replace(missing, ""));
            assert!(!passed && seen.contains("any address"), "{missing}: {seen}");
        }
        let learns =
            " cookie=0x0, table=4, priority=0 actions=learn(table=2,NXM_OF_ETH_SRC[]),LOCAL\n";
        assert!(isolate(&format!("{BASE}{learns}")).1.contains("learns addresses"));
        let (passed, seen) =
            isolate(&format!("{}{GUEST}", BASE.replace("priority=0 actions=drop", "")));
        assert!(!passed && seen.contains("does not drop"), "{seen}");
        assert!(!isolate("").0);
    }
}
