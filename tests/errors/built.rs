//! Mistakes in the program, which panic when it starts, or fail to compile in a `const`.

use std::time::Duration;

use tollgate::backend::RedisBackend;
use tollgate::{
    FailureMode, MINUTE, MemoryBackend, Policy, Quota, RateLimitLayer, RateLimiter, RouteLimits, Rule, SECOND, WEEK,
    key,
    policy::PolicyName,
    protection::{DenyList, DenyRule},
    status,
};

use crate::list::List;

const TEN_PER_MINUTE: Quota = Quota::token_bucket(10, MINUTE);
const NO_CAPACITY: Quota = Quota::token_bucket(10, MINUTE).capacity(0);

pub(crate) fn constructors(list: &mut List) {
    list.part("Constructors: panics");
    let max = Quota::MAX_TOKENS;
    list.panic("no rate", || Quota::token_bucket(0, MINUTE));
    list.panic("no period", || Quota::fixed_window(1, Duration::ZERO));
    list.panic("a period of nanoseconds", || Quota::sliding_window(1, Duration::from_nanos(1500)));
    list.panic("too large a rate", || Quota::per_second(max + 1));
    list.panic("too large a capacity", || TEN_PER_MINUTE.capacity(u64::MAX));
    list.panic("a capacity that takes too long", || Quota::token_bucket(1, WEEK).capacity(max));
    list.panic("a sliding window's capacity", || Quota::sliding_window(10, MINUTE).capacity(20));
    list.panic("too many reservations", || TEN_PER_MINUTE.max_reserved(max + 1));
    list.panic("a sliding window's reservations", || Quota::sliding_window(10, MINUTE).max_reserved(5));
    list.panic("the same without bound", || Quota::sliding_window(10, MINUTE).unlimited_reservations());
    list.panic("a start of nanoseconds", || Quota::fixed_window(10, MINUTE).start(Duration::from_nanos(1500)));
    list.panic("a name that headers cannot show", || PolicyName::new("caf\u{e9}"));
    list.panic("too long a name", || {
        const LONG: &str = concat!(
            "a name that no header should carry in each of its responses, however well it describes what the policy ",
            "is for, and whom it counts",
        );
        Policy::new(LONG, TEN_PER_MINUTE)
    });
    list.panic("a quota that refuses everything", || Policy::new("api", NO_CAPACITY));
    list.panic("the same without a name", || Policy::from(NO_CAPACITY));
    list.panic("a tier of another algorithm", || {
        Policy::new("api", TEN_PER_MINUTE).tier("free", Quota::fixed_window(10, MINUTE))
    });
    list.panic("a share of nothing", || FailureMode::fallback(0.0));
    list.panic("a brace in a prefix", || RedisBackend::builder().prefix("{shop}"));
}

pub(crate) fn layers(list: &mut List) {
    list.part("Layers and keys: panics");
    let layer = || RateLimitLayer::new(Policy::new("api", TEN_PER_MINUTE), key::global());
    list.panic("a quota that refuses everything", || RateLimitLayer::new(NO_CAPACITY, key::global()));
    list.panic("a rule of that kind", || Rule::new(NO_CAPACITY, key::global()));
    list.panic("an endpoint of that kind", || {
        status::of::<()>(&tollgate::RateLimiter::default(), NO_CAPACITY, key::global())
    });
    list.panic("two policies of one name", || layer().and(Policy::new("api", TEN_PER_MINUTE), key::global()));
    list.panic("nothing to wait for", || layer().wait_up_to(SECOND));
    list.panic("a share of more than all", || layer().enforce_share(1.5));
    list.panic("a header's name in capitals", || key::header("X-API-Key"));
    list.panic("a header's name with a blank", || layer().shadow_header("x limited"));
    list.panic("no name of a header", || layer().label_from_header("country", ""));
    list.panic("an address from such a header", || key::client_ip().from_header("CF-Connecting-IP"));
    let denying = |rules: &[DenyRule]| {
        let list = DenyList::from_iter(rules.iter().cloned());
        let layer = layer().limiter(&RateLimiter::builder(MemoryBackend::new()).deny_list(&list).build());
        move || axum::Router::<()>::new().route("/", axum::routing::get(|| async {})).layer(layer)
    };
    let (network, country) = (DenyRule::network("192.0.2.0/24").unwrap(), DenyRule::country("KP").unwrap());
    list.panic("denied networks without an address", denying(&[network]));
    list.panic("denied countries and keys that are not found", denying(&[country, DenyRule::key("sk_leaked")]));
    list.panic("no network of proxies", || key::client_ip().trust(["10.0.0.0/8", "proxy.example.com"]));
    list.panic("all of NAT64 as a network of proxies", || key::client_ip().trust(["64:ff9b::/96"]));
    list.panic("a NAT64 prefix of another length", || key::client_ip().nat64(["2001:db8::/33"]));
    list.panic("proxies within a NAT64 prefix", || {
        key::client_ip().nat64(["2001:db8:64::/96"]).trust(["2001:db8:64::a00:0/104"])
    });
    list.panic("no network to skip", || drop(key::client_ip().within(["192.0.2.0/33"])));
}

pub(crate) fn routes(list: &mut List) {
    list.part("Routes: panics");
    let limits = || {
        RouteLimits::new(key::global())
            .policy(Policy::new("search", TEN_PER_MINUTE))
            .policy(Policy::new("todo/create", TEN_PER_MINUTE))
    };
    list.panic("a policy that is not there", || limits().route("serach"));
    list.panic("a policy that is there twice", || limits().policy(Policy::new("search", TEN_PER_MINUTE)));
    list.panic("a default policy of such a name", || limits().default_policy(Policy::new("search", TEN_PER_MINUTE)));
    list.panic("a line with such a policy", || limits().table([("GET /search", "serach")]));
    list.panic("a line that is there twice", || limits().table([("/search", "search"), ("/search", "search")]));
    list.panic("a method in small letters", || limits().table([("get /search", "search")]));
    list.panic("a method that is misspelt", || limits().table([("GTE /search", "search")]));
    list.panic("a parameter of axum 0.7", || limits().table([("/search/:id", "search")]));
    list.panic("a cost that never fits", || {
        axum::Router::<()>::new()
            .route("/", axum::routing::get(|| async {}))
            .layer(limits().table([("/", "search")]).fixed_cost(11))
    });
    list.panic("a line without a route", || limits().table([("search", "search")]));
}
