#!/usr/bin/env python3
"""Whole crawls by Argiope and by other crawlers: processor time per page, and pages a second.

    cargo build --release
    tools/race.py [--hosts N] [--pages N] [--rounds N] [--peers NAME,...] [--small N] [--argiope FILE]
        [--before FILE] [-s NAME=VALUE]... [-b NAME=VALUE]... [--page-bytes N] [--identity]
        [--client-cores LIST] [--warc both|only|none] [--json FILE]

The sites: TLS 1.3, `hosts` hosts of `pages` pages of 60 kB, 15 kB as gzip, with 101 links each, which lead to
all pages of the site; a robots.txt that allows all. One nginx on one core, the client with all its threads on
the other, in a network namespace with loopback only. Each crawler gets the first page of each site, obeys
robots.txt, follows links within the site and writes a line for each page; `wget2` writes the pages instead.
Some write a WARC file, too.

Large pages, with and without helper threads, which may use the server's core as well:

    tools/race.py --hosts 20 --page-bytes 2000000 --warc only --peers "" --client-cores 0,1 \
        -s WORKERS=2 -b WORKERS=0

`-s` is a setting of both builds of Argiope, `-b` one of the build before only, which is the same build without
`--before`.

A crawl counts if the server's log has every page of every site. Order alternates from round to round; the
figures are medians, with the lowest and the highest. Slow peers crawl fewer hosts (`--small`).

Peers: `curl` (libcurl, fetches and inflates only: no links, no lines), `spider` (the Rust crate), `wget2`,
`aiohttp` (with uvloop, selectolax and warcio), `scrapy`, `crawlee` (Python). One that is not installed is left
out with a word.
"""

import argparse
import gzip
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import raw
from rotation import address
from speed.stage import CLIENT_CORE, ROOT, TLS_PORT, Run, Stage, Trouble, check_machine, enter_namespace, median

HERE = Path(__file__).resolve().parent / "race"
LINKS = 101
PAGE_BYTES = 60_000
# Of text of this many words gzip leaves a quarter.
WORDS = 200

NGINX = """
daemon off;
master_process off;
error_log {dir}/error.log;
pid {dir}/nginx.pid;
events {{ worker_connections 19900; multi_accept on; }}
http {{
    log_format page '$http_host$uri $status';
    access_log {dir}/access.log page buffer=256k flush=1s;
    default_type text/html;
    keepalive_requests 100000000;
    open_file_cache max=100;
    gzip_static on;
    ssl_certificate {dir}/leaf.pem;
    ssl_certificate_key {dir}/leaf.key;
    ssl_protocols TLSv1.3;
    ssl_session_tickets on;
    server {{
        listen 0.0.0.0:{tls_port} ssl backlog=4096;
        root {dir}/www;
    }}
}}
"""

SLOW = ("scrapy", "crawlee", "wget2")
WITH_WARC = ("argiope", "before", "spider", "aiohttp", "scrapy")


class Race(Stage):
    """nginx with the sites, and the crawlers."""

    nginx_conf = NGINX

    def __init__(self, options):
        super().__init__(options.argiope.parent, options.argiope)
        self.options = options
        self.client_cores = options.client_cores

    def make_pages(self):
        """The pages of every site: text of random words, and links to all pages in turn."""
        www = self.dir / "www"
        www.mkdir()
        (www / "robots.txt").write_text("User-agent: *\nAllow: /\n")
        draw = random.Random(1)
        words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 11))) for _ in range(WORDS)]
        weights = [1 / (rank + 8) for rank in range(WORDS)]
        for page in range(self.options.pages):
            data = page_text(page, self.options, draw, words, weights).encode()
            (www / f"p{page}").write_bytes(data)
            coded = gzip.compress(data, 6)
            if not self.options.identity:
                (www / f"p{page}.gz").write_bytes(coded)
        served = "not served" if self.options.identity else "served"
        print(f"a page: {len(data)} bytes, {len(coded)} as gzip, which is {served}, {LINKS} links", file=sys.stderr)

    def seeds(self, hosts):
        path = self.dir / f"seeds-{hosts}.txt"
        if not path.exists():
            path.write_text("".join(f"https://{address(host)}:{TLS_PORT}/p0\n" for host in range(hosts)))
        return path

    def race(self, name, hosts, with_warc):
        """A crawl by one of them, and what it cost."""
        log = self.dir / "access.log"
        began_at = log.stat().st_size if log.exists() else 0
        pages = hosts * self.options.pages
        out = self.dir / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        began = time.monotonic()
        run: Run = self.run(self.command(name, hosts, out, with_warc), pages, seconds=600)
        took = time.monotonic() - began
        time.sleep(1.5)
        self.check(log, began_at, hosts)
        return {"cost": run.user + run.system, "rate": pages / took, "memory": run.memory}

    def command(self, name, hosts, out, with_warc):
        seeds = self.seeds(hosts)
        if name in ("argiope", "before"):
            is_before = name == "before"
            binary = self.options.before if is_before and self.options.before else self.argiope
            command = [binary, "crawl", "--seeds", seeds, "--out", out, "--overwrite", "--quiet", "--follow",
                       "host", "--allow-net", "loopback", "--contact", "race@example.com", "--insecure",
                       *([] if with_warc else ["--no-warc"])]
            settings = ["DOWNLOAD_DELAY=0", "DOWNLOAD_DELAY_PER_SLOT=0", "CONCURRENT_REQUESTS=256",
                        *self.options.settings, *(self.options.settings_before if is_before else [])]
            return [*command, *(word for setting in settings for word in ("-s", setting))]
        if name == "curl":
            return [self.curl(), seeds, self.options.pages]
        if name == "wget2":
            # It would fetch style sheets as well, which do not exist.
            return ["wget2", "-q", "-i", seeds, "-r", "-l", "inf", "--ignore-tags=link/href", "--no-local-db",
                    "--no-check-certificate", "--max-threads=32", "-P", out]
        if name == "spider":
            return [self.spider(), seeds, out / "lines", *([out / "warc.gz"] if with_warc else [])]
        peer = [sys.executable, HERE / f"{name}_peer.py", seeds, out / "lines"]
        return [*peer, *([out / "warc.gz"] if with_warc else [])]

    def curl(self):
        program = self.dir / "curl_peer"
        if not program.exists():
            done = subprocess.run(["cc", "-O2", "-o", program, HERE / "curl_peer.c", "-lcurl"])
            if done.returncode:
                raise Trouble("libcurl's headers are missing: apt-get install libcurl4-openssl-dev")
        return program

    def spider(self):
        """Its own package, so that its crates are not among ours."""
        done = subprocess.run(["cargo", "build", "--release", "--quiet", "--manifest-path", HERE / "spider" /
                               "Cargo.toml", "--target-dir", ROOT / "target" / "race"])
        if done.returncode:
            raise Trouble("the peer with spider cannot be built")
        return ROOT / "target" / "race" / "release" / "spider_peer"

    def check(self, log, began_at, hosts):
        """Every page of every site was answered, by the server's log."""
        with open(log, "rb") as lines:
            lines.seek(began_at)
            seen = {line.split()[0] for line in lines if line.endswith(b" 200\n") and b"/p" in line}
        expected = hosts * self.options.pages
        if len(seen) != expected:
            raise Trouble(f"the server answered {len(seen)} pages of {expected}")


def page_text(page, options, draw, words, weights):
    """A page with 101 links, each in a paragraph. All values are quoted: wget2 reads no others."""
    pages, each = options.pages, options.page_bytes // LINKS
    out = [f"<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>Page {page}</title>\n"
           "<link rel=\"stylesheet\" href=\"/style.css\"><script>var a = 1;</script></head><body>\n"]
    length = len(out[0])
    for number in range(LINKS):
        target = f"/p{(page + number) % pages}" + (f"#part-{number}" if number >= pages else "")
        paragraph = f'<div class="item" id="i{number}"><p><a class="more" href="{target}">{draw.choice(words)}</a> '
        while length + len(paragraph) < (number + 1) * each:
            paragraph += " ".join(draw.choices(words, weights, k=8)) + draw.choice([" ", ", ", "</p>\n<p>", " <b>x</b> "])
        out.append(paragraph + "</p></div>\n")
        length += len(out[-1])
    return "".join(out) + "</body></html>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", type=int, default=100, help="hosts for slow peers")
    parser.add_argument("--peers", default="curl,spider,wget2,aiohttp,scrapy,crawlee")
    parser.add_argument("--argiope", type=Path, default=ROOT / "target" / "release" / "argiope")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--warc", choices=["both", "only", "none"], default="both")
    parser.add_argument("-s", dest="settings", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("-b", dest="settings_before", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("--page-bytes", type=int, default=PAGE_BYTES)
    parser.add_argument("--identity", action="store_true", help="serve the pages as they are, not as gzip")
    parser.add_argument("--client-cores", default=CLIENT_CORE, help="the cores of the client, as taskset takes them")
    parser.add_argument("--json", type=Path, help="where the raw results go: a file or a directory")
    options = parser.parse_args()
    check_machine()
    enter_namespace()
    peers = [peer for peer in options.peers.split(",") if peer]
    names = ["argiope", *(["before"] if options.before or options.settings_before else []), *peers]
    modes = {"both": [False, True], "only": [True], "none": [False]}[options.warc]
    entries = [(name, mode) for mode in modes for name in names if not mode or name in WITH_WARC]
    results = {entry: [] for entry in entries}
    with Race(options) as stage:
        for number in range(options.rounds):
            for entry in entries if number % 2 == 0 else entries[::-1]:
                name, with_warc = entry
                hosts = min(options.hosts, options.small) if name in SLOW else options.hosts
                try:
                    result = stage.race(name, hosts, with_warc)
                except Trouble as trouble:
                    print(f"round {number + 1}: {name}: {trouble}", file=sys.stderr)
                    continue
                results[entry].append(result)
                print(f"round {number + 1}: {label(entry)}: {result['cost']:.0f} µs, {result['rate']:.0f} pages/s, "
                      f"{result['memory']:.0f} MB", file=sys.stderr)
    for entry, rounds in results.items():
        if rounds:
            costs, rates = ([result[key] for result in rounds] for key in ("cost", "rate"))
            print(f"{label(entry)}: {median(costs):.0f} µs a page ({min(costs):.0f} to {max(costs):.0f}), "
                  f"{median(rates):.0f} pages/s ({min(rates):.0f} to {max(rates):.0f})")
    if options.json:
        seen = {f"{name}{'-warc' if with_warc else ''}-{key}": [[round(result[key], 2)] for result in rounds]
                for (name, with_warc), rounds in results.items() for key in ("cost", "rate", "memory") if rounds}
        raw.write(options.json, raw.header("race", options.rounds), argiope=raw.binary(options.argiope), seen=seen)


def label(entry):
    name, with_warc = entry
    return f"{name} with WARC" if with_warc else name


if __name__ == "__main__":
    main()
