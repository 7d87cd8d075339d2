//! nginx serving a [`Web`], and its access log.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde::Deserialize;

use super::web::{Site, Web};
use super::{Daemon, free_port};

/// nginx, at work.
pub struct Nginx {
    daemon: Daemon,
    folder: PathBuf,
    pub web: Web,
}

/// A line of nginx's log. Its times are those of its event loop, in milliseconds.
#[derive(Clone, Debug, Deserialize)]
pub struct Served {
    /// When the request was done.
    msec: f64,
    request_time: f64,
    pub host: String,
    pub port: u16,
    pub uri: String,
    pub status: u16,
    pub connection: u64,
    pub connection_requests: u64,
    pub agent: String,
    pub session_reused: String,
    pub protocol: String,
    pub from: String,
    pub at: String,
    pub bytes: u64,
}

impl Served {
    /// When the request arrived, in seconds of wall time.
    pub fn arrived(&self) -> f64 {
        self.msec - self.request_time
    }

    /// When nginx had handed over all of the reply.
    pub fn done(&self) -> f64 {
        self.msec
    }

    pub fn url(&self) -> String {
        let scheme = if self.protocol.is_empty() {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{}:{}{}", self.host, self.port, self.uri)
    }
}

impl Nginx {
    /// Serves a web on two free ports; `None` where there is no nginx.
    pub fn start(folder: &Path, web: impl Fn(u16, u16) -> Web) -> Option<Self> {
        let web = web(free_port(), free_port());
        certify(folder, &web);
        for site in &web.sites {
            write_site(folder, &web, site);
        }
        fs::write(folder.join("nginx.conf"), config(folder, &web)).expect("writable");
        let path = folder.to_str().expect("its path is text");
        let arguments = ["-p", path, "-c", "nginx.conf"];
        let address = ([127, 0, 0, 1], web.http).into();
        let daemon = Daemon::start("nginx", &arguments, folder, address)?;
        Some(Nginx {
            daemon,
            folder: folder.to_owned(),
            web,
        })
    }

    /// Waits until what was served so far is as wanted.
    pub fn wait_until(&self, is_wanted: impl Fn(&[Served]) -> bool) {
        for _ in 0..3000 {
            let text = fs::read_to_string(self.folder.join("access.log")).unwrap_or_default();
            // The last line may not be whole yet.
            let lines = text.lines().map(serde_json::from_str);
            let served: Vec<Served> = lines.map_while(Result::ok).collect();
            if is_wanted(&served) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("nginx did not serve what was waited for within 30 s");
    }

    /// Ends it; gives the web and what was asked of it, in order of arrival.
    pub fn end(self) -> (Web, Vec<Served>) {
        self.daemon.end();
        let text = fs::read_to_string(self.folder.join("access.log")).expect("nginx keeps a log");
        let mut served: Vec<Served> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .collect();
        served.sort_by(|a, b| a.arrived().total_cmp(&b.arrived()));
        (self.web, served)
    }
}

/// Writes the authority's certificate to `ca.pem`, and one for all names that it signed.
fn certify(folder: &Path, web: &Web) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    let names: Vec<String> = web.sites.iter().map(|site| site.name.to_owned()).collect();
    let params = CertificateParams::new(names).expect("names");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    fs::write(folder.join("ca.pem"), authority.pem()).expect("writable");
    fs::write(folder.join("site.pem"), certificate.pem()).expect("writable");
    fs::write(folder.join("site.key"), key.serialize_pem()).expect("writable");
}

fn root(folder: &Path, site: &Site) -> PathBuf {
    folder.join("www").join(site.scheme).join(site.name)
}

fn write_site(folder: &Path, web: &Web, site: &Site) {
    let root = root(folder, site);
    let write = |path: &str, content: &[u8]| {
        let file = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().expect("below the root")).expect("writable");
        fs::write(file, content).expect("writable");
    };
    fs::create_dir_all(&root).expect("writable");
    if let Some(robots) = site.robots {
        write("robots.txt", robots.as_bytes());
    }
    for page in &site.pages {
        let path = match page.path.as_str() {
            "/" => "/index.html",
            path => path,
        };
        if let Some(source) = &page.source {
            write(path, &web.fill_in(source));
        }
    }
}

fn config(folder: &Path, web: &Web) -> String {
    let folder_text = folder.to_str().expect("its path is text");
    let mut config = String::from(
        r#"daemon off;
master_process off;
pid $DIR/nginx.pid;
error_log $DIR/error.log info;
events { worker_connections 256; }
http {
    client_body_temp_path $DIR/body;
    proxy_temp_path $DIR/proxy;
    fastcgi_temp_path $DIR/fastcgi;
    uwsgi_temp_path $DIR/uwsgi;
    scgi_temp_path $DIR/scgi;
    types { text/html html; text/plain txt; application/octet-stream bin; }
    default_type text/html;
    gzip on;
    gzip_min_length 200;
    keepalive_timeout 30s;
    ssl_certificate $DIR/site.pem;
    ssl_certificate_key $DIR/site.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_cache shared:tls:1m;
    log_format seen escape=json '{"msec":$msec,"request_time":$request_time,"host":"$host",'
        '"port":$server_port,"uri":"$request_uri","status":$status,"connection":$connection,'
        '"connection_requests":$connection_requests,"agent":"$http_user_agent",'
        '"session_reused":"$ssl_session_reused","protocol":"$ssl_protocol",'
        '"from":"$remote_addr:$remote_port","at":"$server_addr:$server_port","bytes":$bytes_sent}';
    access_log $DIR/access.log seen;
"#,
    )
    .replace("$DIR", folder_text);
    let mut addresses: Vec<u8> = web.sites.iter().map(|site| site.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    for address in addresses {
        let (http, https) = (web.http, web.https);
        writeln!(
            config,
            "    server {{ listen 127.0.0.{address}:{http} default_server; \
             listen 127.0.0.{address}:{https} ssl default_server; return 444; }}"
        )
        .expect("a string takes all");
    }
    for site in &web.sites {
        let tls = if site.scheme == "https" { " ssl" } else { "" };
        writeln!(
            config,
            "    server {{\n        listen 127.0.0.{}:{}{tls};\n        server_name {};\n        root {};\n        {}\n    }}",
            site.address,
            web.port(site.scheme),
            site.name,
            root(folder, site).to_str().expect("its path is text"),
            String::from_utf8(web.fill_in(site.server.as_bytes())).expect("it was text"),
        )
        .expect("a string takes all");
    }
    config.push_str("}\n");
    config
}
