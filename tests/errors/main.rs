//! What every error outside of configuration files says, word for word, each provoked through the public API: in one
//! list, `texts.txt`, to be read as a user would. What configuration files are told is in `tests/config/messages.txt`.
//!
//! `TOLLGATE_MESSAGES=write cargo test --all-features --test errors` writes the list anew; read what changed.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test fails by panicking, its helpers too.

mod answers;
mod built;
mod calls;
mod list;
mod server;
mod values;

use std::path::Path;

use self::list::List;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_error_says_what_happened_with_which_value_and_what_to_do() {
    let mut list = List::default();
    values::quotas(&mut list);
    values::texts_of_quotas(&mut list);
    values::policies(&mut list);
    values::deny_rules_and_networks(&mut list);
    built::constructors(&mut list);
    built::layers(&mut list);
    built::routes(&mut list);
    calls::denials(&mut list).await;
    calls::changed_quotas(&mut list).await;
    calls::backends(&mut list).await;
    server::connecting(&mut list).await;
    server::deciding(&mut list).await;
    answers::refusals(&mut list).await;
    answers::extractors(&mut list).await;
    answers::status_endpoints(&mut list).await;

    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors/texts.txt");
    if std::env::var_os("TOLLGATE_MESSAGES").is_some_and(|wish| wish == "write") {
        std::fs::write(&golden, list.text()).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&golden).unwrap();
    for (known, said) in known.split("\n\n").zip(list.text().split("\n\n")) {
        assert_eq!(known, said);
    }
    assert_eq!(known, list.text());
}
