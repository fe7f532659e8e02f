//! The code that replaces @convex-dev/rate-limiter.

use tollgate::{HOUR, LimitError, MINUTE, Policy, Quota, RateLimiter, Subject};

static SEND_MESSAGE: Policy = Policy::new("sendMessage", Quota::token_bucket(10, MINUTE).capacity(3));
static SIGN_UP: Policy = Policy::new("signUp", Quota::fixed_window(100, HOUR));

pub async fn send(limiter: &RateLimiter, user: &str, text: &str) -> Result<(), LimitError> {
    // The charge is refunded if this function returns early, for example because storing fails.
    let charge = limiter.acquire(&SEND_MESSAGE, user).hold().await?;
    insert_message(user, text).await;
    charge.into_receipt();
    Ok(())
}

pub async fn sign_up(limiter: &RateLimiter, name: &str) -> Result<(), LimitError> {
    limiter.limit(&SIGN_UP, Subject::anonymous()).await?;
    insert_user(name).await;
    Ok(())
}

async fn insert_message(_user: &str, _text: &str) {}

async fn insert_user(_name: &str) {}
