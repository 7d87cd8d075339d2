#!/usr/bin/env python3
"""How long a crawl sends nothing while it is upgraded: stopped with SIGTERM, and resumed by the same binary.

    tools/upgrade.py [--hosts N] [--pages N] [--rounds N] [--learned] [--argiope FILE] [--json FILE]
        [-s NAME=VALUE]...

A crawl of `hosts` x `pages` URLs runs against a server that answers at once, so that its drain takes no time.
In each round, once the crawl sends, it gets SIGTERM and is resumed as soon as it has ended. The server notes
when requests arrive. Each host has its own address name, and none waits for a delay that the stop began.
`--learned`: robots.txt is obeyed, and the state has for each host its rules, a Crawl-delay and a learned gap, for
one in ten a hold of an hour in place of the gap. They are written into the state before the first round.

The output is one line of JSON: for each round the seconds from the last request before the stop to the first
one after it, how many of them passed until the old process had ended, and the longest time without a request
in the second that followed.
"""

import json
import os
import resource
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

from durable_size import Crawl, give_seeds, keep, options_of

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"


class Server:
    """Answers each request at once, and notes when it came."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.asked = []
        self.robots = 0
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    connection, _ = self.listener.accept()
                    self.selector.register(connection, selectors.EVENT_READ)
                else:
                    self.answer(key.fileobj)

    def answer(self, connection):
        try:
            received = connection.recv(65536)
            if received:
                self.asked.append(time.monotonic())
                self.robots += received.startswith(b"GET /robots.txt")
                connection.send(ANSWER)
                return
        except OSError:
            pass
        self.selector.unregister(connection)
        connection.close()


class Segment:
    """The newest segment of a journal, to which records are appended: see src/state/journal.rs and record.rs."""

    CRAWL_DELAY, EPOCH_END, COMMIT, FACT, QUIET = 11, 8, 9, 14, 15
    SCOPE, ROBOTS = 1, 2

    def __init__(self, state):
        names = sorted(name for name in os.listdir(state) if name.startswith("journal-"))
        self.file = open(f"{state}/{names[-1]}", "r+b")
        bytes_ = self.file.read()
        self.place = zlib.crc32(bytes_[:28])
        self.offset = 32
        while self.offset < len(bytes_):
            length = int.from_bytes(bytes_[self.offset : self.offset + 4], "little")
            payload = bytes_[self.offset + 8 : self.offset + 8 + length]
            if payload[0] == self.COMMIT:
                self.commit = payload
            self.offset += 8 + length

    def append(self, payload):
        length = struct.pack("<I", len(payload))
        checksum = zlib.crc32(struct.pack("<Q", self.offset) + length + payload, self.place)
        self.file.write(length + struct.pack("<I", checksum) + payload)
        self.offset += 8 + len(payload)

    def append_fact(self, about, name, value):
        now = number(time.time_ns())
        self.append(bytes([self.FACT, about]) + now + text(name.encode()) + text(value))

    def append_commit(self):
        """Commits what was appended, with the results of the last commit; nothing was sent since."""
        epoch, rest = read_number(self.commit[1:])
        self.append(bytes([self.QUIET]))
        self.append(bytes([self.EPOCH_END]) + number(epoch + 1))
        self.append(bytes([self.COMMIT]) + number(epoch + 1) + rest)
        self.file.close()


def number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_number(bytes_):
    value = 0
    for at, byte in enumerate(bytes_):
        value |= (byte & 127) << 7 * at
        if byte < 128:
            return value, bytes_[at + 1 :]
    raise ValueError("a number has no end")


def text(bytes_):
    return number(len(bytes_)) + bytes_


def field(label, bytes_):
    return bytes([label]) + text(bytes_)


def write_learned(state, hosts, port):
    """Writes rules, Crawl-delays and learned gaps or holds into the state of a crawl that is stopped."""
    second, hour = 10**9, 3600 * 10**9
    paths = [b"/private/", b"/search", b"/cgi-bin/*.cgi$"]
    heads = b"".join(number(len(path) << 1) + number(line) for line, path in enumerate(paths, 1))
    rules = struct.pack("<QQ", second + 1, len(heads)) + heads + b"".join(paths)
    lifetime = struct.pack("<Q", 24 * hour)
    robots = b"\x01" + field(1, lifetime) + field(2, b"argiope") + field(3, rules)
    limits = b"\x01" + field(3, struct.pack("<qqIBB", 2 * second, second, 1, 1, 1))
    hold = b"\x01" + field(1, struct.pack("<QB", hour, 0))
    segment = Segment(state)
    for host in range(hosts):
        name = f"h{host}.test"
        segment.append_fact(Segment.ROBOTS, f"http://{name}:{port}", robots)
        segment.append_fact(Segment.SCOPE, name, hold if host % 10 == 0 else limits)
        segment.append(bytes([Segment.CRAWL_DELAY]) + number(second) + text(name.encode()))
    segment.append_commit()


def longest_pause(times):
    return max((after - before for before, after in zip(times, times[1:])), default=0.0)


def main():
    parser = options_of(__doc__, hosts=1_000_000, pages=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learned", action="store_true")
    options = parser.parse_args()
    server = Server()
    folder = tempfile.mkdtemp(prefix="upgrade-", dir=options.folder)
    # Few at a time: the server is slow, and few pages end before all seeds are taken.
    settings = ["CONCURRENT_REQUESTS=4", "ROBOTSTXT_OBEY=false", *options.settings]
    arguments = ["--resolve", f"*:{server.port}:127.0.0.1", "--allow-net", "loopback", "--no-warc"]
    arguments += ["--follow", "none", "--contact", "mailto:nobody@example.test", "--out", f"{folder}/crawl"]
    for setting in settings:
        arguments += ["-s", setting]
    rounds = []
    try:
        crawl = Crawl(options, [*arguments, "--seeds", "-"], subprocess.PIPE)
        give_seeds(options, server.port, crawl.process.stdin)
        # What was read from a pipe is in the frontier once that many are counted as queued or sent.
        while (count := crawl.count()) is None or count + len(server.asked) < options.hosts * options.pages:
            time.sleep(0.2)
        if options.learned:
            crawl.process.send_signal(signal.SIGTERM)
            crawl.process.wait()
            write_learned(f"{folder}/crawl/state", options.hosts, server.port)
            server.robots = 0
            arguments = ["--resume", "--out", f"{folder}/crawl", "-s", "ROBOTSTXT_OBEY=true"]
            crawl = Crawl(options, arguments, subprocess.DEVNULL)
            # It has written its state anew.
            count = len(server.asked)
            while len(server.asked) == count:
                crawl.count()
        for _ in range(options.rounds):
            time.sleep(2)
            crawl.process.send_signal(signal.SIGTERM)
            crawl.process.wait()
            ended = time.monotonic()
            before = server.asked[-1]
            count = len(server.asked)
            crawl = Crawl(options, ["--resume", "--out", f"{folder}/crawl"], subprocess.DEVNULL)
            while len(server.asked) == count:
                if crawl.process.poll() is not None:
                    sys.exit(f"the crawl ended with {crawl.process.returncode}:\n{''.join(crawl.said)}")
                time.sleep(0.01)
            first = server.asked[count]
            time.sleep(max(0, first + 1 - time.monotonic()))
            rounds.append({
                "without_sends": round(first - before, 3),
                "until_ended": round(ended - before, 3),
                "longest_after": round(longest_pause(server.asked[count:]), 3),
                "left": crawl.queued,
            })
        crawl.kill()
        if server.robots:
            sys.exit(f"{server.robots} robots.txt were asked for though the state has them")
        print(json.dumps({"hosts": options.hosts, "urls": options.hosts * options.pages,
                          "learned": options.learned, "settings": options.settings, "rounds": rounds}))
        keep(options, "upgrade", rounds)
    finally:
        crawl.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    main()
