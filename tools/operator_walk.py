#!/usr/bin/env python3
"""The walk of a new operator, judged by the servers: how soon each order shows at them.

    cargo build --release
    tools/operator_walk.py [--argiope FILE] [--keep DIR]

Serves the demo's web (`argiope demo --serve`), crawls it, and gives orders with `argiope ctl`: finds the slowest scope,
asks why a URL waits, halves a host's pace, excludes a domain, adds seeds, pauses, resumes, reloads the configuration,
stops, and continues after `kill -9`. The judge is the servers' log, a line for each request when it arrives. Prints for
each order how long it took to be acknowledged, and how long after that the servers saw the first effect, or the last
request against it (a negative time is before the acknowledgement). Exit code 1 if an effect took longer than a second,
if something did not hold, or if `argiope audit` or the servers found a violation.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
ADMIN = "127.0.0.1:9147"
SECOND = 1.0
# Hosts that are no seeds of the crawl; the operator adds them.
LATER = 5
# The log has the time when a busy server reads a request; its final records are by the kernel's stamps.
TOLERANCE = 0.05


class Walk:
    """A served web, a crawl of it, and what the servers saw."""

    def __init__(self, argiope, folder):
        self.argiope, self.folder = argiope, folder
        self.failed = []
        self.children = []

    def start(self, *args):
        child = subprocess.Popen([self.argiope, *args], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def ctl(self, *args, body=None):
        """An order or a question: its reply, when it was given and when it was acknowledged."""
        began = time.time()
        done = subprocess.run([self.argiope, "ctl", "crawl", *args], cwd=self.folder, input=body, text=True,
                              capture_output=True, timeout=30)
        ended = time.time()
        if done.returncode:
            raise SystemExit(f"ctl {' '.join(args)}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout), began, ended

    def requests(self):
        """The servers' log: time, host and path of each request."""
        lines = (self.folder / "web/requests.jsonl").read_text().splitlines()
        for line in map(json.loads, lines):
            # Nanoseconds are more than fromisoformat reads.
            at = datetime.fromisoformat(line["at"][:26].rstrip("Z") + "+00:00").timestamp()
            yield at, line["host"], line["path"]

    def show(self, order, began, ended, effect, promised=SECOND):
        """`effect`: when the servers saw it."""
        late = None if effect is None else effect - ended
        is_late = late is None or late > promised
        if is_late:
            self.failed.append(order)
        seen = "never" if late is None else f"{late * 1e3:+.0f} ms"
        print(f"{order}: acknowledged in {(ended - began) * 1e3:.0f} ms, at the servers {seen}"
              f"{', which is too late' if is_late else ''}", flush=True)

    def check(self, what, holds):
        print(f"{what}: {'yes' if holds else 'NO'}", flush=True)
        if not holds:
            self.failed.append(what)

    def gaps(self, host, since):
        times = [at for at, other, _ in self.requests() if other == host and at >= since]
        return [after - before for before, after in zip(times, times[1:])]

    def last(self, host, until=float("inf")):
        return max((at for at, other, _ in self.requests() if host in (other, None) and at < until), default=None)

    def short_gap(self, delay, since, excepted):
        """The last request that came too soon after the one before it, of those that a delay since then concerns."""
        hosts = {host for _, host, _ in self.requests()}.difference(excepted)
        pairs = [(self.last(host, since), self.first(since, host)) for host in hosts]
        short = [after for before, after in pairs if before and after and after - before < delay - TOLERANCE]
        return max(short, default=since)

    def first(self, since, host=None):
        return min((at for at, other, _ in self.requests() if host in (other, None) and at > since), default=None)


def walk(own):
    web = own.start("demo", "--serve", "web", "--domains", "60", "--pages", "300")
    wait_for(own.folder / "web/demo.toml")
    seeds = (own.folder / "web/seeds.txt").read_text().splitlines()
    (own.folder / "first.txt").write_text("\n".join(seeds[:-LATER]) + "\n")
    (own.folder / "token").write_text("0123456789abcdef0123456789abcdef\n")
    command = ["crawl", "--quiet", "--config", "web/demo.toml", "--out", "crawl", "--contact", "me@example.org",
               "-s", "RANDOMIZE_DOWNLOAD_DELAY=false", "--admin", ADMIN, "--admin-token-file", "token"]
    crawl = own.start(*command, "--seeds", "first.txt")
    wait_for(own.folder / "crawl/control.sock")
    time.sleep(6)

    with urlopen(f"http://{ADMIN}/") as page:
        own.check("the page is served", page.status == 200 and b"<title>" in page.read())
    with urlopen(f"http://{ADMIN}/metrics") as metrics:
        own.check("metrics are served", b"argiope_" in metrics.read())
    slowest, *_ = own.ctl("scopes", "--sort", "latency", "--limit", "1")
    slowest = slowest["scopes"][0]
    print(f"the slowest scope: {slowest['scope']}, {slowest['latency_median']:.2f} s")
    queues, *_ = own.ctl("queues", "--limit", "10")
    origins = [queue["origin"] for queue in queues["queues"] if queue["queued"] > 100]
    hosts = [origin.split("//")[1].split(":")[0] for origin in origins]
    seen = {(host, path) for _, host, path in own.requests()}
    unseen = (page for page in range(1, 301) if (hosts[0], f"/page-{page}") not in seen)
    # Some ahead, so that it is not sent meanwhile.
    waiting = f"{origins[0]}/page-{next(unseen) + 10}"
    why, *_ = own.ctl("url", waiting)
    print(f"{waiting}: {why['state']}, {why['why']}")
    own.check("a URL that waits is queued with a reason", why["state"] == "queued" and bool(why["why"]))

    host, scope = hosts[0], origins[0].split("//")[1]
    before = min(own.gaps(host, 0))
    _, began, ended = own.ctl("set", scope, "delay=2")
    time.sleep(5)
    # The first gap that would have been too short without the order.
    at = own.last(host, ended)
    following = own.first(ended, host)
    is_kept = following - at >= 2 - TOLERANCE
    own.show(f"halve the pace of {host}, from {before:.2f} s", began, ended, ended if is_kept else following)
    own.check("each gap since is at least 2 s", min(own.gaps(host, ended)) >= 2 - TOLERANCE)

    host = hosts[1]
    _, began, ended = own.ctl("exclude", host)
    time.sleep(3)
    own.show(f"exclude {host}: last request", began, ended, own.last(host))

    _, began, ended = own.ctl("seeds", "-", body="\n".join(seeds[-LATER:]) + "\n")
    time.sleep(2)
    new = [seed.split("//")[1].split(":")[0] for seed in seeds[-LATER:]]
    firsts = [own.first(began, host) for host in new]
    if None in firsts:
        # Some of the demo's hosts refuse connections.
        print(f"  {firsts.count(None)} of the added hosts accept no connection")
    own.show("add seeds: the last of their first requests", began, ended, max(filter(None, firsts), default=None))

    _, began, ended = own.ctl("pause")
    time.sleep(3)
    own.show("pause: last request", began, ended, own.last(None))
    _, began, ended = own.ctl("resume")
    time.sleep(3)
    own.show("resume: first request", began, ended, own.first(began))

    config = own.folder / "web/demo.toml"
    config.write_text(config.read_text() + "download_delay = 3\n")
    reply, began, ended = own.ctl("reload")
    time.sleep(8)
    own.check("the reload names what it applied", "DOWNLOAD_DELAY" in [each["name"] for each in reply["applied"]])
    excepted = (hosts[0], hosts[1])
    own.show("reload with a longer delay: last gap that is too short", began, ended, own.short_gap(3, ended, excepted))
    _, began, ended = own.ctl("set", "*.test", "delay=4")
    time.sleep(9)
    own.show("a longer delay of *.test: last gap that is too short", began, ended, own.short_gap(4, ended, excepted))

    _, began, ended = own.ctl("hold", scope, "1h")
    time.sleep(3)
    own.show(f"hold {hosts[0]}: last request", began, ended, own.last(hosts[0]))

    # The orders survive a crash.
    crawl.send_signal(signal.SIGKILL)
    crawl.wait()
    killed = time.time()
    crawl = own.start("crawl", "--quiet", "--resume", "--out", "crawl", "--admin", ADMIN, "--admin-token-file", "token")
    time.sleep(8)
    own.check("after kill -9 and --resume the crawl goes on", own.first(killed) is not None)
    own.check("the exclusion holds", own.first(killed, hosts[1]) is None)
    own.check("the hold holds", own.first(killed, hosts[0]) is None)

    _, began, ended = own.ctl("stop", "--grace", "1s")
    crawl.wait(timeout=30)
    took = time.time() - ended
    own.show("stop: last request", began, ended, own.last(None))
    print(f"  the process ended {took:.2f} s after the order, with exit code {crawl.returncode}")
    own.check("its exit code is that of a stop", crawl.returncode == 3)

    second = [Path(sys.executable), ROOT / "tools" / "audit.py", "crawl"]
    report = [own.argiope, "report", "crawl", "-o", "report.html"]
    for command in ([own.argiope, "audit", "crawl"], second, report):
        done = subprocess.run(command, cwd=own.folder, capture_output=True, text=True, timeout=120)
        print((done.stdout or done.stderr).strip().splitlines()[0] if done.stdout or done.stderr else "")
        own.check(f"{' '.join(Path(word).name for word in command[:2])} ends with 0", done.returncode == 0)
    web.send_signal(signal.SIGINT)
    records, _ = web.communicate(timeout=30)
    print(records.strip().splitlines()[-1])
    own.check("the servers' records have no violation", web.returncode == 0)
    orders = (own.folder / "crawl/orders.jsonl").read_text().splitlines()
    print(f"orders.jsonl has {len(orders)} orders, by uid {json.loads(orders[0])['uid']}")


def wait_for(path):
    ends = time.monotonic() + 20
    while not path.exists():
        if time.monotonic() > ends:
            raise SystemExit(f"{path} does not appear")
        time.sleep(0.01)
    time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--argiope", type=Path, default=ROOT / "target" / "release" / "argiope")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for the files, which is kept")
    options = parser.parse_args()
    if options.keep:
        os.makedirs(options.keep)
    with tempfile.TemporaryDirectory() as scratch:
        own = Walk(options.argiope.resolve(), (options.keep or Path(scratch)).resolve())
        try:
            walk(own)
        finally:
            for child in own.children:
                if child.poll() is None:
                    child.kill()
                    child.wait()
    if own.failed:
        sys.exit(f"failed: {'; '.join(own.failed)}")


if __name__ == "__main__":
    main()
