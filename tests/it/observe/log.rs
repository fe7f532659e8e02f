//! A `tracing` subscriber that keeps every event as a line.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// The recorded events. Clones of a log share its lines.
#[derive(Clone)]
pub(crate) struct Log {
    level: Level,
    lines: Arc<Mutex<Vec<Line>>>,
}

/// An event as text: its level, target and name, followed by its fields in order. Only strings are quoted.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    head: String,
    fields: Vec<(&'static str, String)>,
}

impl Log {
    /// Creates a log of events at `level` or more severe levels.
    pub(crate) fn new(level: Level) -> Log {
        Log { level, lines: Arc::default() }
    }

    pub(crate) fn subscribe(&self) -> DefaultGuard {
        tracing::dispatcher::set_default(&Dispatch::new(self.clone()))
    }

    /// Removes and returns the recorded events.
    pub(crate) fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    pub(crate) fn named(&self, name: &str) -> Vec<Line> {
        self.take().into_iter().filter(|line| line.head.ends_with(&format!(" {name}"))).collect()
    }
}

impl Line {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn suppressed(&self) -> u64 {
        self.field("suppressed").expect("expected a `suppressed` field").parse().unwrap()
    }
}

/// Writes the event on one line, with `_` in place of the latency.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head)?;
        self.fields.iter().try_for_each(|(name, value)| match *name {
            "latency_us" => write!(f, " latency_us={}", value.parse::<u64>().map_or("?", |_| "_")),
            name => write!(f, " {name}={value}"),
        })
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.push((field.name(), format!("{value:?}")));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.level
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let head = format!("{} {} {}", metadata.level(), metadata.target(), metadata.name());
        let mut line = Line { head, fields: Vec::new() };
        event.record(&mut line);
        self.lines.lock().unwrap().push(line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
