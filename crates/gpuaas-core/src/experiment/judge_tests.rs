use gpuaas_types::experiment::MeasureVerdict::{
    Faster, Inconclusive, InsufficientSample, NotComparable, SameWithinMargin, Slower,
};

use super::*;

fn measure(name: &str, a: &[f64], b: &[f64]) -> MeasureSamples {
    MeasureSamples { name: name.to_owned(), a: a.to_vec(), b: b.to_vec(), paired: false }
}

/// `n` samples around `center`, evenly apart.
fn around(center: f64, step: f64, n: usize) -> Vec<f64> {
    let mut value = center;
    std::iter::repeat_with(|| {
        value += step;
        value
    })
    .take(n)
    .collect()
}

fn judge(
    measures: &[MeasureSamples],
    criteria: &Criteria,
    comparable: bool,
) -> Vec<ExperimentMeasure> {
    Judge::default().judge(measures, criteria, comparable)
}

fn verdicts(measures: &[MeasureSamples]) -> Vec<MeasureVerdict> {
    let judged = judge(measures, &Criteria::default(), true);
    judged.into_iter().map(|one| one.verdict).collect()
}

#[test]
fn a_clear_difference_is_said_and_which_way() {
    let (a, b) = (around(1000.0, 10.0, 8), around(700.0, 10.0, 8));
    let judged = judge(&[measure("time_to_active", &a, &b)], &Criteria::default(), true);
    let one = &judged[0];
    assert_eq!(one.verdict, Faster);
    assert_eq!(
        (one.p50_a, one.p50_b, one.shift_seconds),
        (Some(1040.0), Some(740.0), Some(-300.0))
    );
    assert!(one.interval_seconds.is_some_and(|[low, high]| low < -300.0 && high < -100.0));
    assert!(one.p_adjusted > one.p, "the primary measure has a part of alpha");
    assert_eq!(verdicts(&[measure("time_to_active", &b, &a)]), [Slower]);
}

#[test]
fn three_of_an_arm_say_nothing_however_far_apart() {
    let far = measure("time_to_active", &[1.0, 2.0, 3.0], &[1001.0, 1002.0, 1003.0]);
    assert_eq!(verdicts(&[far]), [InsufficientSample]);
    let none = measure("time_to_active", &[], &[]);
    let judged = judge(std::slice::from_ref(&none), &Criteria::default(), true);
    assert_eq!((judged[0].verdict, judged[0].p50_a), (InsufficientSample, None));
}

#[test]
fn a_bucket_of_many_needs_a_larger_sample_than_the_primary_measure() {
    let (a, b) = (around(1000.0, 10.0, 4), around(700.0, 10.0, 4));
    let buckets = std::iter::repeat_n(measure("boot", &a, &b), 12);
    let all: Vec<MeasureSamples> =
        [measure("time_to_active", &a, &b)].into_iter().chain(buckets).collect();
    let said = verdicts(&all);
    assert_eq!(said[0], Faster);
    assert_eq!(said[1..], [InsufficientSample; 12], "four of an arm cannot carry twelve buckets");
}

#[test]
fn equal_within_the_margin_is_a_verdict_and_no_difference_is_none() {
    let (a, b) = (around(1000.0, 1.0, 12), around(1002.0, 1.0, 12));
    assert_eq!(verdicts(&[measure("time_to_active", &a, &b)]), [SameWithinMargin]);
    let (a, b) = (around(1000.0, 100.0, 12), around(1010.0, 100.0, 12));
    assert_eq!(verdicts(&[measure("time_to_active", &a, &b)]), [Inconclusive]);
}

#[test]
fn a_failed_run_is_longer_than_any() {
    let (a, mut b) = (around(1000.0, 10.0, 6), around(900.0, 10.0, 6));
    b.fill(f64::INFINITY);
    let judged = judge(&[measure("time_to_active", &a, &b)], &Criteria::default(), true);
    assert_eq!(judged[0].verdict, Slower);
    assert_eq!((judged[0].p50_b, judged[0].shift_seconds), (None, None));
}

#[test]
fn pairs_are_judged_by_their_differences() {
    // Hosts differ by far more than the images do.
    let a = around(1000.0, 500.0, 10);
    let b: Vec<f64> = a.iter().zip(around(40.0, 3.0, 10)).map(|(a, less)| a - less).collect();
    let mut pairs = measure("time_to_active", &a, &b);
    assert_eq!(verdicts(std::slice::from_ref(&pairs)), [Inconclusive]);
    pairs.paired = true;
    assert_eq!(verdicts(std::slice::from_ref(&pairs)), [Faster]);
    pairs.b.pop();
    assert_eq!(verdicts(&[pairs]), [InsufficientSample], "a pair is incomplete");
}

#[test]
fn arms_that_differ_otherwise_are_not_compared() {
    let (a, b) = (around(1000.0, 10.0, 8), around(700.0, 10.0, 8));
    let judged = judge(&[measure("time_to_active", &a, &b)], &Criteria::default(), false);
    assert_eq!(judged[0].verdict, NotComparable);
    assert!(judged[0].shift_seconds.is_some(), "it is shown all the same");
}

#[test]
fn each_look_has_its_part() {
    let (a, b) = (around(1000.0, 10.0, 4), around(700.0, 10.0, 4));
    let twice = Criteria { looks: 2, ..Criteria::default() };
    let judged = judge(&[measure("time_to_active", &a, &b)], &twice, true);
    assert_eq!(judged[0].verdict, InsufficientSample, "2 of 70 is no part of 2 %");
}
