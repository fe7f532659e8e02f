//! Describes the fields of a configuration file, for the reader and for the JSON schema.

use super::auto_block::{MAX_ENTRIES, MIN_ENTRIES};
use crate::algorithm::{Algorithm, Quota};

pub(super) struct Table {
    /// An example for error messages.
    pub(super) example: &'static str,
    pub(super) fields: &'static [Field],
}

pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) doc: &'static str,
    /// An example of the value if the field is required, or `None` if the field is optional.
    pub(super) required: Option<&'static str>,
}

pub(super) enum Shape {
    Text,
    Boolean,
    /// A whole number in this range.
    Number(u64, u64),
    Integer,
    Duration,
    /// A number from 0 to 1.
    Share,
    Word(&'static [&'static str]),
    List(&'static Shape),
    Table(&'static Table),
    /// A table whose field names are chosen by the file's author.
    Entries(&'static Shape),
    OneOf(&'static [Shape]),
    Quotas,
}

impl Field {
    const fn new(name: &'static str, shape: Shape, doc: &'static str) -> Field {
        Field { name, shape, doc, required: None }
    }

    const fn required(self, example: &'static str) -> Field {
        Field { required: Some(example), ..self }
    }
}

use Shape::{Boolean, Duration, Entries, Integer, List, Number, OneOf, Quotas, Share, Text, Word};

const NAMES: Shape = List(&Text);

const POLICIES: Shape = OneOf(&[Text, NAMES]);

pub(super) const FILE: Table = Table {
    example: r#"policies = { api = { quota = "60/min" } }"#,
    fields: &[
        Field::new("policies", Entries(&Shape::Table(&POLICY)), "The policies by name.")
            .required(r#"{ api = { quota = "60/min" } }"#),
        Field::new("default", CHOICE, "The policies for requests that match no entry in `routes`."),
        Field::new("all_routes", POLICIES, "Policies that apply to all requests, in addition to the route's own."),
        Field::new(
            "routes",
            Entries(&CHOICE),
            "The policies for routes such as \"POST /todos\", \"/users/{id}\" or \"/package.Service/Method\".",
        ),
        Field::new("deny", Shape::Table(&DENY), "The callers that are always refused."),
        Field::new("auto_block", Shape::Table(&AUTO_BLOCK), "Temporary blocks after repeated denials."),
    ],
};

pub(super) const POLICY: Table = Table {
    example: r#"quota = "60/min""#,
    fields: &[
        Field::new("quota", Quotas, "The quota for callers without a tier.").required("\"60/min\""),
        Field::new("tiers", Entries(&Quotas), "The tiers' quotas, which must use the same algorithm as `quota`."),
        Field::new("key", Text, "The key extractor: \"global\", or a name that the program has registered."),
        Field::new("cost", COST, "The cost of a request. The default is the route's cost, or else the layer's cost."),
        Field::new("wait", Duration, "Delays requests for up to this long instead of refusing them."),
        Field::new("shadow", Boolean, "Whether requests over the limit are counted, but not refused."),
        Field::new(
            "enforce",
            Share,
            "The share of keys for which the policy is enforced; the others are in shadow mode.",
        ),
        Field::new("leases", Boolean, "Whether processes lease tokens from a remote backend."),
    ],
};

const CHOICE: Shape = OneOf(&[Text, NAMES, Shape::Table(&ROUTE)]);

pub(super) const ROUTE: Table = Table {
    example: r#"policies = ["api"], cost = 10"#,
    fields: &[
        Field::new("policies", POLICIES, "The route's policies.").required("[\"api\"]"),
        Field::new("cost", COST, "The cost of a request under those policies that have no cost of their own."),
    ],
};

const COST: Shape = Number(0, Quota::MAX_TOKENS);

pub(super) const DENY: Table = Table {
    example: r#"ips = ["192.0.2.0/24"]"#,
    fields: &[
        Field::new("ips", NAMES, "Addresses and networks such as \"192.0.2.0/24\"."),
        Field::new("user_agents", NAMES, "User agents, in which `*` stands for any text."),
        Field::new("countries", NAMES, "Two-letter country codes, compared with the label `country`."),
        Field::new(
            "keys",
            List(&OneOf(&[Text, Integer])),
            "Keys in their text form, such as 'bearer:...', or as numbers.",
        ),
        Field::new("labels", Entries(&NAMES), "Lists of label values, by label name."),
    ],
};

pub(super) const AUTO_BLOCK: Table = Table {
    example: r#"policies = ["api"]"#,
    fields: &[
        Field::new("policies", NAMES, "The policies whose denials are counted.").required("[\"api\"]"),
        Field::new("threshold", Number(1, u32::MAX as u64), "The number of denials that lead to a block."),
        Field::new("within", Duration, "The period over which denials are counted."),
        Field::new("block_for", Duration, "The duration of a block."),
        Field::new("escalate", Shape::Table(&ESCALATE), "Makes each subsequent block longer."),
        Field::new("reset_on_success", Boolean, "Whether an allowed charge resets the count of denials."),
        Field::new("keys", Boolean, "Whether to block keys."),
        Field::new("ips", Boolean, "Whether to block addresses."),
        Field::new("user_agents", Boolean, "Whether to block user agents."),
        Field::new("labels", NAMES, "The labels to block."),
        Field::new(
            "max_entries",
            Number(MIN_ENTRIES as u64, MAX_ENTRIES as u64),
            "The number of offenders to remember.",
        ),
    ],
};

pub(super) const ESCALATE: Table = Table {
    example: r#"factor = 2, most = "30 d""#,
    fields: &[
        Field::new("factor", Number(2, u32::MAX as u64), "Multiplies the duration of each subsequent block.")
            .required("2"),
        Field::new("most", Duration, "The longest duration of a block.").required("\"30 d\""),
    ],
};

pub(super) const QUOTA: Table = Table {
    example: r#"rate = 60, period = "1 min""#,
    fields: &[
        Field::new("algorithm", Word(&ALGORITHMS), "The algorithm. The default is \"token_bucket\"."),
        Field::new("rate", Number(1, Quota::MAX_TOKENS), "The number of tokens per period.").required("100"),
        Field::new("period", Duration, "The period.").required("\"1 min\""),
        Field::new("capacity", Number(0, Quota::MAX_TOKENS), "The largest burst. The default is the rate."),
        Field::new(
            "max_reserved",
            OneOf(&[Number(0, Quota::MAX_TOKENS), Word(&["unlimited"])]),
            "The number of tokens that can be reserved for later.",
        ),
        Field::new("shards", Number(1, Quota::MAX_SHARDS), "The number of rows among which the quota is divided."),
        Field::new("start", Duration, "The start of the windows, as an offset from midnight UTC."),
    ],
};

const ALGORITHMS: [&str; Algorithm::ALL.len()] = {
    let mut names = [""; Algorithm::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = Algorithm::ALL[i].name();
        i += 1;
    }
    names
};
