//! Route tables, which find the target of a request and record which lines were used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use http::Method;
use http::request::Parts;

use crate::policy::nearest;

#[derive(Debug, Default)]
pub(super) struct Table {
    routes: HashMap<String, Methods>,
    /// The prefixes of lines that end with a wildcard, from longest to shortest: `/a/` for the line `/a/{*rest}`.
    wildcards: Vec<(String, Methods)>,
    /// Each line, and whether any request has matched it.
    lines: Vec<(String, AtomicBool)>,
    unmatched: AtomicU64,
}

/// A route's entries by method. `None` stands for all methods.
type Methods = HashMap<Option<Method>, Entry>;

/// The indexes of a target and of the line that names it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    target: usize,
    line: usize,
}

impl Table {
    pub(super) fn add(&mut self, line: &str, target: usize) -> Result<(), String> {
        let (method, route) = parse_line(line)?;
        let entry = Entry { target, line: self.lines.len() };
        if self.routes.entry(route.to_owned()).or_default().insert(method, entry).is_some() {
            return Err("occurs twice in the table; remove one of the lines".into());
        }
        self.lines.push((line.to_owned(), AtomicBool::new(false)));
        Ok(())
    }

    /// Builds the lookup tables. Call this method after the last line has been added.
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
        let wildcards =
            wildcards.map(|(route, methods)| (route[..=route.rfind('/').unwrap_or(0)].to_owned(), methods.clone()));
        self.wildcards = wildcards.collect();
        self.wildcards.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        self
    }

    /// Returns the index of the target for the request's method and route or path, or `None` if no line matches.
    pub(super) fn target(&self, parts: &Parts) -> Option<usize> {
        let (route, path) = route_and_path(parts);
        let exact = path.and_then(|path| self.routes.get(path));
        let matched = route.and_then(|route| self.routes.get(route));
        let wildcards = |path: Option<_>| path.into_iter().flat_map(|path| self.wildcards_above(path));
        let mut lines = exact.into_iter().chain(wildcards(path)).chain(matched).chain(wildcards(route));
        let Some(Entry { target, line }) = lines.find_map(|methods| entry(methods, &parts.method)) else {
            self.unmatched.fetch_add(1, Relaxed);
            return None;
        };
        // The flag is written only once, so that threads can keep sharing its cache line.
        let is_used = &self.lines[*line].1;
        if !is_used.load(Relaxed) {
            is_used.store(true, Relaxed);
        }
        Some(*target)
    }

    /// Returns the entries of the wildcard lines that cover a path or a route, from the longest prefix to the shortest.
    fn wildcards_above<'t>(&'t self, path: &str) -> impl Iterator<Item = &'t Methods> {
        let is_above = move |prefix: &str| path.len() > prefix.len() && path.starts_with(prefix);
        self.wildcards.iter().filter(move |(prefix, _)| is_above(prefix)).map(|(_, methods)| methods)
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

/// Returns the route that axum matched, and the path to compare with the lines. The path is `Some` if there is no axum
/// router or if the route ends with a wildcard, like tonic's routes. Both are `None` if an axum router found no route.
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

/// Parses a line into an optional method and a route. The error completes a sentence that begins with the line.
pub(crate) fn parse_line(line: &str) -> Result<(Option<Method>, &str), String> {
    let (method, route) = match line.split_once(' ') {
        Some((method, route)) => (Some(parse_method(method)?), route.trim()),
        None => (None, line),
    };
    if !route.starts_with('/') || route.contains(' ') {
        return Err("has no route that begins with \"/\"; write \"POST /todos\" or \"/todos\"".into());
    }
    if route.contains(['?', '#']) {
        return Err("has a \"?\" or a \"#\", but routes match only the path; write just the path".into());
    }
    if route.split('/').any(|part| part.starts_with([':', '*'])) {
        return Err("would match no request; write \"{id}\" for \":id\", and \"{*rest}\" for \"*rest\"".into());
    }
    if route.matches('{').count() != route.matches('}').count() {
        return Err("has an unmatched brace; write a parameter as \"{id}\"".into());
    }
    Ok((method, route))
}

/// Parses an upper-case method. Unknown methods are accepted unless they look like typos.
fn parse_method(method: &str) -> Result<Method, String> {
    let known = match method.parse::<Method>() {
        Ok(known) if method.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'-')) => known,
        _ => {
            return Err(
                "has no valid method; write it in upper case, as in \"POST /todos\", or leave it out: \"/todos\""
                    .into(),
            );
        }
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
    fn methods_in_use_are_not_reported_as_typos() {
        // These are the methods in IANA's registry, and some unregistered methods that are in use.
        let registered = "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE \
            MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND \
            PROPPATCH PUT QUERY REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF \
            VERSION-CONTROL M-SEARCH NOTIFY PURGE SUBSCRIBE UNSUBSCRIBE";
        for method in registered.split_whitespace() {
            assert_eq!(parse_method(method).map(|known| known.to_string()), Ok(method.to_owned()));
        }
    }
}
