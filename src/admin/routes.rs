//! The resources of the control interface: methods, paths, parameters, and the right that each needs.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::admin::access::Permission;
use crate::admin::format::MetricsFormat;
use crate::admin::response::Response;
use crate::wire::http::InboundRequest;

/// A resource, by what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The page for browsers.
    Page,
    /// The process answers.
    Alive,
    /// The crawl sends requests.
    Ready,
    /// The description of the interface.
    Description,
    /// Counters, gauges and histograms, for scrapers.
    Metrics,
    /// Totals, rates, and the waits by cause.
    Status,
    /// The status, again and again.
    Events,
    /// Totals of the last hour.
    History,
    /// The metrics of a target of a probe.
    Probe,
    /// Scopes, sorted and filtered.
    Scopes,
    /// One scope with its pacing.
    Scope,
    /// The last decisions about the pace of a scope.
    Decisions,
    /// The longest queues.
    Queues,
    /// One host: its robots.txt, addresses, connections and health.
    Host,
    /// One URL: where it is, and what it waits for.
    Url,
    /// Stops departures.
    Pause,
    /// Resumes departures.
    Resume,
    /// Ends the crawl.
    Stop,
    /// Changes the settings of a scope.
    ChangeScope,
    /// Changes some settings of a scope.
    MergeScope,
    /// Forgets what was learned of a scope.
    ForgetScope,
    /// Sets the priority of a host.
    HostPriority,
    /// Cancels the requests of a scope.
    CancelScope,
    /// Closes the output files.
    Rotate,
    /// Adds seeds.
    AddSeeds,
    /// Hosts that were excluded by order.
    Exclusions,
    /// Excludes a host or a domain.
    Exclude,
    /// Withdraws that.
    Include,
    /// Limits of the crawl.
    Limits,
    /// Changes limits.
    ChangeLimits,
    /// Reads the configuration anew.
    Reload,
    /// Withdraws the settings that a scope was given.
    WithdrawScope,
    /// The level of the log.
    Log,
    /// Changes it.
    ChangeLog,
}

/// A method and a path.
#[derive(Debug)]
pub struct Route {
    /// GET, which HEAD is served by as well, POST, PUT, PATCH or DELETE.
    pub method: &'static str,
    /// The path; the segment `{name}` is a parameter.
    pub path: &'static str,
    /// Parameters of the query.
    pub parameters: &'static [&'static str],
    /// The right that it needs.
    pub permission: Permission,
    /// What it leads to.
    pub resource: Resource,
}

/// A request for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is asked for.
    pub resource: Resource,
    /// The right that it needs.
    pub permission: Permission,
    /// The parameter of the path, decoded; empty without one.
    pub name: String,
    /// The format of metrics that the client prefers.
    pub format: MetricsFormat,
    /// The parameters of the query, decoded, in order.
    query: Vec<(String, String)>,
}

impl Call {
    /// The resource that a request is for.
    ///
    /// # Errors
    /// The reply: there is no such path, or it has other methods or parameters.
    pub fn of(request: &InboundRequest) -> Result<Call, Response> {
        let method = match request.method.as_str() {
            "HEAD" => "GET",
            method => method,
        };
        let (path, query) = split(&request.target);
        let matching = ROUTES.iter().filter_map(|route| {
            let name = name_in(route.path, path)?;
            Some((route, name))
        });
        let matching: Vec<_> = matching.collect();
        if matching.is_empty() {
            let mut paths: Vec<&str> = Vec::new();
            for route in ROUTES {
                if !paths.contains(&route.path) {
                    paths.push(route.path);
                }
            }
            let message = format!("there is no {path} here; there is {}", paths.join(", "));
            return Err(Response::error(404, &message));
        }
        let found = matching.iter().find(|(route, _)| route.method == method);
        let Some((route, name)) = found else {
            let methods: Vec<&str> = matching.iter().map(|(route, _)| route.method).collect();
            let methods = methods.join(", ");
            let message = format!("{path} has the methods {methods}");
            return Err(Response::error(405, &message).with("Allow", methods));
        };
        Ok(Call {
            resource: route.resource,
            permission: route.permission,
            name: decoded(name).ok_or_else(|| Response::error(400, NOT_TEXT))?,
            format: format_for(request),
            query: parameters(query, route)?,
        })
    }

    /// The call for the status.
    pub fn status() -> Call {
        Call {
            resource: Resource::Status,
            permission: Permission::Read,
            name: String::new(),
            format: MetricsFormat::default(),
            query: Vec::new(),
        }
    }

    /// The value of a parameter of the query; the last one if it is given several times.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut given = self.query.iter().rev();
        let (_, value) = given.find(|(key, _)| key == name)?;
        Some(value)
    }
}

/// All routes.
pub const ROUTES: &[Route] = &[
    get("/", &[], Permission::Read, Resource::Page),
    get("/healthz", &[], Permission::None, Resource::Alive),
    get("/readyz", &[], Permission::None, Resource::Ready),
    get(
        "/v1/openapi.json",
        &[],
        Permission::Read,
        Resource::Description,
    ),
    get("/metrics", &[], Permission::Read, Resource::Metrics),
    get(
        "/probe",
        // A blackbox exporter has the others as well: two have no effect here, and the last has its own answer.
        &["target", "module", "debug", "hostname"],
        Permission::Read,
        Resource::Probe,
    ),
    get("/v1/status", &[], Permission::Read, Resource::Status),
    get("/v1/events", &[], Permission::Read, Resource::Events),
    get("/v1/history", &[], Permission::Read, Resource::History),
    get(
        "/v1/scopes",
        &["sort", "state", "match", "limit"],
        Permission::Read,
        Resource::Scopes,
    ),
    get("/v1/scopes/{name}", &[], Permission::Read, Resource::Scope),
    get(
        "/v1/scopes/{name}/decisions",
        &["limit"],
        Permission::Read,
        Resource::Decisions,
    ),
    get(
        "/v1/queues",
        &["match", "limit"],
        Permission::Read,
        Resource::Queues,
    ),
    get("/v1/hosts/{name}", &[], Permission::Read, Resource::Host),
    get("/v1/urls/{name}", &[], Permission::Read, Resource::Url),
    order("PUT", "/v1/scopes/{name}", Resource::ChangeScope),
    order("PUT", "/v1/hosts/{name}/priority", Resource::HostPriority),
    order("PATCH", "/v1/scopes/{name}", Resource::MergeScope),
    order("POST", "/v1/scopes/{name}/forget", Resource::ForgetScope),
    order("DELETE", "/v1/scopes/{name}", Resource::WithdrawScope),
    order("POST", "/v1/scopes/{name}/cancel", Resource::CancelScope),
    order("POST", "/v1/pause", Resource::Pause),
    order("POST", "/v1/resume", Resource::Resume),
    order("POST", "/v1/stop", Resource::Stop),
    order("POST", "/v1/rotate", Resource::Rotate),
    order("POST", "/v1/seeds", Resource::AddSeeds),
    get(
        "/v1/exclusions",
        &[],
        Permission::Read,
        Resource::Exclusions,
    ),
    order("PUT", "/v1/exclusions/{name}", Resource::Exclude),
    order("DELETE", "/v1/exclusions/{name}", Resource::Include),
    get("/v1/limits", &[], Permission::Read, Resource::Limits),
    order("PUT", "/v1/limits", Resource::ChangeLimits),
    order("POST", "/v1/reload", Resource::Reload),
    get("/v1/log", &[], Permission::Read, Resource::Log),
    order("PUT", "/v1/log", Resource::ChangeLog),
];

/// The format of metrics that a client prefers.
fn format_for(request: &InboundRequest) -> MetricsFormat {
    let accept = request.headers.get_all("accept");
    let accept: Vec<Cow<'_, str>> = accept.map(String::from_utf8_lossy).collect();
    MetricsFormat::from_accept(&accept.join(","))
}

const fn get(
    path: &'static str,
    parameters: &'static [&'static str],
    permission: Permission,
    resource: Resource,
) -> Route {
    Route {
        method: "GET",
        path,
        parameters,
        permission,
        resource,
    }
}

const fn order(method: &'static str, path: &'static str, resource: Resource) -> Route {
    Route {
        method,
        path,
        parameters: &[],
        permission: Permission::Change,
        resource,
    }
}

/// Path and query of a target in origin or absolute form (RFC 9112 section 3.2).
fn split(target: &str) -> (&str, &str) {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    let target = target.split('#').next().unwrap_or_default();
    target.split_once('?').unwrap_or((target, ""))
}

/// The parameter in a path that fits the pattern, empty without one; `None` if it does not fit.
fn name_in<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("{name}") else {
        return (pattern == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The parameters of a query (the form encoding of HTML).
fn parameters(query: &str, route: &Route) -> Result<Vec<(String, String)>, Response> {
    let mut found = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let of_form = |text: &str| decoded(&text.replace('+', " "));
        let (Some(key), Some(value)) = (of_form(key), of_form(value)) else {
            return Err(Response::error(400, NOT_TEXT));
        };
        if !route.parameters.contains(&key.as_str()) {
            let message = match route.parameters {
                [] => format!("{} has no parameter {key:?}, nor any other", route.path),
                all => format!(
                    "{} has the parameters {}, not {key:?}",
                    route.path,
                    all.join(", ")
                ),
            };
            return Err(Response::error(400, &message));
        }
        found.push((key, value));
    }
    Ok(found)
}

fn decoded(text: &str) -> Option<String> {
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

const NOT_TEXT: &str = "the path or the query is not UTF-8 after percent-decoding";

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, target: &str) -> Result<Call, Response> {
        Call::of(&InboundRequest {
            method: method.to_owned(),
            target: target.to_owned(),
            ..InboundRequest::default()
        })
    }

    fn check(method: &str, target: &str, expected: Result<(Resource, &str), u16>) {
        let found = call(method, target);
        let found = match &found {
            Ok(call) => Ok((call.resource, call.name.as_str())),
            Err(response) => Err(response.status),
        };
        assert_eq!(found, expected, "{method} {target}");
    }

    #[test]
    fn a_path_leads_to_its_resource() {
        check("GET", "/", Ok((Resource::Page, "")));
        check("GET", "http://127.0.0.1:80", Ok((Resource::Page, "")));
        check("GET", "/healthz", Ok((Resource::Alive, "")));
        check("HEAD", "/healthz", Ok((Resource::Alive, "")));
        check("GET", "/v1/scopes", Ok((Resource::Scopes, "")));
        check("GET", "/v1/scopes/a.test", Ok((Resource::Scope, "a.test")));
        check(
            "GET",
            "/v1/scopes/a%2Fb%20c",
            Ok((Resource::Scope, "a/b c")),
        );
        check(
            "PUT",
            "/v1/scopes/a.test",
            Ok((Resource::ChangeScope, "a.test")),
        );
        check(
            "POST",
            "/v1/scopes/x/cancel",
            Ok((Resource::CancelScope, "x")),
        );
        check(
            "GET",
            "http://127.0.0.1:80/v1/status",
            Ok((Resource::Status, "")),
        );
    }

    #[test]
    fn a_request_without_a_resource_is_refused_with_the_reason() {
        check("GET", "/index.html", Err(404));
        check("GET", "/v1/scopes/", Err(404));
        check("GET", "/v1/scopes/a/b", Err(404));
        check("GET", "*", Err(404));
        check("DELETE", "/v1/status", Err(405));
        check("GET", "/v1/status?x=1", Err(400));
        let of_exporter = "/probe?module=http_2xx&debug=true&target=a.test";
        check("GET", of_exporter, Ok((Resource::Probe, "")));
        let named = "/probe?target=192.0.2.1&hostname=a.test";
        check("GET", named, Ok((Resource::Probe, "")));
        check("GET", "/probe?targets=a.test", Err(400));
        check("GET", "/v1/scopes/%ff", Err(400));
        let response = call("GET", "/x").expect_err("there is no such path");
        let listed = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(listed.matches("/v1/scopes/{name},").count(), 1, "{listed}");
        let response = call("POST", "/v1/scopes/a").expect_err("there is no such method");
        let allow = response.fields.iter().find(|(name, _)| *name == "Allow");
        assert_eq!(
            allow.map(|(_, value)| value.as_str()),
            Some("GET, PUT, PATCH, DELETE")
        );
    }

    #[test]
    fn the_page_and_its_events_need_the_right_to_read() {
        for target in ["/", "/v1/events", "/v1/history"] {
            let call = call("GET", target).expect("there is one");
            assert_eq!(call.permission, Permission::Read, "{target}");
        }
    }

    #[test]
    fn parameters_of_the_query_are_decoded() {
        let call = call("GET", "/v1/scopes?sort=sent&match=a%2Ab+c&limit=1&limit=2");
        let call = call.expect("it is sound");
        assert_eq!(call.parameter("sort"), Some("sent"));
        assert_eq!(call.parameter("match"), Some("a*b c"));
        assert_eq!(call.parameter("limit"), Some("2"));
        assert_eq!(call.parameter("other"), None);
    }
}
