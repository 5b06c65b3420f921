use proptest::prelude::*;

use super::super::field::FILTER_FIELDS;
use super::*;

fn nodes(text: &str) -> Result<String, FilterError> {
    parse_filter(FilterList::Nodes, text).map(|filter| filter.to_string())
}

#[test]
fn filters_are_read_and_written() {
    for (text, written) in [
        ("state=active", "state=active"),
        ("  state = active,  offline  ", "state=active,offline"),
        ("site=s1 and hostname~gpu-", "site=s1 hostname~gpu-"),
        ("site=s1 hostname~gpu- or site=s2", "site=s1 hostname~gpu- or site=s2"),
        ("(site=s1 or site=s2) step=deploy", "(site=s1 or site=s2) step=deploy"),
        ("((site=s1)) (state=active code=x)", "site=s1 state=active code=x"),
        ("not(site=s1 or site=s2)", "not (site=s1 or site=s2)"),
        ("not not site=s1", "not not site=s1"),
        ("updated>2026-11-01", "updated>2026-11-01"),
        ("updated<=2026-11-01T02:00:00+02:00", "updated<=2026-11-01"),
        ("updated<2026-11-01T10:20:00z", "updated<2026-11-01T10:20:00Z"),
        ("updated<2026-11-01T00:00:00.0500Z", "updated<2026-11-01T00:00:00.05Z"),
        ("maas_status=6,-1", "maas_status=6,-1"),
        (r#"batch="" hostname="or""#, r#"batch="" hostname=or"#),
        (r#"code!="a \"b\", \\c=""#, r#"code!="a \"b\", \\c=""#),
        ("bmc=[fe80::1]:623", "bmc=[fe80::1]:623"),
    ] {
        assert_eq!(nodes(text).as_deref(), Ok(written), "{text}");
    }
}

#[test]
fn every_complaint_has_its_place_and_a_hint() {
    for (text, position, fault) in [
        ("", 1, "missing condition"),
        ("state", 6, "missing comparison operator after state"),
        ("site=s1 stat=active", 9, "the list of nodes has no field \"stat\""),
        ("state~active", 6, "state does not support ~"),
        ("state==active", 6, "state does not support =="),
        ("updated=2026-11-01", 8, "updated does not support ="),
        ("state=parked", 7, "\"parked\" is not a valid value of state"),
        ("updated>yesterday", 9, "\"yesterday\" is not a valid time"),
        ("updated>2026-11-01,2026-11-02", 19, "unexpected second value"),
        ("maas_status=six", 13, "\"six\" is not a valid whole number"),
        ("state=active,", 14, "missing value"),
        ("state=active,site=s1", 18, "unexpected '=' in a value"),
        ("site=\"s1", 6, "unclosed double quote"),
        ("site=\"a\\b\"", 9, "invalid escape sequence"),
        ("site=\"a\"b", 9, "unexpected text after a value"),
        ("(site=s1", 9, "unclosed parenthesis"),
        ("site=s1)", 8, "unmatched closing parenthesis"),
        ("site=s1 or", 11, "missing condition"),
        ("not", 4, "missing condition"),
        ("site~\"\"", 6, "every text contains an empty value"),
        ("site=a\nb", 7, "a control character"),
        ("ſite=é", 1, "the list of nodes has no field \"ſite\""),
    ] {
        let error = nodes(text).unwrap_err();
        assert_eq!((error.position, error.fault.as_str()), (position, fault), "{text}");
        assert!(!error.hint.is_empty(), "{text}");
    }
    let hint = nodes("state=parked").unwrap_err().hint;
    assert!(hint.starts_with("write run_status=parked; state is one of: registered,"), "{hint}");
    let hint = nodes("stat=active").unwrap_err().hint;
    assert!(hint.starts_with("filter nodes by: hostname, site,"), "{hint}");
}

#[test]
fn limits_are_held() {
    let limits = FilterLimits::ALLOWED;
    let deep = |depth: usize| format!("{}site=a{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(nodes(&deep(limits.depth)).as_deref(), Ok("site=a"));
    assert!(nodes(&deep(limits.depth + 1)).unwrap_err().fault.contains("parentheses"));
    assert!(nodes(&"not ".repeat(limits.depth + 1)).unwrap_err().fault.contains("parentheses"));
    let many = |count: usize| format!("site={}", vec!["a"; count].join(","));
    assert!(nodes(&many(limits.values)).is_ok());
    assert_eq!(nodes(&many(limits.values + 1)).unwrap_err().fault, "too many values");
    let long = |count: usize| format!("site={}", "a".repeat(count - 5));
    assert!(nodes(&long(limits.characters)).is_ok());
    assert_eq!(nodes(&long(limits.characters + 1)).unwrap_err().fault, "the filter is too long");
    assert!(nodes(&"(".repeat(100_000)).is_err());
}

/// What is read is sent as it is written: it has to be within the limit there, too.
#[test]
fn what_was_read_is_never_too_long_to_be_sent() {
    let days = ["updated>2026-11-01"; 90].join(" or ");
    assert!(days.chars().count() > FilterLimits::ALLOWED.characters - 60);
    let groups = "(site=a or site=b)".repeat(50);
    let nots = "not(not(site=a)(site=b))".repeat(50);
    for text in [&days, &groups, &nots] {
        let filter = parse_filter(FilterList::Nodes, text).unwrap();
        let sent = filter.compact();
        assert!(sent.chars().count() <= text.chars().count(), "{sent}");
        assert_eq!(parse_filter(FilterList::Nodes, &sent), Ok(filter), "{sent}");
    }
    let quoted =
        r#"hostname="a) (b \" ) (" (site=a or not (site=b or site=c)) (site=d or site=or)"#;
    let compact = parse_filter(FilterList::Nodes, quoted).unwrap().compact();
    let expected =
        r#"hostname="a) (b \" ) (" (site=a or not(site=b or site=c))(site=d or site=or)"#;
    assert_eq!(compact, expected);
}

fn text_value() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9._:/@-]{1,12}", r#"[ -~äß€]{1,12}"#]
}

fn value_of(kind: FilterFieldKind) -> BoxedStrategy<FilterValue> {
    match kind {
        FilterFieldKind::Text => text_value().prop_map(FilterValue::Text).boxed(),
        FilterFieldKind::Choice(values) => proptest::sample::select(values.all())
            .prop_map(|value| FilterValue::Text(value.to_owned()))
            .boxed(),
        FilterFieldKind::Moment => (0..253_402_300_799_000_000_i64)
            .prop_map(|at| FilterValue::Moment(Timestamp::from_micros(at)))
            .boxed(),
        FilterFieldKind::Number => any::<i64>().prop_map(FilterValue::Number).boxed(),
        FilterFieldKind::Flag => any::<bool>().prop_map(FilterValue::Flag).boxed(),
    }
}

fn condition(list: FilterList) -> impl Strategy<Value = FilterExpression> {
    let fields: Vec<&'static FilterField> =
        FILTER_FIELDS.iter().filter(|field| field.list == list).collect();
    proptest::sample::select(fields)
        .prop_flat_map(|field| {
            let operator = proptest::sample::select(operators(field.kind));
            (Just(field), operator, prop::collection::vec(value_of(field.kind), 1..4))
        })
        .prop_map(|(field, operator, mut values)| {
            values.truncate(if takes_many(operator) { 3 } else { 1 });
            FilterExpression::Is(FilterCondition { field, operator, values })
        })
}

fn expression(list: FilterList) -> impl Strategy<Value = FilterExpression> {
    use FilterExpression::{All, Any};
    condition(list).prop_recursive(3, 12, 3, |inner| {
        let several = prop::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            inner.prop_map(|inner| FilterExpression::Not(Box::new(inner))),
            several.clone().prop_map(|parts| {
                let flat = parts.into_iter().flat_map(|part| match part {
                    All(inner) => inner,
                    part => vec![part],
                });
                All(flat.collect())
            }),
            several.prop_map(|parts| {
                let flat = parts.into_iter().flat_map(|part| match part {
                    Any(inner) => inner,
                    part => vec![part],
                });
                Any(flat.collect())
            }),
        ]
    })
}

fn filter() -> impl Strategy<Value = ListFilter> {
    proptest::sample::select(FilterList::ALL).prop_flat_map(|list| {
        expression(list).prop_map(move |expression| ListFilter { list, expression })
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(filter in filter()) {
        let text = filter.to_string();
        prop_assume!(text.chars().count() <= FilterLimits::ALLOWED.characters);
        let compact = filter.compact();
        prop_assert_eq!(parse_filter(filter.list, &text), Ok(filter.clone()), "{}", text);
        let list = filter.list;
        prop_assert_eq!(parse_filter(list, &compact), Ok(filter), "{}", compact);
    }

    #[test]
    fn no_text_is_too_odd(text in any::<String>()) {
        for list in FilterList::ALL {
            if let Err(error) = parse_filter(*list, &text) {
                prop_assert!(error.position <= text.chars().count() + 1);
            }
        }
    }

    #[test]
    fn nor_one_that_is_nearly_a_filter(
        parts in prop::collection::vec(
            prop_oneof![
                Just("site"), Just("state"), Just("index"), Just("="), Just("!="), Just(">"), Just("~"),
                Just("("), Just(")"), Just(" "), Just("not"), Just("or"), Just("and"), Just(","),
                Just("\""), Just("\\"), Just("free"), Just("7"), Just("é"),
            ],
            0..30,
        )
    ) {
        let text = parts.concat();
        match parse_filter(FilterList::Slots, &text) {
            Ok(filter) => {
                let sent = filter.compact();
                prop_assert!(sent.chars().count() <= text.chars().count(), "{} {}", text, sent);
                prop_assert_eq!(parse_filter(FilterList::Slots, &sent), Ok(filter));
            }
            Err(error) => prop_assert!(error.position <= text.chars().count() + 1),
        }
    }
}
