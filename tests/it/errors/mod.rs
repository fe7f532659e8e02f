//! Triggers all errors through the public API and compares their messages with `texts.txt`. The messages about
//! configuration files are in `tests/it/config/messages.txt`.
//!
//! `TOLLGATE_MESSAGES=write cargo test --all-features --test it errors::` rewrites the list. Review the changes.

mod calls;
mod list;
mod panics;
mod responses;
mod server;
mod values;

use std::path::Path;

use self::list::List;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_error_messages_match_the_list() {
    let mut list = List::default();
    values::quotas(&mut list);
    values::texts_of_quotas(&mut list);
    values::policies(&mut list);
    values::deny_rules_and_networks(&mut list);
    panics::constructors(&mut list);
    panics::layers(&mut list);
    panics::routes(&mut list);
    calls::denials(&mut list).await;
    calls::changed_quotas(&mut list).await;
    calls::backends(&mut list).await;
    server::connecting(&mut list).await;
    server::deciding(&mut list).await;
    responses::refusals(&mut list).await;
    responses::extractors(&mut list).await;
    responses::status_endpoints(&mut list).await;

    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/errors/texts.txt");
    if std::env::var_os("TOLLGATE_MESSAGES").is_some_and(|value| value == "write") {
        std::fs::write(&golden, list.text()).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    for (expected, found) in expected.split("\n\n").zip(list.text().split("\n\n")) {
        assert_eq!(expected, found);
    }
    assert_eq!(expected, list.text());
}
