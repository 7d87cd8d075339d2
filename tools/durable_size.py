#!/usr/bin/env python3
"""Memory, disk and time of a large frontier: admitted, killed with `kill -9`, and resumed.

    tools/durable_size.py [--hosts N] [--pages N] [--by-pages] [--without-state] [--argiope FILE] [--json FILE]
        [-s NAME=VALUE]...

A crawl reads `hosts` x `pages` URLs from its standard input. Its only slot is held by a server that accepts
connections and never answers, so that everything else stays queued. Once all are queued, the crawl is killed
and resumed. The resume has loaded its state when it counts all of them as queued or in flight; it sends when
the server sees its connection. `--by-pages` gives the first page of each host, then the second of each, and
so on: the order in which hosts share least. `--without-state` measures admission alone, without a directory.

The output is one line of JSON: seconds, megabytes (10^6 bytes) and bytes per URL. Memory is "settled" once what
was freed has been given back to the system. The longest turn is that of most processor time, in milliseconds.
The longest stall is the most processor time, in milliseconds, between two readings of the clock by a thread that
does nothing else while the crawl is idle: interrupts, and what a virtual machine counts while its host runs others.
It fails if a URL is lost. `--json` keeps the numbers as raw results (tools/raw.py): in a file, or in a directory
under their name.
"""

import argparse
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import raw

LINES_PER_WRITE = 5000
MEGABYTE = 1e6
# Seconds after which freed memory has been given back to the system.
SETTLING = 40


class BlackHole:
    """Accepts connections on a port of its own, reads them and never answers."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.asked = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.read, args=(connection,), daemon=True).start()

    def read(self, connection):
        try:
            while connection.recv(65536):
                self.asked.append(time.monotonic())
        except OSError:
            pass


class Crawl:
    """A running crawl, with what it says on standard error."""

    def __init__(self, options, arguments, standard_input):
        command = [options.argiope, "crawl", *arguments]
        output = subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, stdin=standard_input, stdout=output, stderr=subprocess.PIPE, text=True
        )
        self.began = time.monotonic()
        self.said = []
        self.queued = None
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stderr:
            self.said = [*self.said[-20:], line]
            if counts := re.search(r"(\d+) in flight  (\d+) queued", line):
                self.queued = sum(map(int, counts.groups()))

    def count(self):
        """How many requests it has, or None if it does not say so within a second."""
        if self.process.poll() is not None:
            sys.exit(f"the crawl ended with {self.process.returncode}:\n{''.join(self.said)}")
        if not int(self.status("SigCgt"), 16) & 1 << signal.SIGUSR1 - 1:
            return None
        self.queued = None
        self.process.send_signal(signal.SIGUSR1)
        until = time.monotonic() + 1
        while self.queued is None and time.monotonic() < until:
            time.sleep(0.02)
        return self.queued

    def wait_for(self, total):
        while (count := self.count()) != total:
            if count is not None and count > total:
                sys.exit(f"{count} requests of {total}")
            time.sleep(0.2)
        return time.monotonic() - self.began

    def memory(self):
        """Resident bytes now, and at most."""
        return [int(self.status(name).split()[0]) * 1024 for name in ("VmRSS", "VmHWM")]

    def status(self, name):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return dict(line.split(":", 1) for line in status)[name]

    def processor_time(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self):
        self.process.kill()
        self.process.wait()


def give_seeds(options, port, file):
    """Writes the seeds; a host's pages in a row unless `--by-pages`."""
    hosts, pages = range(options.hosts), range(options.pages)
    if options.by_pages:
        numbers = ((host, page) for page in pages for host in hosts)
    else:
        numbers = ((host, page) for host in hosts for page in pages)
    lines = []
    for host, page in numbers:
        lines.append(f"http://h{host}.test:{port}/{page}\n")
        if len(lines) == LINES_PER_WRITE:
            file.write("".join(lines))
            lines.clear()
    file.write("".join(lines))
    file.close()


def options_of(description, hosts, pages):
    """The options of a crawl of so many hosts and pages by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=hosts)
    parser.add_argument("--pages", type=int, default=pages)
    parser.add_argument("--by-pages", action="store_true")
    parser.add_argument("--argiope", default="target/release/argiope")
    parser.add_argument("--folder", help="where the crawl writes; a new one by default")
    parser.add_argument("--json", help="where the raw results go: a file or a directory")
    parser.add_argument("-s", dest="settings", action="append", default=[])
    return parser


def keep(options, tool, rounds):
    """Keeps the numbers of all rounds as raw results, if that is asked for."""
    if options.json:
        names = [name for name, value in rounds[0].items() if isinstance(value, (int, float))]
        seen = {name: [[of_round[name]] for of_round in rounds] for name in names}
        raw.write(options.json, raw.header(tool, len(rounds)), argiope=raw.binary(options.argiope), seen=seen)


def settle():
    """Waits until freed memory is given back; returns the longest stall, in milliseconds."""
    longest, last = 0, time.thread_time_ns()
    until = time.monotonic() + SETTLING
    while time.monotonic() < until:
        now = time.thread_time_ns()
        longest, last = max(longest, now - last), now
    return longest / 1e6


def longest_turn(folder):
    """The most processor time of a turn, in milliseconds."""
    with open(f"{folder}/crawl/stats.json", encoding="utf-8") as stats:
        return round(1000 * json.load(stats)["lag_processor_max"], 2)


def size_of(folder):
    """Bytes on disk of each kind of file, by the name up to its number."""
    sizes = {}
    for entry in os.scandir(folder):
        kind = entry.name.split("-")[0].split(".")[0]
        sizes[kind] = sizes.get(kind, 0) + entry.stat().st_blocks * 512
    return sizes


def main():
    parser = options_of(__doc__, hosts=100_000, pages=10)
    parser.add_argument("--without-state", action="store_true")
    options = parser.parse_args()
    total = options.hosts * options.pages
    hole = BlackHole()
    folder = tempfile.mkdtemp(prefix="durable-size-", dir=options.folder)
    settings = ["CONCURRENT_REQUESTS=1", "ROBOTSTXT_OBEY=false", "FRONTIER_MAX=0", *options.settings]
    arguments = ["--resolve", f"*:{hole.port}:127.0.0.1", "--allow-net", "loopback", "--no-warc"]
    arguments += ["--follow", "none", "--timeout", "1d", "--contact", "mailto:nobody@example.test"]
    for setting in settings:
        arguments += ["-s", setting]
    arguments += ["--results", "-"] if options.without_state else ["--out", f"{folder}/crawl"]
    result = {"hosts": options.hosts, "urls": total, "settings": options.settings}
    try:
        crawl = Crawl(options, [*arguments, "--seeds", "-"], subprocess.PIPE)
        give_seeds(options, hole.port, crawl.process.stdin)
        took = crawl.wait_for(total)
        now, peak = crawl.memory()
        result |= {
            "admission": round(took, 1),
            "urls_per_second": round(total / took),
            "processor_seconds": round(crawl.processor_time(), 1),
            "memory": round(now / MEGABYTE),
            "memory_peak": round(peak / MEGABYTE),
            "memory_per_url": round(now / total, 1),
        }
        if options.without_state:
            crawl.kill()
            print(json.dumps(result))
            keep(options, "durable_size", [result])
            return
        # The last commit; and what was freed goes back to the system.
        stall = settle()
        result["memory_settled"] = round(crawl.memory()[0] / MEGABYTE)
        crawl.kill()
        result["longest_turn"] = longest_turn(folder)
        sizes = size_of(f"{folder}/crawl/state")
        result["disk"] = {kind: round(size / MEGABYTE) for kind, size in sizes.items()}
        result["disk_per_url"] = round(sum(sizes.values()) / total, 1)
        hole.asked.clear()
        crawl = Crawl(options, ["--resume", "--out", f"{folder}/crawl"], subprocess.DEVNULL)
        result["loaded"] = round(crawl.wait_for(total), 1)
        now, peak = crawl.memory()
        result |= {"memory_resumed": round(now / MEGABYTE), "memory_peak_resumed": round(peak / MEGABYTE)}
        while not hole.asked:
            crawl.count()
            time.sleep(0.1)
        result["first_request"] = round(hole.asked[0] - crawl.began, 1)
        stall = max(stall, settle())
        result["memory_resumed_settled"] = round(crawl.memory()[0] / MEGABYTE)
        crawl.kill()
        result["longest_turn_resumed"] = longest_turn(folder)
        result["longest_stall"] = round(stall, 2)
        print(json.dumps(result))
        keep(options, "durable_size", [result])
    finally:
        crawl.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    main()
