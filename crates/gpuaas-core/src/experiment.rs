//! Experiments between two host images: which differences of their timings a sample carries.
//!
//! Only exact tests, so that a sample of eight nodes is judged by what eight nodes can show: the rank
//! sum of two independent samples, the signed rank of pairs, Fisher's test of failures. The measures
//! beside the primary one are adjusted by Holm's method. Samples are seconds; a run that failed is
//! infinitely long, which only its rank counts.

mod assignment;
mod collect;
mod failures;
mod holm;
mod judge;
mod rank_sum;
mod ranks;
mod signed_rank;

pub use assignment::assign_nodes;
pub use collect::{SLICE_DISCOVERY, TIMINGS, TimingRow, are_comparable, judge_runs, sample_value};
pub use failures::{FailureCounts, judge_failures};
pub use judge::{Criteria, Judge, MAX_SAMPLES, MIN_SAMPLES, MeasureSamples};
