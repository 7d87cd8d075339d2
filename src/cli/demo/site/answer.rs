//! Answers of a host of the demo web: pages, rules, redirects, refusals.

use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::parts::gzip;
use argiope::testkit::http::{Reply, Request};

use super::{OPEN, Page, ROBOTS, RULES, Robots, Site, Temper, World, decoded, is_robots};

/// State of a host before a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// Number of requests, except for robots.txt.
    pub requests: usize,
    /// The time since the previous request of any kind.
    pub since: Option<Duration>,
}

/// Answer of a host to a request.
pub struct Answer {
    /// Time to the first byte.
    pub after: Duration,
    /// The reply; `None` resets the connection.
    pub reply: Option<Reply>,
    /// Kind of the reply, for the ledger.
    pub content: Content,
}

/// Content of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A page with links.
    Page,
    /// The rules of robots.txt.
    Rules,
    /// Any other content.
    Other,
}

impl Site {
    /// Answer of the host to a request.
    pub fn answer(&self, world: &World, request: &Request, before: Before) -> Answer {
        let mut chance = self.chance.fork(request.path());
        let after = self.latency.mul_f64(chance.range_f64(0.8, 1.2));
        let answer = |reply, content| Answer {
            after,
            reply,
            content,
        };
        let other = |status| answer(Some(plain(status)), Content::Other);
        if self.temper == Temper::Resetting {
            return answer(None, Content::Other);
        }
        let path = decoded(request.path());
        if is_robots(&path) {
            return self.answer_robots(world, &path, &answer);
        }
        let too_soon = match self.temper {
            Temper::Limiting(gap) => before.since.is_some_and(|since| since < gap),
            Temper::Busy => before.requests == 0,
            _ => false,
        };
        if too_soon {
            let reply = plain(429).field("Retry-After", 1);
            return answer(Some(reply), Content::Other);
        }
        let page = match path.as_str() {
            "/sitemap.xml" if self.sitemap => {
                let reply = self.sitemap(world);
                return answer(Some(reply), Content::Other);
            }
            "/sitemap-only" if self.sitemap => Some(Page::Plain),
            "/" => self.pages.first().copied(),
            _ if path.starts_with("/private/") => Some(Page::Plain),
            _ => path
                .strip_prefix("/page-")
                .or(path.strip_prefix("/moved-"))
                .and_then(|index| self.pages.get(index.parse::<usize>().ok()?))
                .copied(),
        };
        let page = match page {
            Some(Page::Moved) if path.starts_with("/moved-") => Page::Plain,
            Some(page) => page,
            None => Page::Missing,
        };
        match page {
            Page::Missing => other(404),
            Page::Failing => other(500),
            Page::Moved => {
                let target = path.replace("/page-", "/moved-");
                answer(Some(redirect(301, target)), Content::Other)
            }
            Page::Away => {
                let target = self.friends(world).next().unwrap_or(self);
                answer(Some(redirect(302, world.url(target, "/"))), Content::Other)
            }
            Page::Plain | Page::Gzip | Page::Chunked => {
                let mut reply = Reply::new(200)
                    .field("Content-Type", "text/html; charset=utf-8")
                    .body(self.html(world, &path, &mut chance));
                reply.is_chunked = page == Page::Chunked;
                let codings = request.header("Accept-Encoding").unwrap_or("");
                if page == Page::Gzip && codings.to_ascii_lowercase().contains("gzip") {
                    let body = gzip(&reply.body);
                    reply = reply.field("Content-Encoding", "gzip").body(body);
                }
                answer(Some(reply), Content::Page)
            }
        }
    }

    fn answer_robots(
        &self,
        world: &World,
        path: &str,
        answer: &dyn Fn(Option<Reply>, Content) -> Answer,
    ) -> Answer {
        match self.robots {
            Robots::Absent => answer(Some(plain(404)), Content::Other),
            Robots::Failing => answer(Some(plain(503)), Content::Other),
            Robots::Rules { moved: true, .. } if path == ROBOTS => {
                answer(Some(redirect(302, RULES.into())), Content::Other)
            }
            Robots::Rules { delay, .. } => {
                let mut text = format!(
                    "# {}\nUser-agent: unwelcome\nDisallow: /\n\n\
                     User-agent: *\nDisallow: /private/\nAllow: /private/open\n",
                    self.host()
                );
                if let Some(delay) = delay {
                    text += &format!("Crawl-delay: {}\n", delay.as_secs_f64());
                }
                if self.sitemap {
                    text += &format!("\nSitemap: {}\n", world.url(self, "/sitemap.xml"));
                }
                answer(Some(plain(200).body(text)), Content::Rules)
            }
        }
    }

    fn sitemap(&self, world: &World) -> Reply {
        let entry = |path| format!("<url><loc>{}</loc></url>\n", world.url(self, path));
        let urls = entry("/") + &entry("/sitemap-only");
        let space = "http://www.sitemaps.org/schemas/sitemap/0.9";
        Reply::new(200)
            .field("Content-Type", "application/xml")
            .body(format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"{space}\">\n{urls}</urlset>\n"
            ))
    }

    /// The HTML of a page: the home page links to all pages, each page to the home page, all of them to
    /// some other hosts and, if there are rules, to disallowed paths.
    fn html(&self, world: &World, path: &str, chance: &mut Rng) -> String {
        let mut links = vec!["/".to_owned()];
        if path == "/" {
            links = (1..self.pages.len())
                .map(|page| format!("/page-{page}"))
                .collect();
        }
        if matches!(self.robots, Robots::Rules { .. }) {
            links.push(format!("/private/{}", chance.below(100)));
            links.push(format!("/%70rivate/{}#bait", chance.below(100)));
        }
        if self.open {
            links.push(OPEN.to_owned());
        }
        links.extend(self.friends(world).map(|friend| world.url(friend, "/")));
        let items: String = links
            .iter()
            .map(|link| format!("<li><a href=\"{link}\">{link}</a></li>\n"))
            .collect();
        let words = 50 + chance.below(1500) as usize;
        let text: Vec<&str> = (0..words)
            .map(|_| WORDS[chance.below(WORDS.len() as u64) as usize])
            .collect();
        format!(
            "<!doctype html>\n<title>{host}{path}</title>\n<h1>{host}</h1>\n<ul>\n{items}</ul>\n<p>{}</p>\n",
            text.join(" "),
            host = self.host(),
        )
    }
}

fn plain(status: u16) -> Reply {
    Reply::new(status)
        .field("Content-Type", "text/plain")
        .body(format!("{status}\n"))
}

fn redirect(status: u16, target: String) -> Reply {
    plain(status).field("Location", target)
}

const WORDS: &[&str] = &[
    "web", "orb", "silk", "spoke", "spiral", "hub", "thread", "garden", "wait", "still", "dew",
    "moth", "signal", "centre", "wheel", "turn", "dusk", "anchor", "frame", "weave",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> World {
        World::draw(2000, 5, 1, 80)
    }

    fn request(site: &Site, path: &str) -> Request {
        Request {
            method: "GET".into(),
            target: path.into(),
            host: site.host(),
            ..Request::default()
        }
    }

    fn get(world: &World, site: &Site, path: &str, before: Before) -> Option<Reply> {
        site.answer(world, &request(site, path), before).reply
    }

    #[test]
    fn disallowed_paths_are_linked_and_recognised_in_every_spelling() {
        let world = world();
        let ruled = |site: &&Site| {
            site.temper == Temper::Usual
                && matches!(site.robots, Robots::Rules { moved: false, .. })
        };
        let site = world.sites().iter().find(ruled).expect("most are");
        let home = get(&world, site, "/", Before::default()).expect("a page");
        let text = String::from_utf8(home.body).expect("text");
        assert!(text.contains("\"/private/") && text.contains("\"/%70rivate/"));
        assert!(site.forbids("/private/1") && site.forbids("/%70rivate/1"));
        assert!(!site.forbids("/private/open") && !site.forbids("/") && !site.forbids(ROBOTS));
        let rules = get(&world, site, ROBOTS, Before::default()).expect("rules");
        let rules = String::from_utf8(rules.body).expect("text");
        assert!(rules.contains("User-agent: *\nDisallow: /private/\n"));
    }

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it() {
        let world = world();
        let (site, index) = world
            .sites()
            .iter()
            .filter(|site| site.temper == Temper::Usual)
            .find_map(|site| {
                let index = site.pages.iter().position(|page| *page == Page::Gzip)?;
                Some((site, index))
            })
            .expect("many are");
        let mut request = request(site, &format!("/page-{index}"));
        let mut body = |gzip| {
            let codings = if gzip { "gzip, br" } else { "br" };
            request.headers = vec![("accept-encoding".into(), codings.into())];
            let answer = site.answer(&world, &request, Before::default());
            answer.reply.expect("a reply").body
        };
        assert!(body(true).starts_with(&[0x1f, 0x8b]));
        assert!(body(false).starts_with(b"<!doctype"));
    }

    #[test]
    fn a_limiting_host_answers_429_to_short_gaps() {
        let world = world();
        let limiting = |site: &&Site| matches!(site.temper, Temper::Limiting(_));
        let site = world.sites().iter().find(limiting).expect("some are");
        let status = |millis| {
            let before = Before {
                requests: 1,
                since: Some(Duration::from_millis(millis)),
            };
            get(&world, site, "/", before).expect("a reply").code()
        };
        assert_eq!((status(299), status(701)), (429, 200));
    }
}
