#!/usr/bin/env python3
"""How long a crawl sends nothing while it is upgraded: stopped with SIGTERM, and resumed by the same binary.

    tools/upgrade.py [--hosts N] [--pages N] [--rounds N] [--argiope FILE] [--json FILE] [-s NAME=VALUE]...

A crawl of `hosts` x `pages` URLs runs against a server that answers at once, so that its drain takes no time.
In each round, once the crawl sends, it gets SIGTERM and is resumed as soon as it has ended. The server notes
when requests arrive. Each host has its own address name, and none waits for a delay that the stop began.

The output is one line of JSON: for each round the seconds from the last request before the stop to the first
one after it, how many of them passed until the old process had ended, and the longest time without a request
in the second that followed.
"""

import json
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from durable_size import Crawl, give_seeds, keep, options_of

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"


class Server:
    """Answers each request at once, and notes when it came."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.asked = []
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
                connection.send(ANSWER)
                return
        except OSError:
            pass
        self.selector.unregister(connection)
        connection.close()


def longest_pause(times):
    return max((after - before for before, after in zip(times, times[1:])), default=0.0)


def main():
    parser = options_of(__doc__, hosts=1_000_000, pages=1)
    parser.add_argument("--rounds", type=int, default=3)
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
        print(json.dumps({"hosts": options.hosts, "urls": options.hosts * options.pages,
                          "settings": options.settings, "rounds": rounds}))
        keep(options, "upgrade", rounds)
    finally:
        crawl.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    main()
