//! A table of routes: its lines, which of them apply to a request, and which of them were ever used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use http::Method;
use http::request::Parts;

use crate::policy::nearest;

/// The lines of a table, and the policies that they name.
#[derive(Debug, Default)]
pub(super) struct Table {
    routes: HashMap<String, Methods>,
    /// The lines that end with a wildcard, the longest first: `/demo.Greeter/` of `/demo.Greeter/{*rest}`.
    below: Vec<(String, Methods)>,
    lines: Vec<(String, AtomicBool)>,
    /// Requests that no line applies to.
    unmatched: AtomicU64,
}

/// The entries of a route by method; `None` = all methods.
type Methods = HashMap<Option<Method>, Entry>;

/// The number of a policy, and of the line that names it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    policy: usize,
    line: usize,
}

impl Table {
    /// Adds a line that names the policy of this number.
    pub(super) fn add(&mut self, line: &str, policy: usize) -> Result<(), String> {
        let (method, route) = parse_line(line)?;
        let entry = Entry { policy, line: self.lines.len() };
        if self.routes.entry(route.to_owned()).or_default().insert(method, entry).is_some() {
            return Err("has two lines in the table; leave one out".into());
        }
        self.lines.push((line.to_owned(), AtomicBool::new(false)));
        Ok(())
    }

    /// To be called after the last line. A line for `/todos/` is also for `/todos`, and the other way around, unless the
    /// table has lines for both.
    pub(super) fn finish(mut self) -> Table {
        let others = self.routes.iter().filter_map(|(route, methods)| {
            let other = match route.strip_suffix('/') {
                Some("") => return None,
                Some(without) => without.to_owned(),
                None => format!("{route}/"),
            };
            (!self.routes.contains_key(&other)).then(|| (other, methods.clone()))
        });
        let others: Vec<_> = others.collect();
        self.routes.extend(others);
        let wildcards = self.routes.iter().filter(|(route, _)| is_wildcard(route));
        let below =
            wildcards.map(|(route, methods)| (route[..=route.rfind('/').unwrap_or(0)].to_owned(), methods.clone()));
        self.below = below.collect();
        self.below.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        self
    }

    /// The policy that a request falls under by the line for its method and its route or path, `None` if there is no such
    /// line.
    pub(super) fn policy(&self, parts: &Parts) -> Option<usize> {
        let (route, path) = route_and_path(parts);
        let exact = path.and_then(|path| self.routes.get(path));
        let is_below = |path: &str, prefix: &str| path.len() > prefix.len() && path.starts_with(prefix);
        let below = path.and_then(|path| self.below.iter().find(|(prefix, _)| is_below(path, prefix)));
        let matched = route.and_then(|route| self.routes.get(route));
        let mut lines = exact.into_iter().chain(below.map(|(_, methods)| methods)).chain(matched);
        let Some(Entry { policy, line }) = lines.find_map(|methods| entry(methods, &parts.method)) else {
            self.unmatched.fetch_add(1, Relaxed);
            return None;
        };
        // Written once, so that requests on other threads do not wait for the cache line.
        let is_used = &self.lines[*line].1;
        if !is_used.load(Relaxed) {
            is_used.store(true, Relaxed);
        }
        Some(*policy)
    }

    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|(_, is_used)| !is_used.load(Relaxed)).map(|(line, _)| line.as_str())
    }

    pub(super) fn unmatched(&self) -> u64 {
        self.unmatched.load(Relaxed)
    }
}

fn entry<'t>(methods: &'t Methods, method: &Method) -> Option<&'t Entry> {
    let mut entry = methods.get(&Some(method.clone()));
    if entry.is_none() && method == Method::HEAD {
        entry = methods.get(&Some(Method::GET));
    }
    entry.or_else(|| methods.get(&None))
}

/// The route that axum matched, and the path, if lines may name it: where no router of axum's saw the request, or its route
/// is for all paths below one. tonic has such a route for each service. A request that a router of axum's has no route
/// for has neither.
fn route_and_path(parts: &Parts) -> (Option<&str>, Option<&str>) {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        let route = parts.extensions.get::<axum::extract::MatchedPath>().map(|route| route.as_str());
        return (route, route.is_some_and(is_wildcard).then(|| original.path()));
    }
    (None, Some(parts.uri.path()))
}

fn is_wildcard(route: &str) -> bool {
    route.rsplit('/').next().is_some_and(|last| last.starts_with("{*"))
}

/// The method, unless a line of a table is for all of them, and the route; or why the line can never apply.
pub(crate) fn parse_line(line: &str) -> Result<(Option<Method>, &str), String> {
    let (method, route) = match line.split_once(' ') {
        Some((method, route)) => (Some(parse_method(method)?), route.trim()),
        None => (None, line),
    };
    if !route.starts_with('/') || route.contains(' ') {
        return Err("has no route; write \"POST /todos\" or \"/todos\"".into());
    }
    if route.contains(['?', '#']) {
        return Err("has a \"?\" or a \"#\", and routes match paths only; write the path only".into());
    }
    if route.split('/').any(|part| part.starts_with([':', '*'])) {
        return Err("would match no request; write \"{id}\" for \":id\", \"{*rest}\" for \"*rest\"".into());
    }
    if route.matches('{').count() != route.matches('}').count() {
        return Err("has a brace without its other half; write a parameter as \"{id}\"".into());
    }
    Ok((method, route))
}

/// Methods are told apart by their case, and clients send them in capitals. One that is not known is taken for a method
/// of the program's own, unless it is nearly the name of a known one.
fn parse_method(method: &str) -> Result<Method, String> {
    let known = match method.parse::<Method>() {
        Ok(known) if method.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'-')) => known,
        _ => return Err("has no valid method; write \"POST /todos\" or \"/todos\"".into()),
    };
    match nearest(method, METHODS) {
        Some(near) if near != method => Err(format!("has the method {method:?}; did you mean {near:?}?")),
        _ => Ok(known),
    }
}

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_methods_are_not_taken_for_misspelt_ones() {
        // IANA's registry of HTTP methods, and some that are in use without it.
        let registered = "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE \
            MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND \
            PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF \
            VERSION-CONTROL M-SEARCH NOTIFY PURGE SUBSCRIBE UNSUBSCRIBE";
        for method in registered.split_whitespace() {
            assert_eq!(parse_method(method).map(|known| known.to_string()), Ok(method.to_owned()));
        }
    }
}
