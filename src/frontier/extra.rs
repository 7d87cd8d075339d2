//! Optional fields of a request, in compact form: millions of requests with them may be queued.

use std::time::Duration;

use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::request::Request;
use crate::base::ids::ScopeId;
use crate::base::keys::UrlKey;
use crate::base::records::Records;
use crate::base::scopes::{ScopeEntry, Scopes};
use crate::wire::proxy::Route;

/// Optional fields of a request.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Fields as bytes, labelled by [`Label`].
    records: Records,
    /// The caller's JSON.
    pub meta: Option<Box<RawValue>>,
    /// Its proxy or none, if the request sets that.
    pub route: Option<Box<Route>>,
}

/// Flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// AutoThrottle ignores the latency of the reply.
    pub dont_adjust_delay: bool,
    /// Fetched without checking robots.txt.
    pub ignore_robots: bool,
    /// No links are extracted from its page.
    pub dont_follow: bool,
    /// It and the targets of its redirects skip the duplicate check and the filters.
    pub dont_filter: bool,
    /// Sends no stored cookies, and stores none from its reply.
    pub dont_merge_cookies: bool,
}

/// Expected costs of a request, in those scopes of its lane for which it has one.
pub type Costs = SmallVec<[(ScopeId, f64); 2]>;

/// Label of a record. The state on disk has these numbers: none is changed or used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Label {
    /// The caller's number.
    Tag = 0,
    /// The first attempt of its chain of retries and redirects.
    Root = 1,
    /// The method; absent for GET.
    Method = 2,
    /// A header field: its name, NUL, its value.
    Field = 3,
    /// The name of a header field that is sent to its origin only.
    Private = 4,
    /// It is sent without the credentials among `DEFAULT_REQUEST_HEADERS`.
    WithoutCredentials = 5,
    /// The body.
    Body = 6,
    /// Maximum time of its fetch, in nanoseconds.
    Timeout = 7,
    /// Maximum size of its body, in bytes.
    BodyMax = 8,
    /// Its scopes are known, and their records follow. The value is their [`Origin`].
    Scopes = 9,
    /// The name of a scope.
    ScopeName = 10,
    /// The expected cost in the scope of the previous record.
    ScopeCost = 11,
    /// Scopes of its lane by number, each with the expected cost. The lane's reference keeps the numbers
    /// valid.
    Costs = 12,
    /// The key of a URL that redirected to this one.
    RedirectedFrom = 13,
    /// The origin whose robots.txt this fetch is for.
    RobotsFor = 14,
    /// Depth of the sitemap: number of sitemaps that led to it.
    Nesting = 15,
    /// Its header fields hold for its origin.
    SharedFields = 16,
}

/// Source of a request's known scopes. The numbers are those of the state on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Origin {
    /// The request named them: they apply to its redirects, too, and are unordered.
    Request = 0,
    /// A late answer of the scope map, ordered.
    Mapped = 1,
    /// A late answer of the scope map, unordered.
    MappedUnordered = 2,
}

impl Label {
    /// Those of records that can be stored: all but [`Label::Costs`] and [`Label::RobotsFor`], whose
    /// numbers are valid in one process only.
    const STORED: [Label; 15] = [
        Label::Tag,
        Label::Root,
        Label::Method,
        Label::Field,
        Label::Private,
        Label::WithoutCredentials,
        Label::Body,
        Label::Timeout,
        Label::BodyMax,
        Label::Scopes,
        Label::ScopeName,
        Label::ScopeCost,
        Label::RedirectedFrom,
        Label::Nesting,
        Label::SharedFields,
    ];

    /// The label of a record that can be stored.
    fn stored(number: u8) -> Option<Label> {
        let mut labels = Self::STORED.into_iter();
        labels.find(|label| *label as u8 == number)
    }

    /// Whether a record with this label can have this value.
    fn allows(self, value: &[u8]) -> bool {
        match self {
            Label::Tag | Label::Root | Label::Timeout | Label::BodyMax | Label::Nesting => {
                value.len() <= size_of::<u64>()
            }
            Label::Method | Label::Field | Label::Private | Label::ScopeName => {
                std::str::from_utf8(value).is_ok()
            }
            Label::WithoutCredentials | Label::SharedFields => value.is_empty(),
            Label::Body => true,
            Label::Scopes => matches!(value, [] | [1 | 2]),
            Label::ScopeCost => value.len() == size_of::<f64>(),
            Label::RedirectedFrom => value.len() == size_of::<u64>(),
            Label::Costs | Label::RobotsFor => false,
        }
    }
}

/// Bytes of a scope's number and its cost in [`Label::Costs`].
const COST_BYTES: usize = size_of::<u32>() + size_of::<f64>();

impl Flags {
    /// The flags of a request.
    pub fn of(request: &Request) -> Self {
        Flags {
            dont_adjust_delay: request.dont_adjust_delay,
            ignore_robots: request.ignore_robots,
            dont_follow: request.dont_follow,
            dont_filter: request.dont_filter,
            dont_merge_cookies: request.dont_merge_cookies,
        }
    }
}

impl Extra {
    /// Optional fields of a request, if it has any.
    pub fn of(request: &Request) -> Option<Box<Extra>> {
        let mut records = Records::default();
        if request.tag != 0 {
            records.push_number(Label::Tag as u8, request.tag);
        }
        if !request.method.is_empty() {
            records.push(Label::Method as u8, request.method.as_bytes());
        }
        if let Some(timeout) = request.timeout {
            let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            records.push_number(Label::Timeout as u8, nanos);
        }
        if let Some(bytes) = request.body_max {
            records.push_number(Label::BodyMax as u8, bytes);
        }
        if request.sitemap != 0 {
            records.push_number(Label::Nesting as u8, request.sitemap.into());
        }
        for (name, value) in &request.headers {
            records.push(Label::Field as u8, [name, "\0", value].concat().as_bytes());
        }
        if request.dont_send_credentials {
            records.push(Label::WithoutCredentials as u8, &[]);
        }
        if request.headers_for_host {
            records.push(Label::SharedFields as u8, &[]);
        }
        for name in &request.private_headers {
            records.push(Label::Private as u8, name.as_bytes());
        }
        if !request.body.is_empty() {
            records.push(Label::Body as u8, &request.body);
        }
        let mut extra = Extra {
            records,
            meta: request.meta.clone(),
            route: request.route.clone().map(Box::new),
        };
        if let Some(names) = &request.scopes {
            let costs = request.scope_costs.iter().copied().map(Some);
            let costs = costs.chain(std::iter::repeat(None));
            let names = names.iter().map(String::as_str);
            extra.push_scopes(Origin::Request, names.zip(costs));
        }
        let has_own = extra.records != Records::default() || extra.meta.is_some();
        (has_own || extra.route.is_some()).then(|| Box::new(extra))
    }

    /// The records that can be stored, with their labels: all that do not name things by numbers of this
    /// process.
    pub(crate) fn stored_records(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let records = self.records.iter();
        records.filter(|(label, _)| Label::stored(*label).is_some())
    }

    /// Bytes of everything that is stored.
    pub(crate) fn stored_bytes(&self) -> usize {
        let records: usize = self.stored_records().map(|(_, value)| value.len()).sum();
        records + self.meta.as_ref().map_or(0, |meta| meta.get().len())
    }

    /// From stored records, as [`encode`](crate::base::records::encode) appends them. `None` if one is
    /// incomplete, has a label that is not stored, or a value that the label does not allow.
    pub(crate) fn from_stored(
        records: &[u8],
        meta: Option<Box<RawValue>>,
        route: Option<Box<Route>>,
    ) -> Option<Self> {
        let records = Records::from_encoded(records)?;
        let is_valid = |(label, value): (u8, &[u8])| {
            Label::stored(label).is_some_and(|label| label.allows(value))
        };
        let are_valid = records.iter().all(is_valid);
        are_valid.then_some(Extra {
            records,
            meta,
            route,
        })
    }

    /// Whether it has fields that the result line does not have. (The line has the method and the
    /// caller's JSON.)
    pub fn has_more_than_line(&self) -> bool {
        let records = [
            Label::Tag,
            Label::Field,
            Label::Private,
            Label::WithoutCredentials,
            Label::Body,
            Label::Timeout,
            Label::BodyMax,
        ];
        self.route.is_some()
            || self.origin_of_scopes() == Some(Origin::Request)
            || (self.records.iter())
                .any(|(label, _)| records.iter().any(|known| *known as u8 == label))
    }

    /// The caller's number; 0 by default.
    pub fn tag(&self) -> u64 {
        self.number(Label::Tag).unwrap_or(0)
    }

    /// Sets the caller's number.
    pub fn set_tag(&mut self, tag: u64) {
        self.set_number(Label::Tag, tag);
    }

    /// The first attempt of its chain of retries and redirects; `None` if it is the first.
    pub fn root(&self) -> Option<u64> {
        self.number(Label::Root)
    }

    /// Sets the first attempt of its chain.
    pub fn set_root(&mut self, root: u64) {
        self.set_number(Label::Root, root);
    }

    /// The method, if it is not GET.
    pub fn method(&self) -> Option<&str> {
        self.records.get(Label::Method as u8).map(text)
    }

    /// Its own header fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.records.all(Label::Field as u8);
        fields.filter_map(|field| text(field).split_once('\0'))
    }

    /// Names of its own header fields that are sent to its origin only.
    pub fn private_headers(&self) -> impl Iterator<Item = &str> {
        self.records.all(Label::Private as u8).map(text)
    }

    /// Whether it is sent without the credentials among `DEFAULT_REQUEST_HEADERS`.
    pub fn is_without_credentials(&self) -> bool {
        self.records.get(Label::WithoutCredentials as u8).is_some()
    }

    /// Whether its header fields hold for its origin.
    pub fn has_shared_fields(&self) -> bool {
        self.records.get(Label::SharedFields as u8).is_some()
    }

    /// Adds the header fields of a request of the same origin that hold for it, but for those that describe its body.
    pub fn share_fields(&mut self, of: &Extra) {
        if !of.has_shared_fields() {
            return;
        }
        for label in [Label::Field, Label::Private, Label::SharedFields] {
            for value in of.records.all(label as u8) {
                let name = text(value).split_once('\0').map_or("", |(name, _)| name);
                // RFC 9110, section 8.
                let start = name.get(..CONTENT.len()).unwrap_or_default();
                if label != Label::Field || !start.eq_ignore_ascii_case(CONTENT) {
                    self.records.push(label as u8, value);
                }
            }
        }
    }

    /// It goes to another origin: drops the header fields whose names `is_private` names, or all if they hold for the
    /// origin that it leaves.
    pub fn leave_origin(&mut self, is_private: impl Fn(&str) -> bool) {
        let drops_all = self.has_shared_fields();
        self.records.remove(Label::SharedFields as u8);
        self.retain_fields(|name| !drops_all && !is_private(name));
    }

    /// Keeps only the header fields whose names satisfy `is_wanted`.
    pub fn retain_fields(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.records.retain(|label, value| {
            let name = || text(value).split_once('\0').map_or("", |(name, _)| name);
            label != Label::Field as u8 || is_wanted(name())
        });
    }

    /// The body; empty means none.
    pub fn body(&self) -> &[u8] {
        self.records.get(Label::Body as u8).unwrap_or_default()
    }

    /// Changes it to a GET without a body.
    pub fn become_get(&mut self) {
        self.records.remove(Label::Method as u8);
        self.records.remove(Label::Body as u8);
    }

    /// Timeout of its fetch, if the request sets one.
    pub fn timeout(&self) -> Option<Duration> {
        self.number(Label::Timeout).map(Duration::from_nanos)
    }

    /// Maximum size of its body, if the request sets one.
    pub fn body_max(&self) -> Option<u64> {
        self.number(Label::BodyMax)
    }

    /// The scopes that are known without a call of the scope map: named by the request, or returned by
    /// an earlier call.
    pub fn scopes(&self) -> Option<Scopes> {
        let origin = self.origin_of_scopes()?;
        let entries = self.scope_entries().map(|(name, cost)| ScopeEntry {
            name: name.to_owned(),
            cost,
        });
        let scopes: Scopes = entries.collect();
        Some(match origin {
            Origin::Mapped => scopes,
            // A request names a set: none of the scopes is more specific than the others.
            Origin::Request | Origin::MappedUnordered => scopes.unordered(),
        })
    }

    /// The scopes that the request named, and the expected costs that it gave.
    pub fn own_named_scopes(&self) -> Option<(Vec<String>, Vec<f64>)> {
        (self.origin_of_scopes()? == Origin::Request).then(|| {
            let names = self.scope_entries().map(|(name, _)| name.to_owned());
            let costs = self.scope_entries().map_while(|(_, cost)| cost);
            (names.collect(), costs.collect())
        })
    }

    /// Copies the scopes that another request named.
    pub fn share_scopes(&mut self, other: &Extra) {
        if let Some((names, _)) = other.own_named_scopes() {
            self.forget_scopes();
            let names = names.iter().map(|name| (name.as_str(), None));
            self.push_scopes(Origin::Request, names);
        }
    }

    /// Stores a late answer of the scope map.
    pub fn set_mapped(&mut self, scopes: &Scopes) {
        let origin = match scopes.is_ordered() {
            true => Origin::Mapped,
            false => Origin::MappedUnordered,
        };
        self.forget_scopes();
        let entries = scopes.entries().iter();
        let entries = entries.map(|entry| (entry.name.as_str(), entry.cost));
        self.push_scopes(origin, entries);
    }

    /// Drops the answer of the scope map, so that it is called again.
    pub fn forget_mapped(&mut self) {
        if self.origin_of_scopes() != Some(Origin::Request) {
            self.forget_scopes();
        }
    }

    /// Its expected costs, in those scopes of its lane for which it has one.
    pub fn costs(&self) -> Costs {
        let costs = self.records.get(Label::Costs as u8).unwrap_or_default();
        let costs = costs.chunks_exact(COST_BYTES).map(|cost| {
            let (id, cost) = cost.split_at(size_of::<u32>());
            (ScopeId(u32::from_le_bytes(array(id))), units(cost))
        });
        costs.collect()
    }

    /// Sets its expected costs.
    pub fn set_costs(&mut self, costs: &[(ScopeId, f64)]) {
        self.records.remove(Label::Costs as u8);
        if !costs.is_empty() {
            let bytes = costs.iter().flat_map(|(id, cost)| {
                let (id, cost) = (id.0.to_le_bytes(), cost.to_le_bytes());
                id.into_iter().chain(cost)
            });
            self.records
                .push(Label::Costs as u8, &bytes.collect::<Vec<u8>>());
        }
    }

    /// Whether the URL with this key redirected to it, directly or through others.
    pub fn was_redirected_from(&self, UrlKey(key): UrlKey) -> bool {
        let mut keys = self.records.all(Label::RedirectedFrom as u8);
        keys.any(|other| other == key.to_le_bytes())
    }

    /// Adds the key of a URL that redirected to it.
    pub fn add_redirected_from(&mut self, UrlKey(key): UrlKey) {
        self.records
            .push(Label::RedirectedFrom as u8, &key.to_le_bytes());
    }

    /// The origin whose robots.txt this fetch is for; after a redirect, not the origin of its URL.
    pub fn robots_for(&self) -> Option<u32> {
        let origin = self.number(Label::RobotsFor)?;
        Some(u32::try_from(origin).expect("set from a u32"))
    }

    /// Sets the origin whose robots.txt this fetch is for.
    pub fn set_robots_for(&mut self, origin: u32) {
        self.set_number(Label::RobotsFor, origin.into());
    }

    /// Nesting of a sitemap; 0 for a page.
    pub fn nesting(&self) -> u32 {
        let nesting = self.number(Label::Nesting).unwrap_or(0);
        u32::try_from(nesting).unwrap_or(u32::MAX)
    }

    /// Sets the nesting of a sitemap.
    pub fn set_nesting(&mut self, nesting: u32) {
        self.set_number(Label::Nesting, nesting.into());
    }

    fn number(&self, label: Label) -> Option<u64> {
        self.records.number(label as u8)
    }

    fn set_number(&mut self, label: Label, number: u64) {
        self.records.remove(label as u8);
        self.records.push_number(label as u8, number);
    }

    fn origin_of_scopes(&self) -> Option<Origin> {
        let all = [Origin::Request, Origin::Mapped, Origin::MappedUnordered];
        let origin = self.number(Label::Scopes)?;
        all.into_iter().find(|known| *known as u64 == origin)
    }

    fn push_scopes<'a>(
        &mut self,
        origin: Origin,
        entries: impl Iterator<Item = (&'a str, Option<f64>)>,
    ) {
        self.records.push_number(Label::Scopes as u8, origin as u64);
        for (name, cost) in entries {
            self.records.push(Label::ScopeName as u8, name.as_bytes());
            if let Some(cost) = cost {
                self.records
                    .push(Label::ScopeCost as u8, &cost.to_le_bytes());
            }
        }
    }

    fn scope_entries(&self) -> impl Iterator<Item = (&str, Option<f64>)> {
        let records = self.records.iter();
        let mut records = records
            .skip_while(|(label, _)| *label != Label::ScopeName as u8)
            .peekable();
        std::iter::from_fn(move || {
            let (_, name) = records.next_if(|(label, _)| *label == Label::ScopeName as u8)?;
            let cost = records.next_if(|(label, _)| *label == Label::ScopeCost as u8);
            Some((text(name), cost.map(|(_, cost)| units(cost))))
        })
    }

    fn forget_scopes(&mut self) {
        for label in [Label::Scopes, Label::ScopeName, Label::ScopeCost] {
            self.records.remove(label as u8);
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("bytes written from a str")
}

fn units(bytes: &[u8]) -> f64 {
    f64::from_le_bytes(array(bytes))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("written with this length")
}

/// How the names of fields begin that describe a body.
const CONTENT: &str = "content-";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::records::encode;
    use crate::frontier::job::Job;
    use crate::wire::url::CrawlUrl;

    fn of(request: &Request) -> Extra {
        *Extra::of(request).expect("it has optional fields")
    }

    /// Checks that a request is unchanged by being queued.
    fn check(request: Request) {
        let url = CrawlUrl::parse(&request.url).expect("a URL");
        let job = Job {
            kind: request.kind(),
            extra: Extra::of(&request),
            flags: Flags::of(&request),
            ..Job::seed(1, url)
        };
        assert_eq!(format!("{:?}", job.to_request()), format!("{request:?}"));
    }

    #[test]
    fn fields_round_trip() {
        let get = || Request::get("http://a.test/");
        assert!(Extra::of(&get()).is_none(), "it has a URL only");
        check(get());
        check(get().tag(u64::MAX));
        check(get().meta("mine").header("A", "b:\tc").header("a", ""));
        check(Request::post("http://a.test/", vec![0, 255]).body_max(0));
        check(get().timeout(Duration::from_micros(1)).body_max(u64::MAX));
        check(get().without_scopes());
        check(get().scope_cost("x", 0.1).scope("y"));
        check(get().without_proxy());
        check(get().proxy("http://p.test:1".parse().expect("a proxy")));
        check(get().dont_adjust_delay().ignore_robots());
        check(get().dont_follow().dont_filter().dont_merge_cookies());
        check(Request {
            sitemap: 2,
            ..get().tag(1)
        });
        check(get().private_header("A", "b").dont_send_credentials());
        check(get().private_header("A", "b").headers_for_host());
        let all = get().tag(1).meta(2).header("A", "b").scope_cost("x", 3.0);
        check(all.timeout(Duration::from_secs(4)).without_proxy());
    }

    #[test]
    fn forget_mapped_drops_scopes_of_the_map_and_keeps_those_of_the_request() {
        let mapped = Scopes::from([("x", 2.5), ("y", 1.0)]);
        let mut extra = of(&Request::get("http://a.test/").tag(1));
        extra.set_mapped(&mapped);
        assert_eq!(extra.scopes(), Some(mapped.clone()));
        let unordered = mapped.unordered();
        extra.set_mapped(&unordered);
        assert_eq!(extra.scopes(), Some(unordered));
        assert_eq!(extra.own_named_scopes(), None);
        extra.forget_mapped();
        assert_eq!((extra.scopes(), extra.tag()), (None, 1));
        let mut own = of(&Request::get("http://a.test/").scope("z"));
        own.forget_mapped();
        assert_eq!(own.scopes(), Some(Scopes::from("z").unordered()));
        extra.share_scopes(&own);
        assert_eq!(extra.scopes(), own.scopes());
    }

    #[test]
    fn set_costs_replaces_earlier_costs() {
        let mut extra = Extra::default();
        for costs in [&[(ScopeId(7), 0.5), (ScopeId(u32::MAX), 3.0)][..], &[]] {
            extra.set_costs(costs);
            assert_eq!(&extra.costs()[..], costs);
        }
    }

    /// The records that are stored, in their stored form.
    fn stored(extra: &Extra) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (label, value) in extra.stored_records() {
            encode(label, value, &mut bytes);
        }
        bytes
    }

    #[test]
    fn records_with_numbers_of_the_process_are_not_stored() {
        let request = Request::post("http://a.test/", "x").tag(7);
        let mut extra = of(&request.scope_cost("s", 2.5).header("A", "b"));
        extra.add_redirected_from(UrlKey(9));
        let before = stored(&extra);
        extra.set_costs(&[(ScopeId(1), 1.0)]);
        extra.set_robots_for(3);
        assert_eq!(stored(&extra), before);
        let again = Extra::from_stored(&before, None, None).expect("valid");
        assert_eq!((again.robots_for(), again.costs().len()), (None, 0));
        extra.set_costs(&[]);
        extra.records.remove(Label::RobotsFor as u8);
        assert_eq!(again.records, extra.records);
    }

    #[test]
    fn a_stored_record_has_a_known_label_and_a_valid_value() {
        let check = |label: u8, value: &[u8], is_valid: bool| {
            let mut bytes = Vec::new();
            encode(label, value, &mut bytes);
            let read = Extra::from_stored(&bytes, None, None);
            assert_eq!(read.is_some(), is_valid, "{label} {value:?}");
        };
        check(Label::Tag as u8, &[1; 8], true);
        check(Label::Tag as u8, &[1; 9], false);
        check(Label::Method as u8, b"PUT", true);
        check(Label::Method as u8, &[0xff], false);
        check(Label::WithoutCredentials as u8, &[], true);
        check(Label::WithoutCredentials as u8, &[0], false);
        check(Label::Body as u8, &[0xff], true);
        check(Label::Scopes as u8, &[2], true);
        check(Label::Scopes as u8, &[3], false);
        check(Label::ScopeCost as u8, &[0; 8], true);
        check(Label::ScopeCost as u8, &[0; 7], false);
        check(Label::RedirectedFrom as u8, &[0; 9], false);
        check(Label::Costs as u8, &[0; COST_BYTES], false);
        check(Label::RobotsFor as u8, &[1], false);
        check(Label::SharedFields as u8, &[], true);
        check(Label::SharedFields as u8, &[0], false);
        check(Label::SharedFields as u8 + 1, &[], false);
        assert!(Extra::from_stored(&[0, 1], None, None).is_none());
    }

    #[test]
    fn sizes_are_as_documented() {
        assert_eq!(size_of::<Extra>(), 40);
        assert_eq!(size_of::<Job>(), 88);
    }
}
