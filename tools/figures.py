#!/usr/bin/env python3
"""Measures speed: each figure relative to a peer, or to an upper bound, in the same run.

    cargo build --release --examples && cargo build --release
    cargo bench --no-run --bench wheel
    tools/figures.py                   # the whole table
    tools/figures.py --quick           # smaller and shorter, to check that every row works
    tools/figures.py --only new,tls    # these rows
    tools/figures.py --list            # list the rows
    tools/figures.py --json docs/benchmarks/raw    # write the raw results of every round
    tools/figures.py --before OLD      # compare the command with an older one

Needs root, nginx, wrk, openssl and two cores. Other load makes the figures unreliable; a warning is
printed if the machine is busy at the start. Missing peers are reported and skipped:

    pip install aiohttp uvloop pycurl scrapy==2.19.0
    apt-get install libcurl4-openssl-dev     # and a C compiler

Runs in a network namespace with loopback only. nginx has one core, the client the other; both use cubic.
A round runs everything that is compared, in sequence; a figure is the median of the rounds, with minimum
and maximum in brackets. A crawl is complete, with result lines, and timed by its stats.json. Peers are
timed from their first request to their last page.

  new      pages per second with a new connection for each page, over 10 000 addresses, relative to a bare
           epoll loop without parsing (tools/bare_loop)
  robots   the same, with each host's robots.txt fetched first
  user     processor time in user space per page of `new`, minus that of the bare loop
  kept     pages per second on kept connections, relative to `wrk -t1`
  aiohttp, pycurl, scrapy   pages per second of `new`, relative to theirs; pycurl uses libcurl's multi
           interface as in its examples. The bare loop's multiple, the upper bound, is printed too
  libcurl  the same for the tuned multi interface: in C, with epoll, without a scan of the DNS cache
           before each page
  tls      new TLS 1.3 connections with resumption, over 1 000 addresses, relative to a bare loop with
           rustls: the lesser of the ratio of rates and the ratio of processor times, because the rate
           means nothing if nginx is slower than the client
  state    rate on kept connections with the state on disk (STATE, for --resume), relative to the rate
           without. All other rows are without: builds before it had none
  rewrite  the longest turn of a crawl that rewrites its journal meanwhile: by the clock, and the most
           processor time of a turn. By the clock it has times at which the system did not run the thread: the
           threads of the crawl share a core. A note has the same of a crawl without a state
  growth   processor time per page at 10 million scopes, relative to 1 000 scopes
  memory   resident memory of 1 million and of 10 million scopes with one queued URL each
  wheel    nanoseconds to pop one of 10 million entries and arm it again, and bytes per entry
  turn     the longest call of the wheel in that time
The remaining rows are other tools; their output follows the table.

With --before each round runs the command and the other one, in an order that is swapped every round;
rows that run no crawl are left out. A second table has the medians of both, their ratio, and the median
of the ratios of single rounds, which drifts less with the machine.
"""

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import raw
from speed.stage import (
    PORT, ROOT, TLS_ADDRESSES, TLS_PORT, WITH_STATE, WITHOUT_STATE, Stage, Trouble, check_machine, enter_namespace,
    median)

SPEED = Path(__file__).resolve().parent / "speed"
NO_ROBOTS = "ROBOTSTXT_OBEY=false"
# Otherwise a host's next page would use the same connection.
EACH_NEW = "KEEPALIVE_MAX=0"
# A crawl of 10 million scopes is skipped if it needs more.
MEMORY_MAX_GB = 8
# Busy share of both cores together, at the start.
BUSY = 0.05


@dataclass
class Row:
    key: str
    what: str
    # What is wanted of each value, at the least and as the aim; none where nothing is.
    asked: tuple
    aim: tuple
    form: str
    less: bool = False
    command: str = ""

    def text(self, values):
        return self.form.format(*values) if values else "—"

    def verdict(self, values):
        def meets(wanted):
            pairs = list(zip(values, wanted, strict=True))
            return all(value <= want if self.less else value >= want for value, want in pairs)

        if not self.asked:
            return ""
        return "aim" if meets(self.aim) else "asked" if meets(self.asked) else "SHORT"


ROWS = [
    Row("new", "new connection per page, against a bare epoll loop", (0.75,), (0.90,), "{:.3f}"),
    Row("robots", "the same with robots.txt obeyed", (), (), "{:.3f}"),
    Row("user", "user-space CPU per page beyond the bare loop's", (4,), (1.5,), "{:.1f} µs", less=True),
    Row("kept", "kept connections, against wrk -t1", (0.80,), (1.00,), "{:.3f}"),
    Row("state", "kept connections with the state on disk, against without", (0.90,), (0.97,), "{:.3f}"),
    Row("rewrite", "longest turn while the journal is rewritten, by the clock and in processor time", (5, 5), (2, 2),
        "{:.1f}, {:.1f} ms", less=True),
    Row("aiohttp", "new connections, against aiohttp + uvloop", (7,), (10,), "{:.1f}×"),
    Row("pycurl", "new connections, against libcurl multi (pycurl)", (7,), (10,), "{:.1f}×"),
    Row("libcurl", "the same at its best, in C", (), (), "{:.1f}×"),
    Row("scrapy", "new connections, against Scrapy", (80,), (120,), "{:.0f}×"),
    Row("tls", "TLS pages with resumption, against a bare rustls loop", (0.85,), (0.95,), "{:.3f}"),
    Row("growth", "cost per page, 1 k to 10 M scopes", (1.5,), (1.1,), "×{:.2f}", less=True,
        command="cargo run --release --example scope_growth"),
    Row("memory", "resident memory, 1 M / 10 M scopes", (300, 2500), (150, 1500), "{:.0f} / {:.0f} MB",
        less=True, command="cargo run --release --example admission -- SEEDS"),
    Row("wheel", "pacing wheel, 10 M entries", (80, 12), (50, 9), "{:.0f} ns, {:.1f} B", less=True,
        command="cargo bench --bench wheel"),
    Row("turn", "worst wheel turn, 10 M entries", (0.5,), (0.2,), "{:.2f} ms", less=True,
        command="cargo bench --bench wheel"),
]


# Rows that run the command, and can compare two of them.
COMPARED = ["new", "robots", "user", "kept", "tls"]
# Of the ratio of two commands: no slower than this is no change.
WITHIN = 0.03
# The command under measurement, and the one it is compared with.
AFTER, BEFORE = "argiope", "before"

# Rows whose example is another one than the bare loop.
NEEDS = {"growth": "scope_growth", "memory": "admission"}


@dataclass
class Other:
    """A tool with a verdict of its own: its output is printed as it is."""

    key: str
    what: str
    needs: tuple
    commands: tuple
    quick: tuple


def others():
    examples = ROOT / "target" / "release" / "examples"
    judge, crawl = ROOT / "tools" / "latency_judge.py", examples / "stalling_crawl"
    lateness, pages = examples / "lateness", examples / "pages"
    spin = ("--set", "SPIN=200us")
    few = ("--scopes", "40000")
    return [
        Other("packets", "latency against packets", (judge, crawl),
              ((judge, "--only", "argiope"),),
              ((judge, "--only", "argiope", "--requests", "200", "--busy", "0,50"),)),
        Other("lateness", "lateness of 20 000 releases a second over a million scopes", (lateness,),
              ((lateness,), (lateness, *spin)), ((lateness, *few), (lateness, *few, *spin))),
        Other("allocations", "allocations per page", (pages,), ((pages,),), ((pages, "--pages", "10000"),)),
    ]


@dataclass
class Size:
    """How much is done, and how often."""

    rounds: int = 5
    pages: int = 40_000
    kept_pages: int = 160_000
    rewrite_pages: int = 1_500_000
    tls_pages: int = 20_000
    wrk_seconds: int = 2
    peer_rounds: int = 3
    peer_pages: tuple = (("aiohttp", 10_000), ("pycurl", 10_000), ("libcurl", 20_000), ("scrapy", 2_000))
    growth: tuple = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 1_000)
    memory: tuple = (1_000_000, 10_000_000)


QUICK = Size(rounds=1, pages=20_000, kept_pages=40_000, tls_pages=4_000, wrk_seconds=1, peer_rounds=1,
             peer_pages=(("aiohttp", 3_000), ("pycurl", 3_000), ("libcurl", 5_000), ("scrapy", 500)),
             growth=(1_000, 100_000), memory=(100_000, 1_000_000))


# --- measuring ------------------------------------------------------------------------------------


class Measures:
    """The values of each row per round, and notes."""

    def __init__(self, stage, size, wanted, before=None):
        self.stage = stage
        self.size = size
        self.wanted = wanted
        self.commands = {AFTER: stage.argiope, **({BEFORE: before} if before else {})}
        self.seen = {name: {} for name in self.commands}
        self.runs = []
        self.names = {}
        self.notes = []
        self.lines = []
        self.outputs = []

    def see(self, key, *values, by=AFTER):
        if key in self.wanted:
            self.seen[by].setdefault(key, []).append([round(value, 4) for value in values])

    def ran(self, kind, number, who, run):
        """What a client did in this round: kept for the raw results."""
        self.runs.append({"kind": kind, "round": number + 1, "who": who, "rate": round(run.rate, 1),
                          "user": round(run.user, 3), "system": round(run.system, 3)})
        return run

    def order(self, number):
        """The commands in the order of this round: swapped every time, since the second may find the
        machine warmer, or slower, than the first."""
        names = list(self.commands)
        return names if number % 2 == 0 else names[::-1]

    def rename(self, key, what):
        """The row measured something else than is asked of it: this."""
        self.names[key] = what

    def row(self, row):
        """The row as it was measured; of something else nothing is asked."""
        what = self.names.get(row.key)
        return replace(row, what=what, asked=(), aim=()) if what else row

    def note(self, line):
        self.notes.append(line)
        print(line, file=sys.stderr)

    def progress(self, line):
        self.lines.append(line)
        print(line, file=sys.stderr)

    def wants(self, *keys):
        return any(key in self.wanted for key in keys)

    def take(self):
        for keys, measure in (
            (("new", "robots", "user"), self.new_connections),
            (("kept",), self.kept_connections),
            (("state",), self.state_on_disk),
            (("rewrite",), self.rewriting),
            (tuple(dict(self.size.peer_pages)), self.peers),
            (("tls",), self.tls),
            (("growth",), self.growth),
            (("memory",), self.memory),
            (("wheel", "turn"), self.wheel),
        ):
            if self.wants(*keys):
                try:
                    measure()
                except Trouble as trouble:
                    self.note(f"{', '.join(key for key in keys if key in self.wanted)}: not measured: {trouble}")

    def crawl(self, kind, number, by, pages, *settings):
        run, stats = self.stage.crawl(kind, pages, *settings, argiope=self.commands[by])
        if EACH_NEW in settings and stats["reused"]:
            raise Trouble(f"{stats['reused']} pages came on a kept connection")
        return self.ran(kind, number, by, run)

    def crawl_new(self, number, by=AFTER):
        return self.crawl("new", number, by, self.size.pages, NO_ROBOTS, EACH_NEW)

    def new_connections(self):
        stage, pages = self.stage, self.size.pages
        for number in range(self.size.rounds):
            bare = self.ran("new", number, "bare loop", stage.bare(pages, "--port", PORT))
            text = f"new connections, round {number + 1}: bare loop {speed(bare)}"
            for by in self.order(number):
                if self.wants("new", "user"):
                    ours = self.crawl_new(number, by)
                    self.see("new", ours.rate / bare.rate, by=by)
                    self.see("user", ours.user - bare.user, by=by)
                    text += f"; {by} {speed(ours)}"
                if self.wants("robots"):
                    polite, _ = stage.crawl("new", pages, EACH_NEW, argiope=self.commands[by])
                    self.ran("robots", number, by, polite)
                    self.see("robots", polite.rate / bare.rate, by=by)
                    text += f"; {by} with robots.txt {speed(polite)}"
            self.progress(text)

    def kept_connections(self):
        stage = self.stage
        for number in range(self.size.rounds):
            wrk = stage.run(["wrk", "-t1", "-c", "256", "-d", self.size.wrk_seconds, f"http://127.0.0.1:{PORT}/"])
            wrk.rate = float(re.search(r"Requests/sec: *([\d.]+)", wrk.output)[1])
            self.ran("kept", number, "wrk", wrk)
            text = f"kept connections, round {number + 1}: wrk {wrk.rate:.0f}/s"
            for by in self.order(number):
                ours = self.crawl("kept", number, by, self.size.kept_pages, NO_ROBOTS,
                                  "CONCURRENT_REQUESTS_PER_DOMAIN=64")
                self.see("kept", ours.rate / wrk.rate, by=by)
                text += f"; {by} {speed(ours)}"
            self.progress(text)

    def state_on_disk(self):
        pages, many = self.size.kept_pages, "CONCURRENT_REQUESTS_PER_DOMAIN=64"
        for number in range(self.size.rounds):
            names = [WITHOUT_STATE, WITH_STATE]
            rates = {}
            for state in names if number % 2 == 0 else names[::-1]:
                run, _ = self.stage.crawl("kept", pages, NO_ROBOTS, many, state, argiope=self.commands[AFTER])
                rates[state] = self.ran("state", number, state, run)
            self.see("state", rates[WITH_STATE].rate / rates[WITHOUT_STATE].rate)
            text = "; ".join(f"{state} {speed(run)}" for state, run in rates.items())
            self.progress(f"state on disk, round {number + 1}: {text}")

    def rewriting(self):
        """The journal is rewritten once it has 64 MiB and half of it is dead, so a crawl needs a million pages."""
        without = []
        for number in range(self.size.peer_rounds):
            run, stats = self.many_pages(WITHOUT_STATE)
            self.ran("rewrite", number, WITHOUT_STATE, run)
            without.append(longest_turn(stats))
            self.progress(f"without a state, round {number + 1}: {speed(run)}, {turn_text(without[-1])}")
            run, stats = self.many_pages(WITH_STATE)
            segment = max(path.name for path in (self.stage.dir / "crawl" / "state").glob("journal-*"))
            rewritten = int(segment.removeprefix("journal-")) - 1
            if not rewritten:
                raise Trouble("the journal was not rewritten")
            self.ran("rewrite", number, AFTER, run)
            longest = longest_turn(stats)
            self.see("rewrite", *longest)
            self.progress(f"rewriting, round {number + 1}: {speed(run)}, rewritten {rewritten} times, "
                          f"{turn_text(longest)}")
        self.note(f"rewrite: without a state, {turn_text([median(column) for column in zip(*without)])} (medians)")

    def many_pages(self, state):
        return self.stage.crawl("kept", self.size.rewrite_pages, NO_ROBOTS, "CONCURRENT_REQUESTS_PER_DOMAIN=64",
                                state, argiope=self.commands[AFTER])

    def peers(self):
        stage = self.stage
        there = {key: found for key in dict(self.size.peer_pages) if self.wants(key) and (found := self.peer(key))}
        bounds = {key: [] for key in there}
        for number in range(self.size.peer_rounds if there else 0):
            bare = self.ran("peers", number, "bare loop", stage.bare(self.size.pages, "--port", PORT))
            ours = self.crawl_new(number)
            self.progress(f"peers, round {number + 1}: bare loop {speed(bare)}; crawl {speed(ours)}")
            for key, command in there.items():
                pages = dict(self.size.peer_pages)[key]
                peer = stage.run([*command, stage.urls("new", pages), pages], pages)
                self.ran("peers", number, key, peer)
                self.see(key, ours.rate / peer.rate)
                bounds[key].append(bare.rate / peer.rate)
                self.progress(f"peers, round {number + 1}: {key} {peer.output.split(': ')[-1].strip()}")
        for key, multiples in bounds.items():
            self.note(f"{key}: the bare loop itself is {median(multiples):.1f} times as fast")

    def peer(self, key):
        """The command of a peer that is there; its version is printed, and so is its absence."""
        if key == "libcurl":
            command = [self.stage.dir / "curl_peer"]
            compiled = subprocess.run(["cc", "-O2", "-o", command[0], SPEED / "curl_peer.c", "-lcurl"],
                                      capture_output=True, text=True) if shutil.which("cc") else None
            if compiled is None or compiled.returncode:
                self.note("libcurl is not installed, its row is skipped: apt-get install gcc libcurl4-openssl-dev")
                return None
        else:
            command = [sys.executable, SPEED / f"{key}_peer.py"]
        version = subprocess.run([*command, "--version"], capture_output=True, text=True)
        if version.returncode:
            need = {"aiohttp": "aiohttp uvloop", "scrapy": "scrapy==2.19.0"}.get(key, key)
            self.note(f"{key} is not installed, its row is skipped: pip install {need}")
            return None
        self.note(f"{key}: {version.stdout.strip()}")
        return command

    def tls(self):
        stage, pages = self.stage, self.size.tls_pages
        for number in range(self.size.rounds):
            bare = stage.bare(pages, "--port", TLS_PORT, "--addresses", TLS_ADDRESSES, "--tls", stage.dir / "ca.pem")
            self.ran("tls", number, "bare loop", bare)
            text = f"TLS, round {number + 1}: bare loop {speed(bare)}, {bare.output.split(', ')[-1].strip()}"
            for by in self.order(number):
                ours = self.crawl("tls", number, by, pages, NO_ROBOTS, EACH_NEW)
                rates, costs = ours.rate / bare.rate, (bare.user + bare.system) / (ours.user + ours.system)
                self.see("tls", min(rates, costs), by=by)
                lines = (stage.dir / "crawl" / "results.jsonl").read_text().splitlines()
                resumed = sum(json.loads(line)["tls"]["resumed"] for line in lines) / len(lines)
                text += f"; {by} {speed(ours)}, {resumed:.1%} resumed; rates {rates:.3f}, costs {costs:.3f}"
            self.progress(text)

    def growth(self):
        sizes = self.size.growth
        run = self.stage.run([self.stage.examples / "scope_growth", "--memory-max", MEMORY_MAX_GB, *sizes],
                             seconds=600)
        for line in run.output.splitlines():
            self.note(f"growth: {line}")
        found = re.search(r"at (\d+) scopes costs ([\d.]+) times what it does at (\d+)", run.output)
        if not found or found[1] == found[3]:
            raise Trouble("there are no two sizes to compare")
        most, times, least = int(found[1]), float(found[2]), int(found[3])
        # A size that does not fit is left out, and smaller ones cost less.
        if (least, most) != (min(Size.growth), max(Size.growth)):
            self.rename("growth", f"cost per page, {short(least)} to {short(most)} scopes only")
        self.see("growth", times)

    def memory(self):
        sizes = self.size.memory
        # More than a scope takes.
        if available_memory() < max(sizes) * 600:
            raise Trouble(f"{max(sizes)} scopes may not fit in the memory that is left")
        run = self.stage.run([self.stage.examples / "admission", max(sizes)], seconds=300)
        for output_line in run.output.splitlines():
            self.note(f"memory: {output_line}")
        if sizes != Size.memory:
            self.rename("memory", f"resident memory, {' / '.join(map(short, sizes))} scopes only")
        self.see("memory", *(float(re.search(rf"^ *{scopes} +(\d+) MB", run.output, re.M)[1]) for scopes in sizes))

    def wheel(self):
        built = subprocess.run(["cargo", "bench", "--offline", "--no-run", "--bench", "wheel", "--message-format",
                                "json"], cwd=ROOT, capture_output=True, text=True)
        found = re.search(r'"executable":"([^"]+/wheel-[^"]+)"', built.stdout)
        if not found:
            raise Trouble("the bench cannot be built: cargo bench --no-run --bench wheel")
        # What it times is chosen by name; what it prints of each size comes whatever is chosen.
        run = self.stage.run([found[1], "--bench", "wheel/10000000"], seconds=300)
        times = re.search(r"wheel/10000000\s+time: +\[\S+ \S+ ([\d.]+) (\S+)", run.output)
        rest = re.search(r"10000000 entries: ([\d.]+) bytes each, worst call ([\d.]+)(\S+)", run.output)
        if not times or not rest:
            raise Trouble("the bench printed neither time nor bytes of 10 million entries")
        self.see("wheel", float(times[1]) * IN_NS[times[2]], float(rest[1]))
        self.see("turn", float(rest[2]) * IN_NS[rest[3]] / 1e6)

    def run_others(self, tools, quick):
        for other in tools:
            if other.key not in self.wanted:
                continue
            absent = [path for path in other.needs if not path.exists()]
            for path in absent:
                self.note(f"{other.key}: {path} does not exist, skipped: cargo build --release --examples")
            for command in () if absent else other.quick if quick else other.commands:
                line = " ".join(map(str, command))
                self.progress(line)
                try:
                    self.outputs.append((other.what, line, self.stage.run_tool(command, seconds=400)))
                except Trouble as trouble:
                    self.note(f"{other.key}: not measured: {trouble}")


IN_NS = {"ps": 1e-3, "ns": 1, "µs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9}


def short(count):
    """A round number of many as it is spoken: 10 M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count % size == 0:
            return f"{count // size} {letter}"
    return str(count)


def longest_turn(stats):
    """In ms: the longest turn by the clock, and the most processor time of one."""
    return [1e3 * stats["lag"]["max"], 1e3 * stats["lag_processor_max"]]


def turn_text(longest):
    return "longest turn {:.1f} ms, most processor time of a turn {:.1f} ms".format(*longest)


def speed(run):
    return f"{run.rate:.0f}/s, {run.user:.1f} us of user and {run.system:.1f} us of system time each"


def busy_share():
    """How much of the machine others use, in the second that this takes."""

    def used():
        user, nice, system, idle, waiting, *rest = map(int, Path("/proc/stat").read_text().split()[1:9])
        return idle + waiting, user + nice + system + idle + waiting + sum(rest)

    (idle, whole), _, (idle_then, whole_then) = used(), time.sleep(1), used()
    return 1 - (idle_then - idle) / max(1, whole_then - whole)


def available_memory():
    found = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found[1]) * 1024


# --- the report -----------------------------------------------------------------------------------


HEAD = ["row", "what", "at least", "aim", "measured", "rounds", "verdict", "command"]
COMPARED_HEAD = ["row", "what", "before", "after", "ratio of medians", "median of ratios", "verdict"]


def line(row, rounds, quick):
    values = [median(column) for column in zip(*rounds)]
    spread = ""
    if len(rounds) > 1:
        low, high = ([least(column) for column in zip(*rounds)] for least in (min, max))
        spread = f"{row.text(low)} to {row.text(high)}"
    return [row.key, row.what, row.text(row.asked), row.text(row.aim), row.text(values), spread,
            row.verdict(values) if values and not quick else "", row.command or f"tools/figures.py --only {row.key}"]


def table(head, lines):
    widths = [max(len(cells[column]) for cells in [head, *lines]) for column in range(len(head))]
    rule = ["-" * width for width in widths]
    for cells in [head, rule, *lines]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |")


def comparison(row, after, before, quick):
    """A row of the second table: both medians, and how they relate."""
    values = [[value for value, *_ in rounds] for rounds in (before, after)]
    if not all(values):
        return [row.key, row.what, *["—"] * 5]
    ratio = median(values[1]) / median(values[0])
    pairs = median([new / old for old, new in zip(*values)])
    is_well = ratio <= 1 + WITHIN if row.less else ratio >= 1 - WITHIN
    return [row.key, row.what, *(row.text([median(some)]) for some in values), f"{ratio:.3f}", f"{pairs:.3f}",
            "" if quick else "within 3 % or better" if is_well else "WORSE"]


def print_report(measures, options):
    rows = [measures.row(row) for row in ROWS if row.key in measures.wanted]
    after, before = measures.seen[AFTER], measures.seen.get(BEFORE)
    if rows:
        table(HEAD, [line(row, after.get(row.key, []), options.quick) for row in rows])
    if before is not None:
        print()
        table(COMPARED_HEAD, [comparison(row, after.get(row.key, []), before.get(row.key, []), options.quick)
                              for row in rows])
    print()
    for note in measures.notes:
        print(note)
    for what, command, output in measures.outputs:
        print(f"\n{what}: {command}\n\n{output}")
    if options.json:
        programs = {name: raw.binary(path) for name, path in measures.commands.items()}
        raw.write(options.json, raw.header("figures", measures.size.rounds), quick=options.quick, programs=programs,
                  seen=after, **({} if before is None else {"before": before}), runs=measures.runs,
                  lines=measures.lines, notes=measures.notes,
                  outputs=[{"what": what, "said": output.splitlines()} for what, _, output in measures.outputs])


def read_options(keys):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "target" / "release", metavar="DIR",
                        help="where the release binaries are")
    parser.add_argument("--argiope", type=Path, metavar="FILE",
                        help="the command, where it is another one: target/profiled/argiope")
    parser.add_argument("--before", type=Path, metavar="FILE",
                        help=f"another build of the command, run in turn with it: {', '.join(COMPARED)}")
    parser.add_argument("--only", metavar="ROW,…", help="these rows")
    parser.add_argument("--quick", action="store_true",
                        help="smaller and shorter, without a verdict; its figures are not for publication")
    parser.add_argument("--rounds", type=int, help="so many rounds of each row (5, with --before 6)")
    parser.add_argument("--json", metavar="FILE",
                        help="every round of every row; in a directory as DATE-figures-COMMIT.json")
    parser.add_argument("--list", action="store_true", help="the rows, and no more")
    options = parser.parse_args()
    if options.before:
        keys = COMPARED
    wanted = options.only.split(",") if options.only else keys
    for key in wanted:
        if key not in keys:
            parser.error(f"there is no row {key}{' to compare' if options.before else ''}: {', '.join(keys)}")
    return options, set(wanted)


def main():
    tools = others()
    options, wanted = read_options([row.key for row in ROWS] + [other.key for other in tools])
    if options.list:
        for row in [*ROWS, *tools]:
            print(f"{row.key:<12} {row.what}")
        return
    check_machine()
    argiope = (options.argiope or options.bin / "argiope").resolve()
    examples = [options.bin / "examples" / NEEDS.get(key, "bare_loop") for key in wanted & {row.key for row in ROWS}]
    before = options.before.resolve() if options.before else None
    for path in (argiope, *([before] if before else []), *examples):
        if not path.exists():
            sys.exit(f"{path} does not exist: cargo build --release, and with --examples, or tools/profiled.sh")
    enter_namespace()
    busy = busy_share()
    # Run the `finally` clauses, which end the children.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    size = QUICK if options.quick else Size()
    if before and not options.quick:
        # As many begin with the one as with the other.
        size.rounds += size.rounds % 2
    if options.rounds:
        size.rounds = size.peer_rounds = options.rounds
    began = time.monotonic()
    try:
        with Stage(options.bin.resolve(), argiope) as stage:
            measures = Measures(stage, size, wanted, before)
            if busy > BUSY:
                measures.note(f"THE MACHINE IS BUSY ({busy:.0%} of it before we began): figures are noise")
            try:
                measures.take()
                measures.run_others(tools, options.quick)
            finally:
                print_report(measures, options)
    except Trouble as trouble:
        sys.exit(str(trouble))
    print(f"\n{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
