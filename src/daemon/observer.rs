//! What sees the events of a run, when they are stored, on behalf of telemetry.

use std::sync::Arc;

use crate::store::Stored;
use crate::telemetry::export::{AHEAD, Exporter};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::Grouper;
use crate::work::in_place;

/// The ways of telemetry out of the daemon.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// The daemon in numbers.
    pub metrics: Arc<Metrics>,
    /// Sends spans; `None`: nobody wants them.
    pub exporter: Option<Arc<Exporter>>,
}

/// Sees the events of a run when they are stored, and tells telemetry.
pub(super) struct Observer {
    pub(super) telemetry: Telemetry,
    pub(super) is_replay: bool,
    pub(super) grouper: Grouper,
}

impl Observer {
    /// Tells telemetry of events that are stored.
    pub(super) fn see(&mut self, events: &[Stored]) {
        let bytes = events.iter().map(|stored| stored.bytes).sum();
        in_place(bytes, || events.iter().for_each(|stored| self.see_one(stored)));
    }

    fn see_one(&mut self, stored: &Stored) {
        let Self { telemetry, is_replay, grouper } = self;
        let event = &stored.event;
        telemetry.metrics.take(event, *is_replay);
        let Some(exporter) = &telemetry.exporter else { return };
        if let Some(lost) = grouper.pass_over(event, exporter.has_room(AHEAD)) {
            return exporter.lose(lost);
        }
        for group in grouper.take(stored) {
            exporter.offer(group);
        }
    }
}
