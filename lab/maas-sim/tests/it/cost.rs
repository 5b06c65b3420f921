//! What answers cost. Not a timed test: run it in release with `--run-ignored all --no-capture`.

use std::time::Duration;

use crate::common::{TestRegion, zero};
use maas_sim::{H200, MachineSpec, RegionConfig, Status, ZERO};

/// Processor time of this thread, so that a busy machine does not matter.
struct Cpu(Duration);

fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

impl Cpu {
    fn now() -> Self {
        Self(used())
    }

    fn elapsed(&self) -> Duration {
        used().saturating_sub(self.0)
    }
}

#[test]
#[ignore = "measures, asserts nothing about time"]
fn bodies_and_calls() {
    for class in [&ZERO, &H200] {
        let mut sim = TestRegion::new(RegionConfig { class, ..zero() });
        let ids: Vec<String> = (0..1000)
            .map(|n| sim.region.add_machine(MachineSpec::new(&format!("n{n}"), Status::Ready)))
            .collect();
        let start = Cpu::now();
        let bytes: usize =
            ids.iter().map(|id| sim.send("GET", &format!("machines/{id}/"), "").body.len()).sum();
        let cold = start.elapsed() / 1000;
        let start = Cpu::now();
        for id in &ids {
            sim.send("GET", &format!("machines/{id}/"), "");
        }
        let warm = start.elapsed() / 1000;
        let start = Cpu::now();
        for id in &ids {
            sim.post(&format!("machines/{id}/"), "op=deploy");
            sim.advance_seconds(0);
        }
        let deploy = start.elapsed() / 1000;
        println!(
            "{}: body {} bytes, first read {cold:?}, read again {warm:?}, deploy to Deployed {deploy:?}",
            class.name,
            bytes / 1000
        );
        let start = Cpu::now();
        for _ in 0..100 {
            sim.send("GET", "events/?op=query&level=DEBUG&limit=1000&after=5000", "");
        }
        println!("page of 1000 events {:?}", start.elapsed() / 100);
    }
}
