//! Calls that are carried out late: they stand in the region's queue, or a proxy holds them.
//!
//! A busy region has a few threads and a queue before them, and a proxy in front of it may have another
//! one. Both carry a call out when its turn comes, whether or not its caller still waits: a caller who
//! gave up has changed nothing. A region itself stays a function of requests and time; whoever brings a
//! request to it asks first how long the call waits ([`Region::queue_us`]), and brings it then.

use crate::faults::FaultKind;
use crate::ops;
use crate::region::Region;
use crate::wire::SimRequest;

impl Region {
    /// Microseconds from `now_us` until the region carries the call out.
    ///
    /// ```
    /// use maas_sim::{Fault, FaultKind, Region, RegionConfig, SimRequest};
    ///
    /// let mut region = Region::new(RegionConfig::default());
    /// let request = SimRequest {
    ///     method: "GET".to_owned(),
    ///     path: "/MAAS/api/2.0/version/".to_owned(),
    ///     ..SimRequest::default()
    /// };
    /// assert_eq!(region.queue_us(0, &request), 0);
    /// region.inject(Fault::new(FaultKind::Held).at("version").lasting_seconds(35.0));
    /// assert_eq!(region.queue_us(0, &request), 35_000_000);
    /// ```
    pub fn queue_us(&mut self, now_us: i64, request: &SimRequest) -> i64 {
        let kinds = [FaultKind::Held, FaultKind::Queued];
        if !self.faults.all().any(|(fault, _)| kinds.contains(&fault.kind)) {
            return 0;
        }
        let held = self.late_us(FaultKind::Held, request);
        let queued = self.late_us(FaultKind::Queued, request);
        // What a proxy holds comes to the queue later than what comes there now.
        if queued == 0 || held > 0 {
            return held + queued;
        }
        // Nobody overtakes in the region's own queue, however short his own call is.
        let done = (now_us + queued).max(self.queue_ends_us);
        self.queue_ends_us = done;
        done - now_us
    }

    fn late_us(&mut self, kind: FaultKind, request: &SimRequest) -> i64 {
        let fault = ops::trigger_on_the_way(self, &[kind], request);
        fault.map_or(0, |fault| (fault.seconds.unwrap_or(30.0) * 1e6) as i64)
    }
}
