#!/usr/bin/env python3
"""Measures how well a crawler finds hidden limits of origins, as recorded by the origins.

    cargo build --release && cargo build --release --example fault_server
    tools/limits.py                    # everything, in less than 15 minutes
    tools/limits.py --quick            # the main rows, in less than 3
    tools/limits.py --only 5/s         # rows whose name contains this

Each row starts its own origin (tools/fault_server), runs a crawler against it for a bounded time, and
prints the origin's report. The crawler's own log is not used.

  share      used share of the limit: from the first request to the end / once settled
  settled    seconds until settled: from then on every stretch of one window, beginning at any tenth of a
             window, used 95 % of the limit, give or take one request, and every stretch of two windows
             had at most two rounds. If that never happened, figures are of the last half and marked ~
  refused    refusals per window, once settled
  rounds     rounds per window, once settled; a round is all refusals of requests that were sent before
             the first refusal arrived. In brackets the refusals of the largest round
  peak       maximum of requests in flight

A window is BACKOFF_WINDOW: 10 s instead of 60, to keep runs short, and 60 s for a limit of at most five
requests in 10 s. Argiope gets it as a setting; a version without that setting is reported. Crawlers:
argiope with AutoThrottle off and on (-at), and Scrapy likewise, with start delay 0.5 and target
concurrency 1 unless the row sets another.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import raw

TOOLS = Path(__file__).resolve().parent
RELEASE = TOOLS.parent / "target" / "release"
SCRAPY = "2.19.0"
# More than a crawl without throttling fetches per second; a crawl that runs out of URLs is reported.
URLS_PER_SECOND = 8000
URLS_MAX = 400_000
# Start-up time of a Python crawler; the origin's time begins with the first request.
PEER_START = 2
SHARE = 0.95


@dataclass
class Row:
    name: str
    origin: str
    seconds: int
    # None: not in a quick run.
    quick: int | None
    crawlers: str
    # Returns the faults in a report: a list of messages.
    judge: object
    window: int = 10
    concurrency: int = 8
    target: float = 1.0
    settings: dict = field(default_factory=dict)
    # Maximum run time of peers: their figures do not change any more.
    peer_seconds: int = 60
    # Runs that may use a whole core run two at a time; runs with high rates run alone.
    busy: bool = False
    alone: bool = False


def bucket(rate, burst, latency="20ms"):
    return f"rate={rate},burst={burst},latency={latency}"


def moving(seconds):
    third = seconds // 3
    return f"rate=20@0+5@{third}+40@{2 * third},burst=5,latency=20ms"


# --- what may be wrong with a run -----------------------------------------------------------------


def judge_limit(report, row):
    wrong = []
    for phase in report["phases"]:
        at = f" at {phase['rate']:g}/s" if len(report["phases"]) > 1 else ""
        settled = phase["settled"]
        if settled is None:
            wrong.append(f"never settled{at}")
            settled = phase["last_half"]
        elif settled["share"] < SHARE:
            wrong.append(f"uses {settled['share']:.0%}{at}")
        # A stretch of less than two windows is settled with two rounds, as longer ones are.
        rounds = settled["rounds_per_window"]
        if rounds > 1 and rounds * settled["seconds"] > 2.5 * report["window"]:
            wrong.append(f"{settled['rounds_per_window']:.1f} rounds a window{at}")
    return wrong + judge_peak(report, row)


def judge_peak(report, row):
    peak = report["peak_in_flight"]
    return [f"{peak} in flight, not {row.concurrency}"] if peak > row.concurrency else []


def judge_hold(report, row):
    wrong = judge_peak(report, row)
    holds = report["holds"]
    if holds["undercut"]:
        wrong.append(f"{holds['undercut']} came early, by up to {holds['worst']:.1f} s")
    if report["refused_share"] > 0.05:
        wrong.append(f"{report['refused_share']:.0%} refused")
    return wrong


def judge_block(report, row):
    before, after = report["before_block"], report["after_block"]
    if after is None:
        return ["did not reach the block"]
    if after["requests_per_second"] > before["requests_per_second"] / 2:
        return [f"continued at {after['requests_per_second']:.1f}/s after the block"]
    return []


def judge_cache(report, row):
    # One request at a time at the origin's own 300 ms, and a tenth for the rounding of tenths.
    rate = report["phases"][0]["last_half"]["accepted_per_second"] or 0
    return [f"{rate:.1f} misses/s, not 3.3"] if rate > 3.7 else []


def judge_batches(report, row):
    wrong = judge_target(report, row)
    cv = report["phases"][0]["last_half"]["gap"]["cv"]
    return wrong + ([f"gaps vary by {cv:.2f}"] if cv >= 0.2 else [])


def judge_target(report, row):
    peak = report["peak_in_flight"]
    return [f"{peak} in flight at target {row.target:g}"] if peak > row.target + 1 else []


def judge_rate(report, row):
    ideal = min(row.target, row.concurrency) / 0.1
    rate = report["phases"][0]["last_half"]["requests_per_second"]
    wrong = judge_peak(report, row)
    return wrong + ([f"{rate:.1f}/s, not {ideal:g}"] if rate < 0.95 * ideal else [])


def judge_nothing(report, row):
    return []


OURS = "argiope"
OURS_AT = "argiope-at"
PEER = "scrapy"
PEER_AT = "scrapy-at"


def rows(quick):
    steady = {"RANDOMIZE_DOWNLOAD_DELAY": "false"}
    moves = 45 if quick else 180
    captcha = "latency=50ms,block=captcha,block_after=100"
    unavailable = "latency=20ms,block=503,block_after=100"
    low = f"{OURS} {OURS_AT} {PEER_AT}"
    all_of_them = f"{OURS} {OURS_AT} {PEER_AT} {PEER}"
    return [
        Row("0.5/s, burst 1", bucket(0.5, 1), 300, None, f"{OURS} {PEER_AT}", judge_limit, window=60,
            peer_seconds=150),
        Row("5/s, burst 1", bucket(5, 1), 120, None, OURS, judge_limit),
        Row("5/s, burst 5", bucket(5, 5), 120, 30, all_of_them, judge_limit),
        Row("50/s, burst 1", bucket(50, 1), 90, None, OURS, judge_limit),
        Row("50/s, burst 5", bucket(50, 5), 90, 30, low, judge_limit, peer_seconds=30),
        Row("50/s, burst 50", bucket(50, 50), 90, None, OURS, judge_limit),
        Row("500/s, burst 5", bucket(500, 5), 60, None, OURS, judge_limit, concurrency=32, alone=True),
        Row("500/s, burst 500", bucket(500, 500), 60, 20, f"{OURS} {PEER}", judge_limit,
            concurrency=32, alone=True, peer_seconds=12),
        Row("20, 5, 40/s, burst 5", moving(moves), moves, moves, low, judge_limit, peer_seconds=180),
        Row("60 in any 6 s", "sliding=60/6s,latency=20ms", 90, None, OURS, judge_limit),
        Row("60 per 6 s", "fixed=60/6s,latency=20ms", 90, None, OURS, judge_limit),
        Row("5/s, Retry-After: 10", bucket(5, 5) + ",retry_after=10", 60, 25, low, judge_hold),
        Row("5/s, Retry-After: exact", bucket(5, 5) + ",retry_after=exact", 60, None, OURS, judge_hold),
        Row("soft block", captcha, 30, 15, f"{OURS_AT} {PEER_AT}", judge_block, busy=True),
        Row("pages of 0.5 ms", "latency=500us", 20, 10, f"{OURS_AT} {PEER_AT}", judge_nothing, busy=True),
        Row("9 hits of 1 ms, 1 miss of 300", "cache=9:1,hit_latency=1ms,latency=300ms", 30, 15,
            f"{OURS_AT} {PEER_AT}", judge_cache),
        Row("20 of 30 ms, 20 of 800 ms", "latency=20x30ms+20x800ms", 60, 30, f"{OURS_AT} {PEER_AT}",
            judge_batches, settings=steady),
        Row("head at once, body in 2 s", "body_time=2s", 30, 15, f"{OURS_AT} {PEER_AT}", judge_target),
        Row("503 at once after 100", unavailable, 30, 12, f"{OURS} {OURS_AT} {PEER_AT}", judge_block,
            busy=True),
        Row("403 whatever the pace", "ban=User-Agent:r", 20, None, f"{OURS_AT} {PEER_AT}",
            judge_nothing, busy=True),
        Row("no reply, timeout 1 s", "fault=hang", 20, None, f"{OURS_AT} {PEER_AT}", judge_peak,
            settings={"DOWNLOAD_TIMEOUT": "1"}),
        *(Row(f"100 ms, target {target}", "latency=100ms", 20, None, f"{OURS_AT} {PEER_AT}", judge_rate,
              target=target, peer_seconds=20, settings=steady) for target in (1, 4, 16)),
    ]


# --- running --------------------------------------------------------------------------------------


class Runner:
    def __init__(self, options):
        self.options = options
        self.children = set()
        self.lock = threading.Lock()
        known = subprocess.run([options.argiope, "settings", "--json"], capture_output=True, text=True)
        self.window_known = '"BACKOFF_WINDOW"' in known.stdout

    def start(self, command, **more):
        child = subprocess.Popen(command, **more)
        with self.lock:
            self.children.add(child)
        return child

    def stop(self, child, how=signal.SIGKILL):
        """Ends a child, by its id."""
        if child.poll() is None:
            child.send_signal(how)
        child.wait(timeout=20)
        with self.lock:
            self.children.discard(child)

    def stop_all(self):
        for child in list(self.children):
            self.stop(child)

    def run(self, row, crawler):
        """Returns the origin's report, notes, and faults."""
        options = self.options
        peer = crawler.startswith("scrapy")
        seconds = options.seconds or (row.quick if options.quick else row.seconds)
        if peer:
            seconds = min(seconds, row.peer_seconds)
            if options.quick and row.judge is not judge_limit:
                seconds = min(seconds, 15)
        window = row.window // 2 if options.quick else row.window
        with tempfile.TemporaryDirectory(prefix="limits-") as scratch:
            scratch = Path(scratch)
            report_file = scratch / "report.json"
            server = self.start(
                [options.server, "--origin", f"name=it,port=0,{row.origin}", "--window", f"{window}s",
                 "--out", str(report_file)],
                stdout=subprocess.PIPE, text=True)
            crawl = None
            notes = []
            try:
                origin = "http://" + json.loads(server.stdout.readline())["listening"]["it"]
                command = self.command(crawler, row, origin, seconds, window, scratch)
                with open(scratch / "log", "w+") as log:
                    crawl = self.start(command, stdout=log, stderr=log, cwd=scratch)
                    ends = time.monotonic() + seconds + (PEER_START if peer else 0)
                    while (left := ends - time.monotonic()) > 0:
                        try:
                            code = crawl.wait(timeout=left)
                        except subprocess.TimeoutExpired:
                            break
                        log.seek(0)
                        last_line = log.read().strip().splitlines()[-1:]
                        notes.append(": ".join([f"ended by itself with {code}", *last_line]))
                        if code != 0:
                            break
                        # The measurement continues: a crawl that stops early has not used the limit.
                        time.sleep(max(0, ends - time.monotonic()))
                # The origin first, so that its figures end while the crawler still runs.
                self.stop(server, signal.SIGTERM)
                report = json.loads(report_file.read_text())
            finally:
                for child in filter(None, (crawl, server)):
                    self.stop(child)
        seen = report["origins"]["it"] | {"window": report["window"]}
        if not seen["requests"]:
            return seen, notes, ["no request came"]
        late = report["late"]
        if late["steps"] and late["over_1ms"] > late["steps"] / 20:
            notes.append(f"the origin was over 1 ms late {late['over_1ms']} times of {late['steps']}")
        return seen, notes, row.judge(seen, row)

    def command(self, crawler, row, origin, seconds, window, scratch):
        settings = {
            "ROBOTSTXT_OBEY": "false",
            "DOWNLOAD_DELAY": "0",
            "CONCURRENT_REQUESTS_PER_DOMAIN": str(row.concurrency),
            **row.settings,
        }
        if crawler.endswith("-at"):
            settings |= {
                "AUTOTHROTTLE_ENABLED": "true",
                "AUTOTHROTTLE_START_DELAY": "0.5",
                "AUTOTHROTTLE_TARGET_CONCURRENCY": str(row.target),
            }
        if crawler.startswith("scrapy"):
            settings["CONCURRENT_REQUESTS"] = str(max(16, row.concurrency))
            command = ["scrapy", "runspider", str(TOOLS / "limits_spider.py"), "-a", f"origin={origin}"]
            extra = []
        else:
            seeds = scratch / "seeds.txt"
            count = min(URLS_MAX, int(seconds * URLS_PER_SECOND))
            with open(seeds, "w") as out:
                out.writelines(f"{origin}/{number}\n" for number in range(1, count + 1))
            settings["DOWNLOAD_DELAY_PER_SLOT"] = "0"
            if self.window_known:
                settings["BACKOFF_WINDOW"] = str(window)
            command = [self.options.argiope, "crawl", "--seeds", str(seeds), "--out", str(scratch / "out"),
                       "--quiet", "--no-warc", "--follow", "none", "--allow-net", "loopback",
                       "--contact", "limits@example.com"]
            extra = self.options.set
        for name, value in settings.items():
            command += ["-s", f"{name}={value}"]
        for pair in extra:
            command += ["-s", pair]
        return command


# --- the report -----------------------------------------------------------------------------------


def percent(share):
    return "" if share is None else f"{share * 100:.0f} %" if share < 0.995 else f"{share * 100:.1f} %"


def line(row, crawler, seen, notes, wrong):
    verdict = "; ".join(wrong) or "ok"
    if not seen["requests"]:
        return [row.name, crawler, *[""] * 8, verdict, "; ".join(notes)]
    marks, shares, after, refused, rounds, cvs = [], [], [], [], [], []
    for phase in seen["phases"]:
        mark = "" if phase["settled"] else "~"
        late = phase["settled"] or phase["last_half"]
        marks.append(mark)
        shares.append(mark + percent(late["share"]))
        after.append("never" if mark else f"{phase['settled_after']:.0f} s")
        refused.append(f"{mark}{late['refused_per_window']:.1f}")
        rounds.append(f"{mark}{late['rounds_per_window']:.1f}")
        cvs.append("" if not late["gap"] or late["gap"]["cv"] is None else f"{late['gap']['cv']:.2f}")
    limited = seen["share"] is not None
    if seen["after_block"]:
        before, block = seen["before_block"], seen["after_block"]
        notes = [f"{before['requests_per_second']:.1f}/s before, {block['requests_per_second']:.1f}/s after;"
                 f" {block['blocked_in_first_ten_seconds']} blocked in the first 10 s", *notes]
    if seen["kinds"]["hit"]:
        misses = seen["phases"][0]["last_half"]["accepted_per_second"]
        notes = [f"{misses:.1f} misses/s", *notes]
    if seen["holds"]["asked"]:
        notes = [f"{seen['holds']['asked']} holds asked for, {seen['holds']['undercut']} undercut", *notes]
    if limited:
        notes = [f"{seen['refused']} of {seen['requests']} refused", *notes]
    return [
        row.name,
        crawler,
        f"{seen['requests_per_second']:.1f}",
        percent(seen["share"]),
        " / ".join(shares) if limited else "",
        " / ".join(after) if limited else "",
        " / ".join(refused) if limited else "",
        " / ".join(rounds) + f" ({seen['largest_round']})" if limited else "",
        str(seen["peak_in_flight"]),
        " / ".join(cvs),
        verdict,
        "; ".join(notes),
    ]


HEAD = ["origin", "crawler", "requests/s", "share", "share, settled", "settled", "refused", "rounds",
        "peak", "gap CV", "verdict", "notes"]


def table(lines):
    widths = [max(len(cells[column]) for cells in [HEAD, *lines]) for column in range(len(HEAD))]
    rule = ["-" * width for width in widths]
    for cells in [HEAD, rule, *lines]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--argiope", default=str(RELEASE / "argiope"), help="the crawler to judge")
    parser.add_argument("--server", default=str(RELEASE / "examples" / "fault_server"))
    parser.add_argument("-s", dest="set", action="append", default=[], metavar="NAME=VALUE",
                        help="one more setting for argiope, over those of the row")
    parser.add_argument("--seconds", type=int, help="each run takes so long")
    parser.add_argument("--only", action="append", metavar="NAME", help="rows with this in their name")
    parser.add_argument("--crawler", action="append", choices=[OURS, OURS_AT, PEER, PEER_AT],
                        help="these crawlers only, in each row they are in")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="Scrapy too")
    parser.add_argument("--quick", action="store_true", help="the main rows, with shorter windows")
    parser.add_argument("--jobs", type=int, default=5, help="runs at once, of those that ask for little")
    parser.add_argument("--json", metavar="FILE",
                        help="all that the origins saw; in a directory as DATE-limits-COMMIT.json")
    parser.add_argument("--check", action="store_true", help="exit with 1 if an argiope row is not ok")
    return parser.parse_args()


def peers_are_there(options):
    if not options.peers:
        return False
    found = shutil.which("scrapy")
    version = found and subprocess.run(["scrapy", "version"], capture_output=True, text=True).stdout.split()
    if not version:
        print(f"Scrapy is not installed, its rows are skipped: pip install scrapy=={SCRAPY}", file=sys.stderr)
        return False
    if version[-1] != SCRAPY:
        print(f"Scrapy {version[-1]} is not {SCRAPY}, the version of the published figures: pip install scrapy=={SCRAPY}",
              file=sys.stderr)
    return True


def main():
    options = read_options()
    for program in (options.argiope, options.server):
        if not Path(program).exists():
            sys.exit(f"{program} does not exist: cargo build --release, and with --example fault_server")
    peers = peers_are_there(options)
    runner = Runner(options)
    if not runner.window_known:
        print("this argiope has no BACKOFF_WINDOW; it runs without", file=sys.stderr)
    runs = [
        (row, crawler)
        for row in rows(options.quick)
        if (row.quick or not options.quick)
        and (not options.only or any(name in row.name for name in options.only))
        for crawler in row.crawlers.split()
        if (peers or not crawler.startswith("scrapy")) and (not options.crawler or crawler in options.crawler)
    ]
    alone = [run for run in runs if run[0].alone]
    # A crawler without throttling uses a whole core.
    busy = [run for run in runs if not run[0].alone and (run[0].busy or run[1] == PEER)]
    together = [run for run in runs if run not in alone and run not in busy]
    # The longest first, so that the last ones do not leave cores idle.
    together.sort(key=lambda run: -run[0].seconds)
    done = {}

    def run(pair):
        row, crawler = pair
        began = time.monotonic()
        try:
            done[row.name, crawler] = runner.run(row, crawler)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            done[row.name, crawler] = {"requests": 0}, [], [f"could not be run: {error}"]
        wrong = "; ".join(done[row.name, crawler][2]) or "ok"
        print(f"{row.name}: {crawler}: {wrong} ({time.monotonic() - began:.0f} s)", file=sys.stderr)

    # Run the `finally` clauses, which end the children.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    try:
        for some, at_once in ((together, options.jobs), (busy, 2), (alone, 1)):
            pool = ThreadPoolExecutor(at_once)
            try:
                list(pool.map(run, some))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    finally:
        runner.stop_all()
        runs = [(row, crawler) for row, crawler in runs if (row.name, crawler) in done]
        print_report(runs, done, options)
    ours_wrong = any(done[row.name, crawler][2] for row, crawler in runs if crawler.startswith(OURS))
    sys.exit(1 if options.check and ours_wrong else 0)


def print_report(runs, done, options):
    table([line(row, crawler, *done[row.name, crawler]) for row, crawler in runs])
    if options.json:
        seen = [
            {"row": row.name, "crawler": crawler, "seen": seen, "notes": notes, "wrong": wrong}
            for row, crawler in runs
            for seen, notes, wrong in [done[row.name, crawler]]
        ]
        raw.write(options.json, raw.header("limits", 1), quick=options.quick, seen=seen)


if __name__ == "__main__":
    main()
