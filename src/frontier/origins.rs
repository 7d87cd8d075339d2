//! Origins by number: scheme, host, port and route, with the state of each one's robots.txt.

use std::hash::BuildHasher;

use hashbrown::{HashMap, HashTable};

use super::hosts::HostId;
use super::robots::RobotsState;
use crate::base::chunked::ChunkedVec;
use crate::base::ids::LaneId;
use crate::base::secret::Secret;
use crate::wire::proxy::Route;
use crate::wire::url::CrawlUrl;

/// Table of origins. Numbers of forgotten ones are reused.
#[derive(Debug)]
pub(super) struct Origins {
    origins: ChunkedVec<Origin>,
    free: Vec<u32>,
    /// First origin of each host, by the host's number, or `NONE`: most hosts have one.
    first: ChunkedVec<u32>,
    /// The other origins.
    table: HashTable<u32>,
    /// Routes other than the settings'. A proxy may answer in an origin's name, so each route has a
    /// robots.txt of its own.
    routes: HashMap<u32, Route, Secret>,
    hasher: Secret,
}

/// One origin. Its host's name is in the table of hosts.
#[derive(Debug)]
pub(super) struct Origin {
    pub robots: RobotsState,
    /// Lanes that fetch from it, and other holders of its number.
    pub users: u32,
    /// Its first lane, or `NO_LANE`: most origins have one.
    pub lane: LaneId,
    pub host: HostId,
    port: u16,
    https: bool,
    /// It is in the queue of origins kept without lanes.
    pub kept: bool,
}

/// No origin has this number.
const NONE: u32 = u32::MAX;
/// No lane has this number.
pub(super) const NO_LANE: LaneId = LaneId(u32::MAX);

impl Origins {
    /// Creates an empty table. `secret` keys its hash tables.
    pub fn new(secret: &Secret) -> Self {
        Origins {
            origins: ChunkedVec::new(),
            free: Vec::new(),
            first: ChunkedVec::new(),
            table: HashTable::new(),
            routes: HashMap::with_hasher(*secret),
            hasher: *secret,
        }
    }

    /// Returns the number of a URL's origin, adding it if it is new, and whether it is. `route`: one other
    /// than the settings'.
    pub fn origin(&mut self, url: &CrawlUrl, host: HostId, route: Option<&Route>) -> (u32, bool) {
        let key = (host, url.port(), url.is_https());
        self.first.grow_to(host.0 as usize + 1, || NONE);
        let first = self.first[host.0 as usize];
        if first != NONE && self.key(first) == (key, route) {
            return (first, false);
        }
        let hash = self.hasher.hash_one((key, route));
        if let Some(id) = self.table.find(hash, |id| self.key(*id) == (key, route)) {
            return (*id, false);
        }
        let origins = &mut self.origins;
        let origin = Origin {
            robots: RobotsState::Unknown,
            users: 0,
            lane: NO_LANE,
            host,
            port: key.1,
            https: key.2,
            kept: false,
        };
        let id = match self.free.pop() {
            Some(id) => {
                origins[id as usize] = origin;
                id
            }
            None => {
                origins.push(origin);
                u32::try_from(origins.len() - 1).expect("at most 2^32 origins are held")
            }
        };
        if let Some(route) = route {
            self.routes.insert(id, route.clone());
        }
        if first == NONE {
            self.first[host.0 as usize] = id;
        } else {
            let (origins, routes) = (&self.origins, &self.routes);
            let key = |id: &u32| (origins[*id as usize].key(), routes.get(id));
            self.table
                .insert_unique(hash, id, |id| self.hasher.hash_one(key(id)));
        }
        (id, true)
    }

    fn key(&self, id: u32) -> (Key, Option<&Route>) {
        let route = match self.routes.is_empty() {
            true => None,
            false => self.routes.get(&id),
        };
        (self.origins[id as usize].key(), route)
    }

    /// The numbers of all origins of a host and port, one for each route.
    pub fn numbers_of(&self, key: Key) -> Vec<u32> {
        let mut numbers = Vec::new();
        let first = self.first_of(key.0);
        if first != NONE && self.origins[first as usize].key() == key {
            numbers.push(first);
        }
        let hash = self.hasher.hash_one((key, None::<&Route>));
        let is_it = |id: &u32| self.key(*id) == (key, None);
        numbers.extend(self.table.find(hash, is_it));
        let routed = self.routes.keys().copied();
        numbers.extend(routed.filter(|id| self.origins[*id as usize].key() == key && *id != first));
        numbers
    }

    /// Number of the origin of a host that was used first.
    pub fn first_number(&self, host: HostId) -> Option<u32> {
        Some(self.first_of(host)).filter(|first| *first != NONE)
    }

    /// Whether it is reached by a route other than the settings'.
    pub fn has_route(&self, id: u32) -> bool {
        self.routes.contains_key(&id)
    }

    pub fn get(&self, id: u32) -> &Origin {
        &self.origins[id as usize]
    }

    pub fn get_mut(&mut self, id: u32) -> &mut Origin {
        &mut self.origins[id as usize]
    }

    /// Number of a host's first origin, or `NONE`. Used to read memory ahead, see
    /// [`super::lanes::Frontier::touch`].
    pub fn first_of(&self, host: HostId) -> u32 {
        let first = self.first.get(host.0 as usize);
        first.copied().unwrap_or(NONE)
    }

    /// The host of each origin.
    #[cfg(test)]
    pub fn hosts(&self) -> impl Iterator<Item = HostId> {
        let ids = (0..self.origins.len() as u32).filter(|id| !self.free.contains(id));
        ids.map(|id| self.get(id).host)
    }

    /// Removes an unused origin and returns its host; `None` if it was removed before.
    pub fn forget(&mut self, id: u32) -> Option<HostId> {
        let hash = self.hasher.hash_one(self.key(id));
        let origin = &mut self.origins[id as usize];
        origin.robots = RobotsState::Unknown;
        let host = origin.host;
        let first = &mut self.first[host.0 as usize];
        if *first == id {
            *first = NONE;
        } else if let Ok(entry) = self.table.find_entry(hash, |other| *other == id) {
            entry.remove();
        } else {
            return None;
        }
        if !self.routes.is_empty() {
            self.routes.remove(&id);
        }
        self.free.push(id);
        Some(host)
    }
}

/// Host, port, and whether the scheme is https.
pub(super) type Key = (HostId, u16, bool);

impl Origin {
    /// Whether the scheme is https, and the port.
    pub fn scheme_and_port(&self) -> (bool, u16) {
        (self.https, self.port)
    }

    fn key(&self) -> Key {
        (self.host, self.port, self.https)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_origin_takes_32_bytes() {
        assert_eq!(size_of::<Origin>(), 32);
    }

    #[test]
    fn an_origin_is_scheme_host_and_port_and_a_forgotten_number_is_reused() {
        let mut origins = Origins::new(&Secret::from_seed(1));
        let mut id = |url: &str, host: u32| {
            let url = CrawlUrl::parse(url).expect("a URL");
            origins.origin(&url, HostId(host), None).0
        };
        let a = id("http://a.test/x", 0);
        assert_eq!(id("http://a.test:80/y", 0), a);
        let others = [
            id("https://a.test/", 0),
            id("http://a.test:81/", 0),
            id("http://b.test/", 1),
        ];
        assert_eq!(others, [1, 2, 3]);
        assert_eq!(origins.forget(a), Some(HostId(0)));
        assert_eq!(origins.forget(a), None);
        let url = CrawlUrl::parse("http://c.test/").expect("a URL");
        assert_eq!(origins.origin(&url, HostId(2), None), (a, true));
        let url = CrawlUrl::parse("http://a.test/").expect("a URL");
        assert_eq!(origins.origin(&url, HostId(0), None), (4, true));
        let url = CrawlUrl::parse("https://a.test/").expect("a URL");
        assert_eq!(
            origins.origin(&url, HostId(0), None),
            (1, false),
            "not the host's first"
        );
        origins.forget(1);
        origins.forget(1);
        assert_eq!(origins.free, [1]);
    }

    #[test]
    fn each_route_to_an_origin_has_its_own_number_until_eviction() {
        let mut origins = Origins::new(&Secret::from_seed(1));
        let url = CrawlUrl::parse("http://a.test/").expect("a URL");
        let proxy = |text: &str| Route::Proxy(Arc::new(text.parse().expect("a proxy")));
        let routes = [
            None,
            Some(Route::Direct),
            Some(proxy("http://p.test:1")),
            Some(proxy("http://p.test:2")),
        ];
        let mut id = |route: &Option<Route>| origins.origin(&url, HostId(0), route.as_ref()).0;
        let all = [0, 1, 2, 3].map(|at| id(&routes[at]));
        assert_eq!(all, [0, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|at| id(&routes[at])), all);
        origins.forget(2);
        let route = routes[3].as_ref();
        assert_eq!(origins.origin(&url, HostId(0), route), (3, false));
        let other = CrawlUrl::parse("http://b.test/").expect("a URL");
        assert_eq!(origins.origin(&other, HostId(1), None), (2, true));
        assert_eq!(origins.routes.len(), 2);
    }
}
