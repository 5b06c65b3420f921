//! What the flows of the guests' bridge let a port do, as `ovs-ofctl dump-flows` shows them.

use super::verdict::Verdict;

/// Table of what comes from the host itself, and of what was learned for it.
const FROM_HOST: &str = "table=1,";

/// One flow.
struct Flow<'a> {
    /// Table, priority and match.
    of: &'a str,
    actions: Vec<&'a str>,
}

/// Judges the flows of a bridge, a line each: what comes in at a port goes to the host (`LOCAL`) alone,
/// once it is known to have the port's own addresses. Those of the host's own port may do what they like.
pub(super) fn isolate(dump: &str) -> Verdict {
    let flows: Vec<Flow<'_>> = dump.lines().filter_map(parse).collect();
    let of_ports: Vec<&Flow<'_>> = flows
        .iter()
        .filter(|flow| !flow.of.contains("in_port=LOCAL") && !flow.of.contains(FROM_HOST))
        .collect();
    let show = |flow: &Flow<'_>| {
        let of = flow.of.split(", ").last().unwrap_or_default().trim();
        format!("{of} actions={}", flow.actions.join(","))
    };
    if let Some(flow) = of_ports.iter().find(|flow| !flow.actions.iter().all(|one| is_apart(one))) {
        return (false, format!("a flow lets ports reach others: {}", show(flow)));
    }
    let to_host = |flow: &&&Flow<'_>| flow.actions.iter().any(|one| is_local(one));
    if !of_ports.iter().any(|flow| to_host(&flow)) {
        return (false, "no flow is of its ports".to_owned());
    }
    let unchecked = |flow: &&&Flow<'_>| to_host(flow) && flow.of.contains("table=0,");
    if let Some(flow) = of_ports.iter().find(unchecked) {
        return (false, format!("a flow lets ports send with any address: {}", show(flow)));
    }
    for (register, what) in [("reg0", "MAC"), ("reg1", "IPv4")] {
        let refuses = |flow: &&Flow<'_>| {
            let matches = [format!("{register}=0x2"), format!("{register}=2")];
            let of = flow.of.trim().rsplit(',').next().unwrap_or_default();
            matches.iter().any(|one| of == one) && flow.actions == ["drop"]
        };
        if !of_ports.iter().any(refuses) {
            return (
                false,
                format!("no flow drops what a port sends with another's {what} address"),
            );
        }
    }
    (true, format!("{} flows, to the host alone", of_ports.len()))
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

/// Whether an action sends nothing to another port. What is learned for the host's own frames does; a
/// port's frames do not come there.
fn is_apart(action: &str) -> bool {
    if let Some(learned) = action.strip_prefix("learn(") {
        return learned.starts_with(FROM_HOST) || !learned.contains("output:");
    }
    let register = |rest: &str| rest.contains("->NXM_NX_REG") || rest.contains("->reg");
    let noted = ["move:", "load:", "set_field:"];
    is_local(action)
        || action == "drop"
        || (action.starts_with("resubmit(,") && action != "resubmit(,1)")
        || noted.iter().any(|begin| action.strip_prefix(begin).is_some_and(register))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = " cookie=0x0, table=0, priority=200,in_port=LOCAL actions=resubmit(,1)\n";
    const PORTS: &str = " cookie=0x0, table=0, priority=140,ip,nw_src=10.100.0.0/24 \
        actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG2[],resubmit(,2),resubmit(,3),resubmit(,4)\n \
        cookie=0x0, table=1, priority=0 actions=FLOOD\n \
        cookie=0x0, table=4, priority=100,reg0=0x2 actions=drop\n \
        cookie=0x0, table=4, priority=100,reg1=0x2 actions=drop\n \
        cookie=0x0, table=4, priority=0 actions=learn(table=1,idle_timeout=300,\
        NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),learn(table=2,hard_timeout=60,\
        NXM_OF_ETH_SRC[],load:0x2->NXM_NX_REG0[]),LOCAL\n";

    #[test]
    fn flows_that_let_a_port_reach_another_are_named() {
        assert!(isolate(&format!("OFPST_FLOW reply:\n{OWN}{PORTS}")).0);
        let normal = " cookie=0x0, duration=1s, table=0, n_packets=0, priority=0 actions=NORMAL\n";
        let (passed, seen) = isolate(&format!("{OWN}{PORTS}{normal}"));
        assert!(!passed && seen.ends_with("priority=0 actions=NORMAL"), "{seen}");
        assert!(!isolate(OWN).0, "no flow of a port");
        for (from, to) in [
            ("LOCAL", "FLOOD"),
            ("resubmit(,2)", "resubmit(,1)"),
            ("learn(table=1,", "learn(table=2,"),
        ] {
            let (passed, seen) = isolate(&PORTS.replace(from, to));
            assert!(!passed && seen.contains("reach others"), "{from}: {seen}");
        }
    }

    #[test]
    fn flows_that_let_a_port_send_with_another_address_are_named() {
        for register in ["reg0=0x2", "reg1=0x2"] {
            let (passed, seen) = isolate(&PORTS.replace(register, "reg3=0x2"));
            assert!(!passed && seen.contains("another's"), "{seen}");
        }
        let past = format!("{PORTS} cookie=0x0, table=0, priority=300,in_port=7 actions=LOCAL\n");
        assert!(isolate(&past).1.contains("any address"), "{past}");
    }
}
