//! Origins by number: scheme, host and port, and what is known of each one's robots.txt.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::hosts::HostId;
use super::robots::Standing;
use crate::base::chunked::ChunkedVec;
use crate::throttle::engine::LaneId;
use crate::wire::url::CrawlUrl;

/// All origins that are remembered. Numbers of forgotten ones are used again.
#[derive(Debug, Default)]
pub(super) struct Origins {
    origins: ChunkedVec<Origin>,
    free: Vec<u32>,
    /// One origin of each host, by the host's number, or `NONE`: most hosts have one.
    first: ChunkedVec<u32>,
    /// The others.
    table: HashTable<u32>,
    hasher: FixedState,
}

/// One origin. Its host's name is spelled out among the hosts.
#[derive(Debug)]
pub(super) struct Origin {
    pub robots: Standing,
    /// Lanes that fetch from it, and others who hold its number.
    pub users: u32,
    /// One of these, or `NO_LANE`: most origins have one.
    pub lane: LaneId,
    pub host: HostId,
    port: u16,
    https: bool,
    /// It is among those remembered without lanes.
    pub kept: bool,
}

/// No origin has this number.
const NONE: u32 = u32::MAX;
/// No lane has this number.
pub(super) const NO_LANE: LaneId = LaneId(u32::MAX);

impl Origins {
    /// The number of the origin of a URL, whose host is known.
    pub fn origin(&mut self, url: &CrawlUrl, host: HostId) -> u32 {
        let key = (host, url.port(), url.is_https());
        self.first.grow_to(host.0 as usize + 1, || NONE);
        let first = self.first[host.0 as usize];
        if first != NONE && self.origins[first as usize].key() == key {
            return first;
        }
        let hash = self.hasher.hash_one(key);
        let (origins, hasher) = (&mut self.origins, &self.hasher);
        let found = self
            .table
            .find(hash, |id| origins[*id as usize].key() == key);
        if let Some(id) = found {
            return *id;
        }
        let origin = Origin {
            robots: Standing::Unknown,
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
        if first == NONE {
            self.first[host.0 as usize] = id;
        } else {
            self.table
                .insert_unique(hash, id, |id| hasher.hash_one(origins[*id as usize].key()));
        }
        id
    }

    pub fn get(&self, id: u32) -> &Origin {
        &self.origins[id as usize]
    }

    pub fn get_mut(&mut self, id: u32) -> &mut Origin {
        &mut self.origins[id as usize]
    }

    /// The number of a host's first origin, or one that none has: read ahead, see
    /// [`super::lanes::Frontier::touch`].
    pub fn first_of(&self, host: HostId) -> u32 {
        let first = self.first.get(host.0 as usize);
        first.copied().unwrap_or(NONE)
    }

    /// Forgets an origin that nobody uses.
    pub fn forget(&mut self, id: u32) {
        let origin = &mut self.origins[id as usize];
        origin.robots = Standing::Unknown;
        let first = &mut self.first[origin.host.0 as usize];
        if *first == id {
            *first = NONE;
            return self.free.push(id);
        }
        let hash = self.hasher.hash_one(origin.key());
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == id) {
            entry.remove();
            self.free.push(id);
        }
    }
}

impl Origin {
    /// Whether it is https, and its port.
    pub fn scheme_and_port(&self) -> (bool, u16) {
        (self.https, self.port)
    }

    fn key(&self) -> (HostId, u16, bool) {
        (self.host, self.port, self.https)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_of_them_fit_into_32_megabytes() {
        assert_eq!(size_of::<Origin>(), 32);
    }

    #[test]
    fn scheme_host_and_port_make_an_origin_and_a_forgotten_ones_number_is_used_again() {
        let mut origins = Origins::default();
        let mut id = |url: &str, host: u32| {
            let url = CrawlUrl::parse(url).expect("a URL");
            origins.origin(&url, HostId(host))
        };
        let a = id("http://a.test/x", 0);
        assert_eq!(id("http://a.test:80/y", 0), a);
        let others = [
            id("https://a.test/", 0),
            id("http://a.test:81/", 0),
            id("http://b.test/", 1),
        ];
        assert_eq!(others, [1, 2, 3]);
        origins.forget(a);
        origins.forget(a);
        let url = CrawlUrl::parse("http://c.test/").expect("a URL");
        assert_eq!(origins.origin(&url, HostId(2)), a);
        let url = CrawlUrl::parse("http://a.test/").expect("a URL");
        assert_eq!(origins.origin(&url, HostId(0)), 4);
        let url = CrawlUrl::parse("https://a.test/").expect("a URL");
        assert_eq!(origins.origin(&url, HostId(0)), 1, "not the host's first");
        origins.forget(1);
        origins.forget(1);
        assert_eq!(origins.free, [1]);
    }
}
