//! Filters of lists, in the pages that both databases read.

use gpuaas_store::{AuditFilter, NewAuditEntry, NodeFilter, Page, RunFilter, SlotClaimFilter};
use gpuaas_types::RunStatus;
use gpuaas_types::filter::{
    FILTER_FIELDS, FilterCondition, FilterExpression, FilterField, FilterFieldKind, FilterList,
    FilterOperator, FilterValue, ListFilter, parse_filter,
};
use serde_json::json;

use crate::fixture::{Fixture, NOON, at, on_each_database};

/// How many items of its list a filter lets pass.
async fn count(fixture: &Fixture, filter: &ListFilter) -> usize {
    let (store, expression) = (&fixture.store, Some(filter));
    match filter.list {
        FilterList::Nodes => {
            let filter = NodeFilter { expression, ..NodeFilter::default() };
            store.nodes_page(filter, Page::first(99)).await.unwrap().len()
        }
        FilterList::Runs => {
            let filter = RunFilter { expression, ..RunFilter::default() };
            store.runs_page(filter, Page::first(99)).await.unwrap().len()
        }
        FilterList::Batches => {
            store.batches(None, expression, Page::first(99)).await.unwrap().len()
        }
        FilterList::Audit => {
            let expression = expression.cloned();
            let filter = AuditFilter { expression, ..AuditFilter::default() };
            store.audit_page(filter, Page::first(99)).await.unwrap().len()
        }
        FilterList::Drift => store.list_drift(None, expression).await.unwrap().len(),
        FilterList::Slots => store.slots(None, expression).await.unwrap().len(),
        FilterList::Claims => {
            let filter = SlotClaimFilter { ended: true, expression, ..SlotClaimFilter::default() };
            store.slot_claims(filter, Page::first(99)).await.unwrap().len()
        }
        FilterList::Tasks => {
            let nodes = store.nodes_page(NodeFilter::default(), Page::first(99)).await.unwrap();
            let mut tasks = 0;
            for node in nodes {
                let page = Page::first(99);
                let of_node = store.operator_tasks(node.node.id, expression, page).await;
                tasks += of_node.unwrap().len();
            }
            tasks
        }
        FilterList::Roce => store.list_roce_assignments(expression).await.unwrap().len(),
        FilterList::Sites => store.list_sites(expression).await.unwrap().len(),
        FilterList::Profiles => store.list_profiles(expression).await.unwrap().len(),
        FilterList::Tokens => store.list_access_tokens(expression).await.unwrap().len(),
        FilterList::DeadLetters => {
            store.dead_letters(None, expression, Page::first(99)).await.unwrap().len()
        }
    }
}

/// Whether a list has so many items that these filters let pass, each in turn.
pub(crate) async fn assert_pass(fixture: &Fixture, list: FilterList, filters: &[(&str, usize)]) {
    for (text, passes) in filters {
        let filter = parse_filter(list, text).unwrap();
        assert_eq!(count(fixture, &filter).await, *passes, "{list}: {text}");
    }
}

async fn audited(fixture: &Fixture, seconds: f64, action: &str) {
    let entry = NewAuditEntry {
        actor: "alice (admin)".to_owned(),
        action: action.parse().unwrap(),
        subject: "north".to_owned(),
        detail: json!({}),
    };
    fixture.store.append_audit_entry(at(seconds), entry).await.unwrap();
}

#[test]
fn filters_let_pass_what_they_say() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (_, parked) = fixture.node("gpu-1").await;
        fixture.node("gpu-2").await;
        fixture.node("cpu%1").await;
        crate::changes::put(&fixture, parked, RunStatus::Parked, None).await;
        audited(&fixture, 1.0, "site.change").await;
        audited(&fixture, 2.0, "node.onboard").await;
        for (list, text, passes) in [
            (FilterList::Nodes, "hostname=gpu-1", 1),
            (FilterList::Nodes, "hostname=gpu-1,gpu-2,none", 2),
            (FilterList::Nodes, "hostname!=gpu-1,gpu-2", 1),
            (FilterList::Nodes, "hostname~gpu-", 2),
            (FilterList::Nodes, "hostname~GPU", 0),
            (FilterList::Nodes, "hostname~%,_", 1),
            (FilterList::Nodes, "hostname!~gpu,x", 1),
            (FilterList::Nodes, "hostname=\"'; DROP TABLE node; --\"", 0),
            (FilterList::Nodes, "site=north run_status=parked", 1),
            (FilterList::Nodes, "site=south", 0),
            (FilterList::Nodes, "run_status=parked or hostname~cpu", 2),
            (FilterList::Nodes, "not (run_status=parked or hostname~cpu)", 1),
            (FilterList::Nodes, "batch=\"\"", 3),
            (FilterList::Nodes, "not batch=\"\"", 0),
            (FilterList::Nodes, "maas_status=4", 0),
            (FilterList::Nodes, "not maas_status=4", 3),
            (FilterList::Nodes, "maas_status!=4", 3),
            (FilterList::Nodes, "heartbeat>2020-01-01 or heartbeat<=2020-01-01", 0),
            (FilterList::Nodes, "not heartbeat>2020-01-01", 3),
            (FilterList::Nodes, "created>=2026-01-01 created<2099-01-01", 3),
            (FilterList::Runs, "status=parked hostname=gpu-1 profile=h200", 1),
            (FilterList::Runs, "kind=onboard profile_revision>=1", 3),
            (FilterList::Runs, "ended>2020-01-01", 0),
            (FilterList::Audit, "action~site. actor~alice", 1),
            (FilterList::Audit, "result=done role=\"\"", 4),
            (FilterList::Audit, "action=node.onboard result!=done", 0),
            (FilterList::Sites, "name=north pool=\"\" url~http", 1),
            (FilterList::Sites, "not name~nor or updated<2000-01-01", 0),
            (FilterList::Profiles, "name=h200 revision>=1 fabric=ethernet,roce,ib", 1),
            (FilterList::Profiles, "revision>99 or bundle~none", 0),
        ] {
            let filter = parse_filter(list, text).unwrap();
            assert_eq!(count(&fixture, &filter).await, passes, "{text}");
        }
        let since = |seconds: f64| {
            let text = format!("at>{}", at(seconds));
            parse_filter(FilterList::Audit, &text).unwrap()
        };
        assert_eq!(count(&fixture, &since(1.0)).await, 1);
        assert_eq!(count(&fixture, &since(2.0)).await, 0);
    });
}

fn value_of(kind: FilterFieldKind) -> FilterValue {
    match kind {
        FilterFieldKind::Text => FilterValue::Text("x' \"%".to_owned()),
        FilterFieldKind::Choice(values) => FilterValue::Text(values.all()[0].to_owned()),
        FilterFieldKind::Moment => FilterValue::Moment(NOON),
        FilterFieldKind::Number => FilterValue::Number(i64::MAX),
        FilterFieldKind::Flag => FilterValue::Flag(true),
    }
}

/// Whether the language lets the field be compared so.
fn reads_back(filter: &ListFilter) -> bool {
    parse_filter(filter.list, &filter.to_string()).as_ref() == Ok(filter)
}

#[test]
fn every_field_can_be_asked_for_by_every_operator() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        fixture.node("gpu-1").await;
        let mut asked = 0;
        for field in FILTER_FIELDS {
            for operator in FilterOperator::ALL {
                let filter = filter_of(field, *operator);
                if !reads_back(&filter) {
                    continue;
                }
                let passes = count(&fixture, &filter).await;
                let expression = FilterExpression::Not(Box::new(filter.expression.clone()));
                let others = count(&fixture, &ListFilter { expression, ..filter }).await;
                let all = match field.list {
                    FilterList::Nodes | FilterList::Runs => 1,
                    FilterList::Sites | FilterList::Profiles => 1,
                    FilterList::Audit => 2,
                    _ => 0,
                };
                assert_eq!(passes + others, all, "{} {operator}", field.name);
                asked += 1;
            }
        }
        assert!(asked > 2 * FILTER_FIELDS.len(), "{asked}");
    });
}

fn filter_of(field: &'static FilterField, operator: FilterOperator) -> ListFilter {
    let values = vec![value_of(field.kind)];
    let condition = FilterCondition { field, operator, values };
    ListFilter { list: field.list, expression: FilterExpression::Is(condition) }
}

#[test]
fn pages_of_a_filter_are_full_until_the_last() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        for n in 0..9 {
            let name = if n % 3 == 0 { "gpu" } else { "cpu" };
            fixture.node(&format!("{name}-{n}")).await;
        }
        let filter = parse_filter(FilterList::Nodes, "hostname~gpu").unwrap();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let filter = NodeFilter { expression: Some(&filter), ..NodeFilter::default() };
            let page = Page { after, limit: 2 };
            let nodes = fixture.store.nodes_page(filter, page).await.unwrap();
            after = nodes.last().map(|node| node.node.id);
            seen.extend(nodes.iter().map(|node| node.node.hostname.clone()));
            if nodes.len() < 2 {
                break;
            }
        }
        assert_eq!(seen, ["gpu-0", "gpu-3", "gpu-6"]);
        let of_runs = parse_filter(FilterList::Runs, "site=north").unwrap();
        let wrong = NodeFilter { expression: Some(&of_runs), ..NodeFilter::default() };
        assert!(fixture.store.nodes_page(wrong, Page::first(1)).await.is_err());
    });
}
