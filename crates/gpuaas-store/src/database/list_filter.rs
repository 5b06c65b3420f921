//! Filters of lists as SQL: a condition for the statement that reads a page.
//!
//! Every value is bound, none is written into a statement. What a field is in the database is one
//! table, [`COLUMNS`]; a test holds it against the language's own.

use gpuaas_types::filter::FilterList::{
    self, Audit, Batches, Claims, DeadLetters, Drift, Nodes, Profiles, Roce, Runs, Sites, Slots,
    Tasks, Tokens,
};
use gpuaas_types::filter::{
    FilterCondition, FilterExpression, FilterFieldKind, FilterOperator, FilterValue, ListFilter,
};

use crate::database::Val;
use crate::error::StoreError;

/// What a field is in the statement of its list.
struct Column {
    list: FilterList,
    field: &'static str,
    sql: &'static str,
    /// It may be null, which is an empty text, and neither less nor more than anything.
    nullable: bool,
}

const fn never_null(list: FilterList, field: &'static str, sql: &'static str) -> Column {
    Column { list, field, sql, nullable: false }
}

const fn nullable(list: FilterList, field: &'static str, sql: &'static str) -> Column {
    Column { list, field, sql, nullable: true }
}

const CODE_OF_RUN: &str = "CASE WHEN run.status = 'parked' THEN run.park ->> 'code' \
                           ELSE run.wait ->> 'code' END";
const PROFILE_OF_RUN: &str = "(SELECT profile.name FROM profile WHERE profile.id = run.profile_id)";
const SITE_OF_BATCH: &str = "(SELECT site.name FROM site WHERE site.id = batch.site_id)";
const PROFILE_OF_BATCH: &str =
    "(SELECT profile.name FROM profile WHERE profile.id = batch.profile_id)";

const KIND_OF_TASK: &str = "node_task.spec -> 'operation' ->> 'kind'";
// A truth of JSON is 1 in SQLite and true in PostgreSQL.
const TASK_IS_DRY: &str =
    "COALESCE(CAST(node_task.spec ->> 'dry_run' AS TEXT) IN ('1', 'true'), FALSE)";
const TASK_SUCCEEDED: &str =
    "COALESCE(CAST(node_task.result ->> 'succeeded' AS TEXT) IN ('1', 'true'), FALSE)";

const COLUMNS: &[Column] = &[
    never_null(Nodes, "hostname", "node.hostname"),
    never_null(Nodes, "site", "site.name"),
    never_null(Nodes, "profile", "profile.name"),
    nullable(Nodes, "batch", "batch.name"),
    never_null(Nodes, "state", "node.state"),
    nullable(Nodes, "run_status", "run.status"),
    nullable(Nodes, "run_kind", "run.kind"),
    nullable(Nodes, "step", "run.step"),
    nullable(Nodes, "code", CODE_OF_RUN),
    nullable(Nodes, "system_id", "node.system_id"),
    nullable(Nodes, "maas_status", "observation.status"),
    nullable(Nodes, "bmc", "node.bmc_address"),
    nullable(Nodes, "heartbeat", "heartbeat.at"),
    nullable(Nodes, "step_since", "run.step_since"),
    never_null(Nodes, "created", "node.created_at"),
    never_null(Nodes, "updated", "node.updated_at"),
    never_null(Runs, "hostname", "node.hostname"),
    never_null(Runs, "site", "site.name"),
    never_null(Runs, "profile", PROFILE_OF_RUN),
    never_null(Runs, "profile_revision", "run.profile_revision"),
    never_null(Runs, "kind", "run.kind"),
    never_null(Runs, "status", "run.status"),
    never_null(Runs, "step", "run.step"),
    nullable(Runs, "code", CODE_OF_RUN),
    nullable(Runs, "failure_class", "run.memory ->> 'failure_class'"),
    never_null(Runs, "step_since", "run.step_since"),
    never_null(Runs, "created", "run.created_at"),
    nullable(Runs, "ended", "run.ended_at"),
    never_null(Batches, "name", "batch.name"),
    never_null(Batches, "site", SITE_OF_BATCH),
    never_null(Batches, "profile", PROFILE_OF_BATCH),
    never_null(Batches, "stopped", "(batch.stop IS NOT NULL)"),
    never_null(Batches, "created", "batch.created_at"),
    never_null(Batches, "updated", "batch.updated_at"),
    nullable(Batches, "ended", "batch.ended_at"),
    never_null(Audit, "actor", "audit.actor"),
    never_null(Audit, "action", "audit.action"),
    never_null(Audit, "subject", "audit.subject"),
    nullable(Audit, "hostname", "node.hostname"),
    nullable(Audit, "site", "audit.site"),
    nullable(Audit, "role", "audit.role"),
    nullable(Audit, "address", "audit.address"),
    nullable(Audit, "request_id", "audit.request_id"),
    never_null(Audit, "result", "audit.result"),
    never_null(Audit, "at", "audit.at"),
    never_null(Drift, "hostname", "node.hostname"),
    never_null(Drift, "site", "site.name"),
    nullable(Drift, "system_id", "node.system_id"),
    never_null(Drift, "kind", "drift.kind"),
    never_null(Drift, "since", "drift.since"),
    never_null(Drift, "seen", "drift.seen_at"),
    never_null(Slots, "hostname", "node.hostname"),
    never_null(Slots, "site", "site.name"),
    never_null(Slots, "index", "slice_slot.slot_index"),
    never_null(Slots, "state", "slice_slot.state"),
    never_null(Slots, "claimed", "(slice_slot.claim_id IS NOT NULL)"),
    never_null(Slots, "flagged", "(slice_slot.flagged IS NOT NULL)"),
    nullable(Slots, "approved_by", "slice_slot.approved_by"),
    never_null(Slots, "reason", "slice_slot.reason"),
    never_null(Slots, "since", "slice_slot.since"),
    never_null(Claims, "owner", "slice_claim.owner"),
    never_null(Claims, "hostname", "node.hostname"),
    never_null(Claims, "site", "site.name"),
    never_null(Claims, "state", "slice_claim.state"),
    never_null(Claims, "numa", "slice_claim.numa"),
    never_null(Claims, "reason", "slice_claim.reason"),
    never_null(Claims, "created", "slice_claim.created_at"),
    nullable(Claims, "expires", "slice_claim.expires_at"),
    nullable(Claims, "ended", "slice_claim.ended_at"),
    nullable(Tasks, "kind", KIND_OF_TASK),
    never_null(Tasks, "dry_run", TASK_IS_DRY),
    never_null(Tasks, "actor", "node_task.actor"),
    nullable(Tasks, "reason", "node_task.reason"),
    never_null(Tasks, "succeeded", TASK_SUCCEEDED),
    never_null(Tasks, "created", "node_task.created_at"),
    never_null(Tasks, "expires", "node_task.expires_at"),
    nullable(Tasks, "taken", "node_task.delivered_at"),
    nullable(Tasks, "finished", "node_task.finished_at"),
    never_null(Roce, "site", "site.name"),
    never_null(Roce, "hostname", "roce_assignment.hostname"),
    never_null(Roce, "interface", "roce_assignment.interface"),
    never_null(Roce, "subnet", "roce_assignment.subnet_cidr"),
    never_null(Roce, "ip", "roce_assignment.ip_address"),
    never_null(Roce, "created", "roce_assignment.created_at"),
    never_null(Roce, "updated", "roce_assignment.updated_at"),
    never_null(Sites, "name", "site.name"),
    nullable(Sites, "url", "site.spec ->> 'url'"),
    nullable(Sites, "pool", "site.spec ->> 'pool'"),
    nullable(Sites, "maas_version", "site.status ->> 'maas_version'"),
    nullable(Sites, "health", "site.status ->> 'health'"),
    never_null(Sites, "created", "site.created_at"),
    never_null(Sites, "updated", "site.updated_at"),
    never_null(Profiles, "name", "profile.name"),
    never_null(Profiles, "revision", "profile.revision"),
    nullable(Profiles, "image", "profile_revision.spec ->> 'distro_series'"),
    nullable(Profiles, "bundle", "profile_revision.spec ->> 'site_bootstrap_bundle_ref'"),
    nullable(Profiles, "fabric", "profile_revision.spec ->> 'fabric_mode'"),
    never_null(Profiles, "created", "profile.created_at"),
    never_null(Profiles, "updated", "profile.updated_at"),
    never_null(Tokens, "name", "access_token.name"),
    never_null(Tokens, "person", "COALESCE(access_token.person, access_token.created_by)"),
    never_null(Tokens, "created_by", "access_token.created_by"),
    never_null(Tokens, "revoked", "(access_token.revoked_at IS NOT NULL)"),
    never_null(Tokens, "created", "access_token.created_at"),
    nullable(Tokens, "expires", "access_token.expires_at"),
    nullable(Tokens, "used", "access_token.last_used_at"),
    never_null(DeadLetters, "sink", "sink.name"),
    nullable(DeadLetters, "site", "letter.event ->> 'site'"),
    nullable(DeadLetters, "hostname", "letter.event ->> 'hostname'"),
    nullable(DeadLetters, "event", "letter.event ->> 'code'"),
    never_null(DeadLetters, "code", "letter.code"),
    never_null(DeadLetters, "replaying", "letter.replaying"),
    never_null(DeadLetters, "failed", "letter.failed_at"),
];

/// `sql` with what a filter asks in the place of `{FILTER}`, which follows a condition. The values go
/// behind those that are there.
///
/// # Errors
/// [`StoreError::Corrupt`] where the filter is of another list, or of a field without a column.
pub(crate) fn with_filter(
    sql: &str,
    list: FilterList,
    filter: Option<&ListFilter>,
    values: &mut Vec<Val>,
) -> Result<String, StoreError> {
    let asked = match filter {
        None => String::new(),
        Some(filter) if filter.list == list => {
            format!("AND ({})", condition(&filter.expression, values)?)
        }
        Some(filter) => {
            let text = format!("a filter for {} was used on {list}", filter.list);
            return Err(StoreError::corrupt("filter", text));
        }
    };
    Ok(sql.replace("{FILTER}", &asked))
}

fn condition(expression: &FilterExpression, values: &mut Vec<Val>) -> Result<String, StoreError> {
    let mut joined = |parts: &[FilterExpression], word: &str| -> Result<String, StoreError> {
        let parts: Result<Vec<String>, StoreError> =
            parts.iter().map(|part| condition(part, values)).collect();
        Ok(format!("({})", parts?.join(word)))
    };
    match expression {
        FilterExpression::All(parts) => joined(parts, " AND "),
        FilterExpression::Any(parts) => joined(parts, " OR "),
        FilterExpression::Not(inner) => Ok(format!("NOT {}", condition(inner, values)?)),
        FilterExpression::Is(one) => comparison(one, values),
    }
}

/// One comparison, which is true or false and never null, so that `NOT` turns it round.
fn comparison(one: &FilterCondition, values: &mut Vec<Val>) -> Result<String, StoreError> {
    let FilterCondition { field, operator, values: with } = one;
    let is_its = |column: &&Column| column.list == field.list && column.field == field.name;
    let Some(column) = COLUMNS.iter().find(is_its) else {
        return Err(StoreError::corrupt("filter", format!("{} has no column", field.name)));
    };
    let is_text = matches!(field.kind, FilterFieldKind::Text | FilterFieldKind::Choice(_));
    let sql = match column.nullable && is_text {
        true => format!("COALESCE({}, '')", column.sql),
        false => column.sql.to_owned(),
    };
    let places: Vec<String> = with
        .iter()
        .map(|value| {
            values.push(bound(value));
            format!("${}", values.len())
        })
        .collect();
    // Both databases compare text by its characters here; what LIKE does differs between them.
    let contains = |found: &str, join: &str| {
        let each = places.iter().map(|place| format!("replace({sql}, {place}, '') {found} {sql}"));
        format!("({})", each.collect::<Vec<String>>().join(join))
    };
    let may_be_null = column.nullable && !is_text;
    Ok(match operator {
        FilterOperator::Contains => contains("<>", " OR "),
        FilterOperator::NotContains => contains("=", " AND "),
        FilterOperator::NotEqual if may_be_null => {
            format!("({sql} IS NULL OR {sql} NOT IN ({}))", places.join(","))
        }
        FilterOperator::NotEqual => format!("({sql} NOT IN ({}))", places.join(",")),
        FilterOperator::Equal if may_be_null => {
            format!("({sql} IS NOT NULL AND {sql} IN ({}))", places.join(","))
        }
        FilterOperator::Equal => format!("({sql} IN ({}))", places.join(",")),
        FilterOperator::Less
        | FilterOperator::LessOrEqual
        | FilterOperator::Greater
        | FilterOperator::GreaterOrEqual => {
            format!("({sql} IS NOT NULL AND {sql} {} {})", operator.as_str(), places.join(","))
        }
    })
}

fn bound(value: &FilterValue) -> Val {
    match value {
        FilterValue::Text(text) => text.into(),
        FilterValue::Moment(at) => (*at).into(),
        FilterValue::Number(number) => (*number).into(),
        FilterValue::Flag(flag) => (*flag).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gpuaas_types::filter::{FILTER_FIELDS, parse_filter};

    use super::*;

    #[test]
    fn every_field_has_a_column_and_every_column_a_field() {
        let fields: BTreeSet<_> = FILTER_FIELDS.iter().map(|row| (row.list, row.name)).collect();
        let columns: BTreeSet<_> = COLUMNS.iter().map(|row| (row.list, row.field)).collect();
        assert_eq!(fields, columns);
        assert_eq!(columns.len(), COLUMNS.len(), "a field has one column");
    }

    #[test]
    fn values_are_bound_behind_those_that_are_there() {
        let text = "site=a,b (code~x or not step_since>2026-11-01) ended<2026-11-02";
        let filter = parse_filter(Runs, text).unwrap();
        let mut values = vec![Val::Bool(true)];
        let sql = with_filter("WHERE $1 {FILTER}", Runs, Some(&filter), &mut values).unwrap();
        assert_eq!(values.len(), 6);
        let code = format!("COALESCE({CODE_OF_RUN}, '')");
        let wanted = format!(
            "WHERE $1 AND (((site.name IN ($2,$3)) AND ((replace({code}, $4, '') <> {code}) OR NOT \
             (run.step_since IS NOT NULL AND run.step_since > $5)) AND \
             (run.ended_at IS NOT NULL AND run.ended_at < $6)))"
        );
        assert_eq!(sql, wanted);
        assert_eq!(with_filter("a {FILTER} b", Runs, None, &mut values).unwrap(), "a  b");
        assert!(with_filter("", Nodes, Some(&filter), &mut values).is_err());
    }
}
