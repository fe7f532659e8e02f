//! The terms of a history. They name nothing of the crate, so that the harness survives changes of its API.

/// Microseconds: an instant since the epoch, or a duration.
pub(crate) type Time = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Bucket,
    Fixed,
    Sliding,
}

/// The parameters of a quota. They are valid by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) rate: u64,
    pub(crate) period: Time,
    pub(crate) capacity: u64,
    /// `None` means without a bound.
    pub(crate) max_reserved: Option<u64>,
    pub(crate) shards: u64,
    /// Whether the boundaries of a fixed window are the same for all keys.
    pub(crate) aligned: bool,
}

impl Spec {
    pub(crate) fn reserves(&self) -> bool {
        self.max_reserved != Some(0)
    }

    /// Returns a quota that allows `share` (in percent) of this quota, as a fallback uses it.
    pub(crate) fn scaled(self, share: u64) -> Spec {
        let of = |tokens: u64| if tokens == 0 { 0 } else { (tokens * share / 100).max(1) };
        let max_reserved = self.max_reserved.map(of);
        Spec { rate: of(self.rate), capacity: of(self.capacity), max_reserved, shards: 1, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enforcement {
    Always,
    Never,
    /// For about half of the keys.
    Half,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Deny,
    Allow,
    /// With a share in percent.
    Fallback(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct PolicySpec {
    pub(crate) name: String,
    pub(crate) quotas: Vec<Spec>,
    /// The quotas of the tiers `t0`, `t1` and so on.
    pub(crate) tiers: Vec<Vec<Spec>>,
    pub(crate) enforcement: Enforcement,
    pub(crate) on_failure: OnFailure,
    pub(crate) leases: bool,
}

/// The rules of automatic blocking.
#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    pub(crate) policies: Vec<usize>,
    pub(crate) threshold: u32,
    pub(crate) within: Time,
    pub(crate) lasts: Time,
    /// The factor, and the longest block.
    pub(crate) escalation: Option<(u32, Time)>,
    pub(crate) resets_on_success: bool,
    pub(crate) keys: bool,
    pub(crate) ips: bool,
}

/// The program that a history runs against.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) policies: Vec<PolicySpec>,
    pub(crate) blocking: Option<Blocking>,
    pub(crate) max_waiting: usize,
    pub(crate) start: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// `None` is the anonymous caller.
    pub(crate) key: Option<u8>,
    /// The number of a tier, which the policy may not know.
    pub(crate) tier: Option<u8>,
    pub(crate) own: Option<Vec<Spec>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ChargeOf {
    pub(crate) policy: usize,
    pub(crate) caller: Caller,
    pub(crate) cost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Limit,
    Check,
    Hold,
    /// A reservation that is due within a time, or at any time.
    Reserve(Option<Time>),
    Wait(Time),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Tier(u8),
    Key(Option<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Whom {
    Key(u8),
    Ip(u8),
}

/// One operation. `pick` chooses one of the open receipts, reservations or waiting calls.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Call {
        charges: Vec<ChargeOf>,
        ip: Option<u8>,
        how: How,
    },
    Settle {
        pick: u64,
        actual: u64,
        only_first: bool,
    },
    ResetReceipt {
        pick: u64,
    },
    Cancel {
        pick: u64,
    },
    Drop {
        pick: u64,
    },
    Keep {
        pick: u64,
    },
    StopWaiting {
        pick: u64,
    },
    Credit {
        policy: usize,
        caller: Caller,
        tokens: u64,
    },
    ResetKey {
        policy: usize,
        caller: Caller,
    },
    ResetPolicy {
        policy: usize,
    },
    SetQuota {
        policy: usize,
        scope: Scope,
        quotas: Option<Vec<Spec>>,
    },
    SetEnforcement {
        policy: usize,
        to: Option<Enforcement>,
    },
    Pause {
        policy: usize,
        key: Option<u8>,
        lasts: Time,
    },
    Resume {
        policy: usize,
        key: Option<u8>,
    },
    Block {
        whom: Whom,
        lasts: Time,
    },
    Unblock {
        whom: Whom,
    },
    Deny {
        whom: Whom,
        listed: bool,
    },
    Fail {
        failing: bool,
    },
    SaveAndLoad,
    Forward(Time),
    /// Moves the clock to the last retry time or due time that was answered, give or take some microseconds.
    ToPromise(i64),
    Back(Time),
}

impl Op {
    /// The name under which the operation is counted.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Op::Call { how: How::Limit, charges, .. } if charges.len() > 1 => "limit_all",
            Op::Call { how: How::Limit, .. } => "limit",
            Op::Call { how: How::Check, .. } => "check",
            Op::Call { how: How::Hold, .. } => "hold",
            Op::Call { how: How::Reserve(_), .. } => "reserve",
            Op::Call { how: How::Wait(_), .. } => "wait_up_to",
            Op::Settle { .. } => "settle",
            Op::ResetReceipt { .. } => "reset a receipt",
            Op::Cancel { .. } => "cancel",
            Op::Drop { .. } => "drop",
            Op::Keep { .. } => "keep",
            Op::StopWaiting { .. } => "stop waiting",
            Op::Credit { .. } => "credit",
            Op::ResetKey { .. } => "reset",
            Op::ResetPolicy { .. } => "reset_policy",
            Op::SetQuota { .. } => "set_quota",
            Op::SetEnforcement { .. } => "set_enforcement",
            Op::Pause { .. } => "pause",
            Op::Resume { .. } => "resume",
            Op::Block { .. } => "block",
            Op::Unblock { .. } => "unblock",
            Op::Deny { .. } => "deny list",
            Op::Fail { .. } => "outage",
            Op::SaveAndLoad => "save and load",
            Op::Forward(_) => "clock forward",
            Op::ToPromise(_) => "clock to a promise",
            Op::Back(_) => "clock back",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Granted,
    Reserved,
    /// Over the quota now or for ever. `retry` tells which.
    Over,
    Elsewhere,
    FailOpen,
    Listed,
    Blocked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Backend,
    Fallback,
    FailOpen,
    Limiter,
    /// Leases and remembered denials of a remote backend.
    Remembered,
}

/// The decision on one quota of one charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) policy: String,
    pub(crate) allowed: bool,
    pub(crate) shadowed: bool,
    pub(crate) why: Why,
    pub(crate) by: By,
    pub(crate) retry: Option<Time>,
    pub(crate) delay: Time,
    /// `None` if nothing was counted, so that there is no figure.
    pub(crate) remaining: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Lines(Vec<Line>),
    /// The backend failed.
    Failed,
    NoReservations,
    /// A change that is not allowed.
    Rejected,
    Flag(bool),
    /// A call that waits.
    Pending,
    Done,
    /// There was nothing to pick.
    Nothing,
}
