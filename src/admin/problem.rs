//! The router's errors, as `application/problem+json` (RFC 9457).

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};

use crate::backend::Error;
use crate::limiter::SetQuotaError;

#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem { status, detail: detail.into() }
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn no_endpoint() -> Problem {
        Problem::not_found(
            "there is no such endpoint; the endpoints are GET /page, /policies, /top, /limited, /blocks and /key, and POST \
             /reset, /credit, /block, /unblock, /quota, /enforcement and /key",
        )
    }

    pub(super) fn wrong_method() -> Problem {
        let detail = "this endpoint requires a different method; the `Allow` header lists its methods";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    }

    pub(super) fn unauthorized() -> Problem {
        let detail = "this request is not authorized; send your token or sign in";
        Problem::new(StatusCode::UNAUTHORIZED, detail)
    }

    pub(super) fn forbidden(operator: &str) -> Problem {
        Problem::new(
            StatusCode::FORBIDDEN,
            format!("{operator} has read-only access; sign in as an operator who can make changes"),
        )
    }

    pub(super) fn cross_site() -> Problem {
        let detail = "this request comes from a page on another origin; use the router's own page";
        Problem::new(StatusCode::FORBIDDEN, detail)
    }

    pub(super) fn not_json() -> Problem {
        let detail = "expected a JSON object with the header `Content-Type: application/json`";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("the backend failed: {error}"))
    }
}

impl From<SetQuotaError> for Problem {
    fn from(error: SetQuotaError) -> Problem {
        match error {
            SetQuotaError::Quota(error) => Problem::invalid(error.to_string()),
            SetQuotaError::TooMany => Problem::new(StatusCode::CONFLICT, error.to_string()),
            SetQuotaError::Backend(error) => Problem::from(error),
        }
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Problem {
        Problem::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Problem {
        Problem::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem { status, detail } = self;
        let title = status.canonical_reason().unwrap_or("Error");
        let body = serde_json::json!({ "title": title, "status": status.as_u16(), "detail": detail }).to_string();
        let mut response = (status, body).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
