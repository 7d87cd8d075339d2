#!/usr/bin/env python3
"""Cost of the control interface: processor time per page, pages a second and lateness of a crawl that is watched.

    cargo build --release
    tools/watched.py [--hosts N] [--pages N] [--rounds N] [--argiope FILE] [--client-cores LIST]

The crawls of tools/race.py (TLS, pages of 60 kB as gzip, one nginx on one core, the client on the other), in four
ways whose order alternates:

* unserved: the path of `control.sock` is too long for a socket, so that the crawl runs without it;
* served: no client is connected;
* watched: a browser's page is open (`/v1/events`), and `/metrics` is scraped once per second;
* scraped: 200 scrapes of `/metrics` a second.

The watchers run on the server's core. Figures are medians, with the lowest and the highest; the last column is the
median of each round's rate relative to that of the unserved crawl.
"""

import argparse
import http.client
import importlib.machinery
import json
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

from speed.stage import CLIENT_CORE, ROOT, Run, Trouble, check_machine, enter_namespace, median

# The folder of its peers has the same name.
race = importlib.machinery.SourceFileLoader("race_tool", str(Path(__file__).with_name("race.py"))).load_module()
WAYS = ("unserved", "served", "watched", "scraped")
# Longer than the 107 bytes of a socket's path.
LONG = "x" * 100


class Interface(http.client.HTTPConnection):
    """A connection to the control socket of a crawl."""

    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Watcher(threading.Thread):
    """Scrapes a crawl, and keeps its page open, until it ends."""

    def __init__(self, path, rate, has_page):
        super().__init__(daemon=True)
        self.path, self.rate, self.has_page = path, rate, has_page
        self.scrapes = self.events = 0
        self.is_over = threading.Event()

    def run(self):
        while not self.path.exists():
            if self.is_over.wait(0.005):
                return
        if self.has_page:
            threading.Thread(target=self.read_events, daemon=True).start()
        interface = Interface(self.path)
        began = time.monotonic()
        while not self.is_over.wait(max(0, began + self.scrapes / self.rate - time.monotonic())):
            try:
                interface.request("GET", "/metrics")
                reply = interface.getresponse()
                reply.read()
            except (OSError, http.client.HTTPException):
                return
            if reply.status == 200:
                self.scrapes += 1

    def read_events(self):
        interface = Interface(self.path)
        try:
            interface.request("GET", "/v1/events")
            for line in interface.getresponse():
                self.events += line.startswith(b"data:")
        except (OSError, http.client.HTTPException):
            return


class Watched(race.Race):
    """nginx with the sites, and a crawl that is watched or not."""

    def crawl(self, way):
        log = self.dir / "access.log"
        began_at = log.stat().st_size if log.exists() else 0
        out = self.dir / (LONG if way == "unserved" else "out")
        shutil.rmtree(out, ignore_errors=True)
        watcher = None
        if way in ("watched", "scraped"):
            watcher = Watcher(out / "control.sock", 200 if way == "scraped" else 1, way == "watched")
            watcher.start()
        pages = self.options.hosts * self.options.pages
        began = time.monotonic()
        run: Run = self.run(self.command("argiope", self.options.hosts, out, False), pages, seconds=600)
        took = time.monotonic() - began
        if watcher:
            watcher.is_over.set()
            watcher.join()
            if not watcher.scrapes or watcher.has_page != (watcher.events > 0):
                raise Trouble(f"{way}: {watcher.scrapes} scrapes, {watcher.events} events")
        time.sleep(1.5)
        self.check(log, began_at, self.options.hosts)
        stats = json.loads((out / "stats.json").read_text())
        return {"cost": run.user + run.system, "rate": pages / took, "lateness": stats["lateness"]["p99"] * 1e3,
                "scrapes": watcher.scrapes / took if watcher else 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--argiope", type=Path, default=ROOT / "target" / "release" / "argiope")
    parser.add_argument("--client-cores", default=CLIENT_CORE, help="the cores of the client, as taskset takes them")
    options = parser.parse_args()
    options.page_bytes, options.identity, options.settings = race.PAGE_BYTES, False, []
    check_machine()
    enter_namespace()
    rounds = []
    with Watched(options) as stage:
        for number in range(options.rounds):
            turned = WAYS[number % 4:] + WAYS[:number % 4]
            rounds.append({way: stage.crawl(way) for way in turned})
            seen = ", ".join(f"{way} {rounds[-1][way]['rate']:.0f}" for way in WAYS)
            print(f"round {number + 1}: pages/s {seen}", file=sys.stderr)
    for way in WAYS:
        def spread(key, digits):
            values = [each[way][key] for each in rounds]
            return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
        share = median([each[way]["rate"] / each["unserved"]["rate"] for each in rounds])
        print(f"{way}: {spread('cost', 1)} µs a page, {spread('rate', 0)} pages/s, p99 lateness {spread('lateness', 2)} "
              f"ms, {spread('scrapes', 0)} scrapes/s; rate {share:.3f} of the unserved")


if __name__ == "__main__":
    main()
