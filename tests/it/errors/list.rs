//! The list of error messages.

use std::error::Error;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::response::Response;
use http_body_util::BodyExt;
use tollgate::key::CidrError;
use tollgate::policy::{ParseQuotaError, PolicyError, QuotaError};

#[derive(Default)]
pub(crate) struct List(String);

impl List {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    pub(crate) fn section(&mut self, title: &str) {
        writeln!(self.0, "# {title}\n").unwrap();
    }

    #[track_caller]
    pub(crate) fn error<T>(&mut self, label: &str, result: Result<T, impl Error>) {
        let Err(error) = result else { panic!("{label}: expected an error") };
        let text = without_port(&error.to_string());
        writeln!(self.0, "## {label}\n{text}").unwrap();
        let mut source = error.source();
        while let Some(cause) = source {
            if !is_own(cause) {
                // The list omits the messages of other crates' errors, because they may change. The error's own
                // message must not repeat them.
                assert!(!text.contains(&cause.to_string()), "{text} repeats {cause}");
                writeln!(self.0, "source: (text of another library)").unwrap();
                break;
            }
            writeln!(self.0, "source: {cause}").unwrap();
            source = cause.source();
        }
        self.0.push('\n');
    }

    #[track_caller]
    pub(crate) fn panic<T>(&mut self, label: &str, build: impl FnOnce() -> T) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(build)) else { panic!("{label}: expected a panic") };
        let text = match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(other) => other.downcast_ref::<&str>().expect("expected a message").to_string(),
        };
        assert!(text.starts_with("tollgate: "), "{text}");
        writeln!(self.0, "## {label}\npanic: {text}\n").unwrap();
    }

    /// Adds the status, the relevant headers and the body of a response.
    pub(crate) async fn response(&mut self, label: &str, response: Response) {
        let (parts, body) = response.into_parts();
        writeln!(self.0, "## {label}\n{}", parts.status).unwrap();
        for name in ["retry-after", "grpc-status", "grpc-message", "grpc-retry-pushback-ms", "content-type"] {
            if let Some(value) = parts.headers.get(name) {
                writeln!(self.0, "{name}: {}", value.to_str().unwrap()).unwrap();
            }
        }
        let body = body.collect().await.unwrap().to_bytes();
        if !body.is_empty() {
            writeln!(self.0, "{}", std::str::from_utf8(&body).unwrap()).unwrap();
        }
        self.0.push('\n');
    }
}

/// Replaces the port of a test server, because it differs in each run.
fn without_port(text: &str) -> String {
    const BEFORE: &str = "127.0.0.1:";
    let Some(start) = text.find(BEFORE).map(|at| at + BEFORE.len()) else { return text.to_owned() };
    let digits = text[start..].chars().take_while(char::is_ascii_digit).count();
    format!("{}PORT{}", &text[..start], &text[start + digits..])
}

/// Returns whether this crate defines the error and therefore controls its text.
fn is_own(cause: &(dyn Error + 'static)) -> bool {
    cause.is::<QuotaError>() || cause.is::<ParseQuotaError>() || cause.is::<PolicyError>() || cause.is::<CidrError>()
}
