//! A web of many sites, as a table: what each serves, its robots.txt, and the requests of a polite
//! crawl.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Sites and the ports they are served on.
pub struct Web {
    pub http: u16,
    pub https: u16,
    pub sites: Vec<Site>,
}

/// A name, and what is behind it.
pub struct Site {
    pub name: &'static str,
    /// The last byte of its address, 127.0.0.x.
    pub address: u8,
    pub scheme: &'static str,
    /// `None`: there is no robots.txt.
    pub robots: Option<&'static str>,
    /// The Crawl-delay that binds us, in seconds.
    pub crawl_delay: f64,
    pub pages: Vec<Page>,
    /// Lines for the site's server in nginx's configuration.
    pub server: &'static str,
    /// A crawl begins here.
    pub is_seed: bool,
}

/// Something a site has, or is asked for.
pub struct Page {
    pub path: String,
    /// The file nginx reads; `None` where its configuration alone answers.
    pub source: Option<Vec<u8>>,
    /// The payload that arrives, content codings removed; `None`: not compared.
    pub served: Option<Vec<u8>>,
    pub status: u16,
    /// How often a polite crawl asks for it.
    pub asked: usize,
}

impl Site {
    pub fn new(name: &'static str, scheme: &'static str, address: u8) -> Self {
        Site {
            name,
            address,
            scheme,
            robots: Some("User-agent: *\nDisallow: /private/\n"),
            crawl_delay: 0.0,
            pages: Vec::new(),
            server: "",
            is_seed: true,
        }
    }

    /// A page of links, fetched once.
    pub fn page(self, path: &str, links: &[&str]) -> Self {
        let html = html(path, links);
        self.file(path, html.as_bytes(), html.as_bytes())
    }

    /// A file, fetched once.
    pub fn file(mut self, path: &str, source: &[u8], served: &[u8]) -> Self {
        self.pages.push(Page {
            path: path.to_owned(),
            source: Some(source.to_vec()),
            served: Some(served.to_vec()),
            status: 200,
            asked: 1,
        });
        self
    }

    /// An answer of the server's own, such as a redirect, asked for so often.
    pub fn answer(mut self, path: &str, status: u16, asked: usize) -> Self {
        self.pages.push(Page {
            path: path.to_owned(),
            source: None,
            served: None,
            status,
            asked,
        });
        self
    }

    /// A page that exists and must never be asked for.
    pub fn bait(mut self, path: &str) -> Self {
        self = self.page(path, &[]);
        self.pages.last_mut().expect("just pushed").asked = 0;
        self
    }
}

impl Web {
    /// Where a site listens.
    pub fn port(&self, scheme: &str) -> u16 {
        match scheme {
            "https" => self.https,
            _ => self.http,
        }
    }

    /// `https://b.test/x` with the port that it is served on.
    pub fn url(&self, short: &str) -> String {
        let (scheme, rest) = short.split_once("://").expect("a URL");
        let at = rest.find('/').expect("a URL with a path");
        let (host, path) = rest.split_at(at);
        format!("{scheme}://{host}:{}{path}", self.port(scheme))
    }

    /// A file's text with the ports filled in.
    pub fn fill_in(&self, text: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(text) {
            Ok(text) => text
                .replace("$HTTPS", &self.https.to_string())
                .replace("$HTTP", &self.http.to_string())
                .into_bytes(),
            Err(_) => text.to_vec(),
        }
    }

    /// A seed a line, with a comment and a blank line among them.
    pub fn seeds(&self) -> String {
        let mut seeds = String::from("# where it begins\n\n");
        for site in self.sites.iter().filter(|site| site.is_seed) {
            let url = self.url(&format!("{}://{}/", site.scheme, site.name));
            writeln!(seeds, "{url}").expect("a string takes all");
        }
        seeds
    }

    /// How often a polite crawl asks for each URL, robots.txt left out; those it must not ask for too.
    pub fn asked(&self) -> BTreeMap<String, usize> {
        let mut asked = BTreeMap::new();
        for site in &self.sites {
            for page in &site.pages {
                asked.insert(self.url_of(site, page), page.asked);
            }
        }
        asked
    }

    pub fn url_of(&self, site: &Site, page: &Page) -> String {
        self.url(&format!("{}://{}{}", site.scheme, site.name, page.path))
    }

    /// The page behind a URL.
    pub fn page(&self, url: &str) -> Option<&Page> {
        let pages = self
            .sites
            .iter()
            .flat_map(|site| site.pages.iter().map(move |page| (site, page)));
        pages
            .filter(|(site, page)| self.url_of(site, page) == url)
            .map(|(_, page)| page)
            .next()
    }

    /// The delay that robots.txt asks for on a host.
    pub fn crawl_delay(&self, host: &str) -> f64 {
        let of_host = self.sites.iter().filter(|site| site.name == host);
        of_host.map(|site| site.crawl_delay).fold(0.0, f64::max)
    }

    /// Thirteen sites that differ in what they ask of a crawler, one that is no seed, and links among them.
    pub fn of_many_kinds(http: u16, https: u16) -> Self {
        let noise: Vec<u8> = (0..3_000_000u64).map(noise).collect();
        let text = html("/packed.html", &[]) + &"The same line again.\n".repeat(4_000);
        let sites = vec![
            Site::new("plain.test", "http", 1)
                .page(
                    "/",
                    &[
                        "/a.html",
                        "b.html#part",
                        "./c/../b.html",
                        "/private/x.html",
                        "/gone",
                        "http://slow.test:$HTTP/cgi-bin/x",
                        "http://closed.test:$HTTP/page.html",
                        "https://secure.test:$HTTPS/one.html",
                        "http://outside.test:$HTTP/",
                    ],
                )
                .page("/a.html", &["/b.html", "/", "/deep/1.html"])
                .page("/b.html", &["/private/y.html", "/robots.txt"])
                .page("/deep/1.html", &["2.html"])
                .page("/deep/2.html", &["../a.html?q=1"])
                .answer("/a.html?q=1", 200, 1)
                .answer("/gone", 404, 1)
                .bait("/private/x.html")
                .bait("/private/y.html"),
            Site {
                robots: Some(
                    "User-agent: other\nDisallow: /\n\n\
                     User-agent: argiope\nCrawl-delay: 0.7\nDisallow: /cgi-bin/\n",
                ),
                crawl_delay: 0.7,
                ..Site::new("slow.test", "http", 1)
            }
            .page("/", &["/1.html", "/2.html", "/3.html", "/cgi-bin/x"])
            .page("/1.html", &[])
            .page("/2.html", &[])
            .page("/3.html", &[])
            .bait("/cgi-bin/x"),
            Site {
                robots: None,
                ..Site::new("free.test", "http", 2)
            }
            .page("/", &["/private/x.html", "/y.html", "/lost", "mailto:x@y"])
            .page("/private/x.html", &[])
            .page("/y.html", &["http://plain.test:$HTTP/private/x.html"])
            .answer("/lost", 404, 1),
            Site {
                robots: Some("User-agent: *\nDisallow: /\n"),
                ..Site::new("closed.test", "http", 2)
            }
            .bait("/")
            .bait("/page.html"),
            Site {
                server: "location = /robots.txt { return 503; }",
                ..Site::new("broken.test", "http", 2)
            }
            .bait("/"),
            Site {
                robots: None,
                server: "location / { return 301 https://$host:$HTTPS$request_uri; }",
                ..Site::new("upgrade.test", "http", 3)
            }
            .answer("/", 301, 1),
            Site {
                robots: Some("User-agent: *\nDisallow: /private/\n"),
                is_seed: false,
                ..Site::new("upgrade.test", "https", 3)
            }
            .page("/", &["/in.html", "/private/x.html"])
            .page("/in.html", &["http://upgrade.test:$HTTP/"])
            .bait("/private/x.html"),
            Site {
                server: "location = /old { return 301 /new; }
                    location = /chain { return 302 /chain2; }
                    location = /chain2 { return 307 /new2; }
                    location = /loop { return 301 /loop; }
                    location = /off { return 302 /private/x.html; }
                    location = /sick { return 503; }
                    location = /away { return 302 https://secure.test:$HTTPS/landing.html; }",
                ..Site::new("moved.test", "http", 3)
            }
            .page(
                "/",
                &["/old", "/chain", "/loop", "/off", "/sick", "/away", "/new2"],
            )
            .page("/new", &[])
            .page("/new2", &[])
            .answer("/old", 301, 1)
            .answer("/chain", 302, 1)
            .answer("/chain2", 307, 1)
            .answer("/loop", 301, 1)
            .answer("/off", 302, 1)
            .answer("/away", 302, 1)
            // Twice more, as RETRY_TIMES says.
            .answer("/sick", 503, 3)
            .bait("/private/x.html"),
            Site {
                server: "location = /slow.html { limit_rate 100k; gzip off; }",
                ..Site::new("big.test", "http", 1)
            }
            .page("/", &["/noise.bin", "/slow.html", "/packed.html"])
            .file("/noise.bin", &noise, &noise)
            .file("/slow.html", &noise[..150_000], &noise[..150_000])
            .file("/packed.html", text.as_bytes(), text.as_bytes()),
            Site {
                server: "ssi on; location = /bare.html { gzip off; }",
                ..Site::new("pieces.test", "http", 1)
            }
            .file(
                "/",
                b"<a href=/bare.html>bare</a> on <!--# echo var=\"host\" -->",
                b"<a href=/bare.html>bare</a> on pieces.test",
            )
            .file(
                "/bare.html",
                b"<p>In pieces on <!--# echo var=\"host\" -->, and not packed.",
                b"<p>In pieces on pieces.test, and not packed.",
            ),
            Site {
                robots: Some("User-agent: Argiope\nCrawl-delay: 0.5\nDisallow: /two.html$\n"),
                crawl_delay: 0.5,
                ..Site::new("secure.test", "https", 2)
            }
            .page("/", &["/one.html", "/two.html", "/three.html"])
            .page("/one.html", &["http://plain.test:$HTTP/"])
            .page("/three.html", &[])
            .page("/landing.html", &[])
            .bait("/two.html"),
            Site {
                server: "keepalive_requests 1;",
                ..Site::new("remade.test", "https", 3)
            }
            .page("/", &["/1.html", "/2.html", "/3.html", "/4.html"])
            .page("/1.html", &[])
            .page("/2.html", &[])
            .page("/3.html", &[])
            .page("/4.html", &[]),
            Site {
                server: "keepalive_requests 3;",
                ..Site::new("short.test", "https", 3)
            }
            .page("/", &["/1.html", "/2.html", "/3.html", "/4.html"])
            .page("/1.html", &[])
            .page("/2.html", &[])
            .page("/3.html", &[])
            .page("/4.html", &[]),
            Site {
                robots: Some(
                    "User-agent: *\nDisallow: /*.pdf$\nDisallow: /docs/\nAllow: /docs/free\n",
                ),
                ..Site::new("alias.test", "http", 1)
            }
            .page(
                "/",
                &[
                    "/x.pdf",
                    "/x.pdf.html",
                    "/docs/free.html",
                    "/docs/paid.html",
                ],
            )
            .page("/x.pdf.html", &[])
            .page("/docs/free.html", &[])
            .bait("/x.pdf")
            .bait("/docs/paid.html"),
            Site {
                is_seed: false,
                ..Site::new("outside.test", "http", 2)
            }
            .bait("/"),
        ];
        Web { http, https, sites }
    }

    /// One site, whose twelve pages take half a second each.
    pub fn of_slow_pages(http: u16, https: u16) -> Self {
        let pages: Vec<String> = (0..12).map(|page| format!("/{page}.bin")).collect();
        let links: Vec<&str> = pages.iter().map(String::as_str).collect();
        let body: Vec<u8> = (0..50_000).map(noise).collect();
        let site = Site {
            server: "limit_rate 100k;",
            ..Site::new("slow.test", "http", 1)
        }
        .page("/", &links);
        let site = links
            .iter()
            .fold(site, |site, path| site.file(path, &body, &body));
        let sites = vec![site];
        Web { http, https, sites }
    }

    /// Sites that are alike, each of so many pages, and one that is slow to answer.
    pub fn of_many_pages(http: u16, https: u16) -> Self {
        let names = ["one.test", "two.test", "three.test", "four.test"];
        let pages: Vec<String> = (0..40).map(|page| format!("/{page}.html")).collect();
        let links: Vec<&str> = pages.iter().map(String::as_str).collect();
        let mut sites: Vec<Site> = names
            .into_iter()
            .map(|name| {
                let all = [&links[..], &["/private/x.html"]].concat();
                let site = Site::new(name, "http", 1).page("/", &all);
                let site = links.iter().fold(site, |site, path| site.page(path, &[]));
                site.bait("/private/x.html")
            })
            .collect();
        let body: Vec<u8> = (0..400_000).map(noise).collect();
        sites.push(
            Site {
                server: "limit_rate 100k;",
                robots: None,
                ..Site::new("slow.test", "http", 2)
            }
            .file("/", &body, &body),
        );
        Web { http, https, sites }
    }
}

fn html(path: &str, links: &[&str]) -> String {
    let mut html = format!("<!doctype html><title>{path}</title>\n");
    for link in links {
        writeln!(html, "<a href=\"{link}\">{link}</a>").expect("a string takes all");
    }
    html
}

/// Bytes that no coding makes smaller.
fn noise(n: u64) -> u8 {
    let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .to_be_bytes()[0]
}
