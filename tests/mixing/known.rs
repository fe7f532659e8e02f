//! The faults that the crate is known to have, and which the harness tolerates until they are mended.
//!
//! Whoever mends a fault removes its line here. With `TOLLGATE_MIXING_STRICT=1`, nothing is tolerated, which shows
//! which of the faults the harness finds.

/// Something that should not be.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The number of a known fault.
    pub(crate) known: Option<u8>,
    pub(crate) text: String,
}

/// The numbers of the known faults. Numbers above 100 are faults that this harness found.
const KNOWN: [(u8, &str); 9] = [
    (1, "Redis: a check of a quota with shards reads the first shard for every shard"),
    (2, "calls held by a pause are decided under the settings from before the pause"),
    (6, "`drop(pause)`, `drop(resume)` are published out of order"),
    (8, "a credit can lengthen a denial"),
    (9, "a refund gives back what a credit or a reset has given back, or answers `true` for a part"),
    (10, "at the last representable instant, no quota holds"),
    (101, "settling a receipt with a shadowed charge again answers `true`"),
    (102, "a reset leaves shards that a quota with more shards has used"),
    (103, "a blocked caller in shadow mode that may wait is charged, unlike one that may not"),
];

impl Finding {
    pub(crate) fn of(known: Option<u8>, text: String) -> Finding {
        Finding { known: known.filter(|known| KNOWN.iter().any(|(number, _)| number == known)), text }
    }

    pub(crate) fn is_tolerated(&self) -> bool {
        self.known.is_some() && std::env::var_os("TOLLGATE_MIXING_STRICT").is_none()
    }

    /// A text that is the same for findings of the same fault.
    pub(crate) fn kind(&self) -> String {
        match self.known.and_then(|known| KNOWN.iter().find(|(number, _)| *number == known)) {
            // Fault 9 has several parts.
            Some((9, _)) => format!("fault 9: {}", self.text.split_whitespace().take(4).collect::<Vec<_>>().join(" ")),
            Some((number, text)) => format!("fault {number}: {text}"),
            None => self.text.chars().filter(|c| !c.is_ascii_digit()).take(90).collect(),
        }
    }
}
