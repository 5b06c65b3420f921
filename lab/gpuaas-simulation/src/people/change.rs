//! The table: what people do in MAAS to the machine of an active node, and how that has to show.

use maas_sim::{HumanError, Region};
use serde::Serialize;

/// Something that a person does in MAAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PersonChange {
    /// Releases the machine.
    Release,
    /// Removes it from MAAS.
    Delete,
    /// Marks it broken, which releases it.
    MarkBroken,
    /// Gives it another hostname.
    Rename,
    /// Locks it.
    Lock,
    /// Gives it a tag.
    Tag,
    /// Releases it and deploys it again.
    Redeploy,
    /// Switches it off.
    PowerOff,
    /// Gives MAAS another address of its BMC.
    ChangeBmc,
    /// Gives MAAS another user of its BMC.
    ChangeBmcUser,
    /// Gives MAAS another password of its BMC.
    ChangeBmcPassword,
    /// Puts it into another resource pool.
    MovePool,
    /// Puts it into another availability zone.
    MoveZone,
}

/// A row of [`CHANGES`].
pub(super) struct ChangeRow {
    pub(super) change: PersonChange,
    /// User of MAAS who does it. Only the owner of a machine marks it broken
    /// (docs/maas.md#broken-machines), and the machines are those of the site's key.
    pub(super) user: &'static str,
    /// Method, path and form of the call; `{id}` is the machine, `{n}` a number of its own.
    pub(super) call: (&'static str, &'static str, &'static str),
    /// Part of the line on the node's timeline.
    pub(super) line: &'static str,
    /// Code of the difference that `gpuaas explain` has to name.
    pub(super) code: &'static str,
    /// Whether MAAS tells who did it: such a change makes an event (docs/maas.md#events).
    pub(super) names_user: bool,
}

const MACHINE: &str = "machines/{id}/";
/// The administrator whose key the site does not have.
const ANN: &str = "ann";
/// Name of the tag that machines get, and of the pool and the zone that they are put into.
const NAME: &str = "gold";

pub(super) const CHANGES: &[ChangeRow] = &[
    ChangeRow {
        change: PersonChange::Release,
        user: ANN,
        call: ("POST", MACHINE, "op=release"),
        line: "User releasing node: (ann)",
        code: "released_by_hand",
        names_user: true,
    },
    ChangeRow {
        change: PersonChange::Delete,
        user: ANN,
        call: ("DELETE", MACHINE, ""),
        line: "vanished: ",
        code: "vanished",
        names_user: false,
    },
    ChangeRow {
        change: PersonChange::MarkBroken,
        user: "admin",
        call: ("POST", MACHINE, "op=mark_broken&comment=fan"),
        line: "User marking node broken: (admin)",
        code: "released_by_hand",
        names_user: true,
    },
    ChangeRow {
        change: PersonChange::Rename,
        user: ANN,
        call: ("PUT", MACHINE, "hostname=of-ann-{n}"),
        line: "renamed: of-ann-{n}",
        code: "renamed",
        names_user: false,
    },
    ChangeRow {
        change: PersonChange::Lock,
        user: ANN,
        call: ("POST", MACHINE, "op=lock"),
        line: "User locking node: (ann)",
        code: "locked",
        names_user: true,
    },
    ChangeRow {
        change: PersonChange::Tag,
        user: ANN,
        call: ("POST", "tags/gold/", "op=update_nodes&add={id}"),
        line: "retagged: ",
        code: "retagged",
        names_user: false,
    },
    ChangeRow {
        change: PersonChange::Redeploy,
        user: ANN,
        call: ("POST", MACHINE, "op=deploy"),
        line: "User starting deployment: (ann)",
        code: "deployed_by_hand",
        names_user: true,
    },
    ChangeRow {
        change: PersonChange::PowerOff,
        user: ANN,
        call: ("POST", MACHINE, "op=power_off"),
        line: "User powering down node: (ann)",
        code: "powered_off",
        names_user: true,
    },
    ChangeRow {
        change: PersonChange::ChangeBmc,
        user: ANN,
        call: ("PUT", MACHINE, "power_parameters_power_address=198.19.255.{n}"),
        line: "bmc_changed: 198.19.255.{n}",
        code: "bmc_changed",
        names_user: false,
    },
    ChangeRow {
        change: PersonChange::ChangeBmcUser,
        user: ANN,
        call: ("PUT", MACHINE, "power_parameters_power_user=of-ann-{n}"),
        line: "bmc_access_changed: user of-ann-{n}",
        code: "bmc_access_changed",
        names_user: false,
    },
    ChangeRow {
        change: PersonChange::ChangeBmcPassword,
        user: ANN,
        call: ("PUT", MACHINE, "power_parameters_power_pass=of-ann-{n}"),
        line: ", another password, where user ",
        code: "bmc_access_changed",
        names_user: false,
    },
    ChangeRow {
        change: PersonChange::MovePool,
        user: ANN,
        call: ("PUT", MACHINE, "pool=gold"),
        line: "pool_changed: gold",
        code: "pool_changed",
        names_user: false,
    },
    ChangeRow {
        change: PersonChange::MoveZone,
        user: ANN,
        call: ("PUT", MACHINE, "zone=gold"),
        line: "zone_changed: gold",
        code: "zone_changed",
        names_user: false,
    },
];

impl ChangeRow {
    fn filled(text: &str, id: &str, number: usize) -> String {
        text.replace("{id}", id).replace("{n}", &number.to_string())
    }

    /// Part of the line on the timeline of the node of this number.
    pub(super) fn line_of(&self, number: usize) -> String {
        Self::filled(self.line, "", number)
    }

    /// Does it to the machine `id`.
    pub(super) fn apply(
        &self,
        region: &mut Region,
        now_us: i64,
        id: &str,
        number: usize,
    ) -> Result<(), HumanError> {
        let (method, path, form) = self.call;
        let (path, form) = (Self::filled(path, id, number), Self::filled(form, id, number));
        region.call_as_user(now_us, self.user, method, &path, &form).map(drop)
    }
}

/// Makes what the changes need: the tag, the pool and the zone.
pub(super) fn prepare(region: &mut Region, now_us: i64) -> Result<(), HumanError> {
    for path in ["tags/", "resourcepools/", "zones/"] {
        region.call_as_person(now_us, "POST", path, &format!("name={NAME}"))?;
    }
    Ok(())
}

/// The call that a command line of MAAS' own client makes, `maas PROFILE RESOURCE ACTION ...`: method,
/// path and form; none: no such command.
pub(super) fn call_of_maas_command(command: &str) -> Option<(&'static str, String, String)> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (resource, action, key, form) = match words.as_slice() {
        ["maas", _profile, resource, action, key, form @ ..] => (*resource, *action, key, form),
        _ => return None,
    };
    let form = form.join("&");
    let path = match resource {
        "machine" => format!("machines/{key}/"),
        "tag" => format!("tags/{key}/"),
        _ => return None,
    };
    if action == "update" {
        return Some(("PUT", path, form));
    }
    let op = action.replace('-', "_");
    Some(("POST", path, format!("op={op}&{form}").trim_end_matches('&').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_maas_are_calls() {
        let call = call_of_maas_command("maas PROFILE machine update abc hostname=x").unwrap();
        assert_eq!(call, ("PUT", "machines/abc/".to_owned(), "hostname=x".to_owned()));
        let call = call_of_maas_command("maas PROFILE machine power-on abc").unwrap();
        assert_eq!(call, ("POST", "machines/abc/".to_owned(), "op=power_on".to_owned()));
        assert_eq!(call_of_maas_command("gpuaas node list"), None);
    }
}
