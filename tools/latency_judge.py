#!/usr/bin/env python3
"""Compares reported latency with captured packets.

    cargo build --release --example stalling_crawl
    tools/latency_judge.py                       # argiope and the peers that are installed
    tools/latency_judge.py --check --only argiope  # exits 1 if a target is missed
    tools/latency_judge.py --io epoll --busy 0,50 --requests 2000
    tools/latency_judge.py --json docs/benchmarks/raw   # write the errors of every request

Needs root and tcpdump. A server on loopback answers each request after 20 to 50 ms, most of them in one
segment. For one in four the body follows 2 to 30 ms after the head; for one in eight the server computes
for 0.3 to 1 ms between the two without yielding its processor, which may be the one on which the crawler
would wake. The crawler keeps 32 requests in flight, each to its own address, and after each page keeps its
thread busy for 0, 20 or 50 ms. tcpdump captures the packets with kernel timestamps in nanoseconds. For
each request these are compared:

  argiope   `server_latency`: from the packet with the request's first byte to the packet with the
            last byte of the head. -kept: over few addresses, on kept connections; -tls: from the last
            packet of the request to the record of the head
  peers     from TCP established (the packet with SYN and ACK) to the last byte of the head, which is
            what Scrapy's `download_latency`, aiohttp's trace and libcurl's times mean

An error is the reported value minus the true one, in microseconds. `exact`: median, 99th percentile and
maximum of the absolute error of samples that are not labelled a bound (peers label none). `bounds`: the
share that is labelled, and the lowest error among them, which must not be negative. `slack`: how many of
them exceed the true value by more than their slack. `established`: median and 99th percentile of the
absolute error of the time at which TCP was established.
"""

import argparse
import asyncio
import importlib.util
import json
import random
import shutil
import signal
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import raw

TOOLS = Path(__file__).resolve().parent
CRAWL = TOOLS.parent / "target" / "release" / "examples" / "stalling_crawl"
PEERS = ["scrapy", "aiohttp", "pycurl"]
KEPT_ADDRESSES = 8
IN_FLIGHT = 32
# Two clocks of one kernel, read one after the other.
CLOCKS_AGREE = 2.0

BODY = b"x" * 1000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n"

# --- the server -----------------------------------------------------------------------------------


class Origin(asyncio.Protocol):
    """Answers /DELAY/GAP/NUMBER, in milliseconds; with a gap the body is sent that much after the head.
    During a gap that ends in `c` the server computes, otherwise it sleeps."""

    def connection_made(self, transport):
        self.transport = transport
        self.received = b""

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            request, self.received = self.received.split(b"\r\n\r\n", 1)
            _, delay, gap, _ = request.split(b" ")[1].split(b"/")
            computes = gap.endswith(b"c")
            gap = float(gap.rstrip(b"c")) / 1000
            asyncio.get_running_loop().call_later(int(delay) / 1000, self.answer, gap, computes)

    def answer(self, gap, computes):
        if computes:
            self.transport.write(HEAD)
            ends = time.perf_counter() + gap
            while time.perf_counter() < ends:
                pass
            self.transport.write(BODY)
        elif gap:
            self.transport.write(HEAD)
            asyncio.get_running_loop().call_later(gap, self.transport.write, BODY)
        else:
            self.transport.write(HEAD + BODY)


def serve(certificate):
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)

    async def run():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Origin, "0.0.0.0", 0, backlog=4096, ssl=tls)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(run())


def urls_for(port, requests, kept, tls, seed):
    chance = random.Random(seed)
    scheme = "https" if tls else "http"
    for number in range(requests):
        delay = chance.randint(20, 50)
        kind = chance.random()
        gap = chance.randint(2, 30) if kind < 0.25 else 0
        if kind > 0.875:
            gap = f"{chance.randint(3, 10) / 10}c"
        host = number % KEPT_ADDRESSES if kept else number
        yield f"{scheme}://127.1.{host // 250}.{host % 250 + 1}:{port}/{delay}/{gap}/{number}"


# --- the packets ----------------------------------------------------------------------------------


@dataclass
class Truth:
    """Times on the wire, in nanoseconds."""

    established: int | None
    request: int
    head: int


def packets(path):
    """Time, source, target, SYN, sequence number and data of each TCP packet."""
    raw = path.read_bytes()
    magic, *_, link = struct.unpack_from("<IHHiIII", raw)
    assert magic == 0xA1B23C4D and link == 1, "nanoseconds and Ethernet are what was asked for"
    at = 24
    while at + 16 <= len(raw):
        seconds, nanos, kept, length = struct.unpack_from("<IIII", raw, at)
        ip = raw[at + 16 + 14 : at + 16 + kept]
        at += 16 + kept
        assert kept == length, "packets are captured whole"
        tcp = ip[(ip[0] & 15) * 4 : struct.unpack_from("!H", ip, 2)[0]]
        source, target, sequence, _, offset, flags = struct.unpack_from("!HHIIBB", tcp)
        ends = ((ip[12:16], source), (ip[16:20], target))
        yield seconds * 10**9 + nanos, *ends, flags & 2, sequence, tcp[(offset >> 4) * 4 :]


def conversations(path, port):
    """Packets with data by connection, without retransmissions; and when each was established."""
    streams, established, seen = defaultdict(list), {}, {}
    for at, source, target, syn, sequence, data in packets(path):
        is_ours = target[1] == port
        key = (source, target) if is_ours else (target, source)
        if syn:
            if is_ours:
                streams.pop(key, None), seen.pop(key, None)
            else:
                established[key] = at
        elif data:
            known = seen.setdefault(key, set())
            if (is_ours, sequence) not in known:
                known.add((is_ours, sequence))
                streams[key].append((at, is_ours, data))
    return streams, established


def truths(path, port):
    """The true times of each request, by its path."""
    streams, established = conversations(path, port)
    all_of_them = {}
    for key, stream in streams.items():
        asked, received = None, b""
        fresh = established.get(key)
        for at, is_ours, data in stream:
            if is_ours and data.startswith(b"GET "):
                asked, received = (data.split(b" ")[1].decode(), at), b""
            elif not is_ours and asked:
                received += data
                if b"\r\n\r\n" in received:
                    all_of_them[asked[0]] = Truth(fresh, asked[1], at)
                    asked = fresh = None
    return all_of_them


def tls_truths(path, port, reports):
    """The same for TLS, where paths are encrypted: one request per connection, identified by its ends.

    With TLS 1.3 our second record of application data is the request, after the handshake's end. The
    head is alone in its record or together with the body, and identified by the record's length.
    """
    streams, established = conversations(path, port)
    all_of_them = {}
    for line in reports:
        ends = [line["local"], line["remote"]]
        ends = [end.rsplit(":", 1) for end in ends]
        key = tuple((bytes(map(int, host.split("."))), int(number)) for host, number in ends)
        name = path_of(line["url"])
        ours, theirs = Records(), Records()
        asked, request = 0, None
        lengths = [len(HEAD) + 17, len(HEAD) + len(BODY) + 17]
        for at, is_ours, data in streams.get(key, []):
            records = (ours if is_ours else theirs).take(data)
            if is_ours and request is None:
                asked += sum(kind == 23 for kind, _ in records)
                request = at if asked == 2 else None
            elif request and any(kind == 23 and length in lengths for kind, length in records):
                all_of_them[name] = Truth(established.get(key), request, at)
                break
    return all_of_them


class Records:
    """The TLS records of one direction: type and length of each complete record."""

    def __init__(self):
        self.held = b""

    def take(self, data):
        self.held += data
        complete = []
        while len(self.held) >= 5 and len(self.held) >= 5 + int.from_bytes(self.held[3:5]):
            length = int.from_bytes(self.held[3:5])
            complete.append((self.held[0], length))
            self.held = self.held[5 + length :]
        return complete


def path_of(url):
    return "/" + url.split("/", 3)[3]


# --- a run ----------------------------------------------------------------------------------------


@dataclass
class Judged:
    row: str
    busy: int
    missing: int
    exact: list
    bounds: list
    slack_exceeded: int
    established: list

    def total(self):
        return len(self.exact) + len(self.bounds)

    def share(self):
        return len(self.bounds) / max(self.total(), 1)


def percentile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else float("nan")


def run(row, command, busy, options):
    kept, tls = row.endswith("-kept"), row.endswith("-tls")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        certificate = make_certificate(folder) if tls else ""
        server = subprocess.Popen(
            [sys.executable, __file__, "--serve", certificate or "-"], stdout=subprocess.PIPE, text=True
        )
        try:
            port = int(server.stdout.readline())
            urls = list(urls_for(port, options.requests, kept, tls, busy))
            capture = folder / "wire.pcap"
            dump = listen(port, capture)
            try:
                crawl = subprocess.run(
                    [*command, str(busy)],
                    input="\n".join(urls),
                    stdout=subprocess.PIPE,
                    text=True,
                    timeout=60 + options.requests * (busy + 20) / 1000,
                )
                # tcpdump receives captured packets in blocks.
                time.sleep(1)
            finally:
                dump.send_signal(signal.SIGINT)
                end_of_dump(dump)
        finally:
            server.kill()
            server.wait()
        if crawl.returncode != 0:
            raise SystemExit(f"{row}: exit code {crawl.returncode}")
        reports = [json.loads(line) for line in crawl.stdout.splitlines() if line.startswith("{")]
        true = tls_truths(capture, port, reports) if tls else truths(capture, port)
    return judge(row, busy, reports, true, options.requests)


def listen(port, capture):
    dump = subprocess.Popen(
        ["tcpdump", "-i", "lo", "-n", "-U", "-s", "0", "-B", "65536", "-Z", "root", "-w", capture]
        + ["--time-stamp-precision=nano", f"tcp port {port}"],
        stderr=subprocess.PIPE,
        text=True,
    )
    while "listening on" not in (line := dump.stderr.readline()):
        if not line:
            raise SystemExit("tcpdump cannot listen: it needs root")
    return dump


def end_of_dump(dump):
    _, output = dump.communicate(timeout=20)
    for line in output.splitlines():
        if "dropped by kernel" in line and not line.startswith("0 "):
            print(f"  {line}: some requests cannot be compared", file=sys.stderr)


def make_certificate(folder):
    both = folder / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        + ["-subj", "/CN=judge", "-keyout", folder / "key.pem", "-out", folder / "certificate.pem"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    both.write_text((folder / "key.pem").read_text() + (folder / "certificate.pem").read_text())
    return str(both)


def judge(row, busy, reports, true, requests):
    judged = Judged(row, busy, 0, [], [], 0, [])
    for line in reports:
        truth = true.get(path_of(line["url"]))
        reported = line.get("server_latency", line["latency"])
        if truth is None or reported is None:
            continue
        begin = truth.request if "server_latency" in line else truth.established
        error = reported * 1e6 - (truth.head - begin) / 1000
        if line.get("label", "exact") == "exact":
            judged.exact.append(error)
        else:
            judged.bounds.append(error)
            judged.slack_exceeded += error > line["slack"] * 1e6 + CLOCKS_AGREE
        if line.get("connect_wall") and truth.established and not line["reused"]:
            judged.established.append((line["connect_wall"] - truth.established) / 1000)
    judged.missing = requests - judged.total()
    return judged


# --- the verdict ----------------------------------------------------------------------------------


def show(judged):
    size = [abs(error) for error in judged.exact]
    bounds = f"{judged.share():5.1%}"
    if judged.bounds:
        bounds += f" {min(judged.bounds):8.1f} {judged.slack_exceeded:5d}"
    else:
        bounds += f" {'':8} {'':5}"
    established = [abs(error) for error in judged.established]
    moments = "".join(f" {percentile(established, share):8.1f}" for share in (0.5, 0.99))
    print(
        f"{judged.row:20} {judged.busy:4d} {judged.total():6d} {judged.missing:5d}"
        f" {statistics.median(size) if size else float('nan'):10.1f}"
        f" {percentile(size, 0.99):10.1f} {max(size, default=float('nan')):10.1f}  {bounds}"
        f"{moments if established else ''}",
        flush=True,
    )


def kept_of(judged):
    """The raw results of a run: errors in µs, of `server_latency` and of the moment of connecting."""
    def rounded(errors):
        return [round(error, 1) for error in errors]

    return {"exact": rounded(judged.exact), "bounds": rounded(judged.bounds), "missing": judged.missing,
            "slack_lies": judged.slack_exceeded, "established": rounded(judged.established)}


def wrong_with(judged):
    size = [abs(error) for error in judged.exact]
    is_uring = judged.row.startswith("argiope-uring")
    if judged.missing:
        yield f"{judged.missing} requests have no figure or no packets"
    if judged.busy == 0 and percentile(size, 0.99) > 25:
        yield f"p99 is {percentile(size, 0.99):.1f} µs, more than 25"
    if is_uring and percentile(size, 0.99) > 50:
        yield f"p99 is {percentile(size, 0.99):.1f} µs, more than 50"
    if is_uring and judged.share() >= 0.01:
        yield f"{judged.share():.1%} are bounds, not under 1 %"
    if not is_uring and max(size, default=0) > 50:
        yield f"one that is not labelled a bound is off by {max(size):.1f} µs, more than 50"
    if judged.bounds and min(judged.bounds) < -CLOCKS_AGREE:
        yield f"a bound is {-min(judged.bounds):.1f} µs below the truth"
    if judged.slack_exceeded:
        yield f"{judged.slack_exceeded} bounds are further off than their slack"


def commands(options):
    for name in options.io.split(","):
        crawl = [CRAWL, "-s", f"IO={name}", "-s", f"CONCURRENT_REQUESTS={IN_FLIGHT}"]
        knows = subprocess.run([*crawl, "0"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if knows.returncode != 0:
            print(f"SKIPPED argiope-{name}: {knows.stderr.strip()}", file=sys.stderr)
            continue
        for kind, more in {"": [], "-kept": KEPT, "-tls": TLS}.items():
            yield f"argiope-{name}{kind}", [*crawl, *more]
    for peer in PEERS:
        if importlib.util.find_spec(peer) is None:
            print(f"SKIPPED {peer}: it is not installed", file=sys.stderr)
        else:
            yield peer, [sys.executable, TOOLS / "latency_peers.py", peer]


KEPT = ["-s", f"CONCURRENT_REQUESTS_PER_DOMAIN={IN_FLIGHT // KEPT_ADDRESSES}"]
TLS = ["-s", "INSECURE=true"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--io", default="epoll,uring", help="back ends of argiope (epoll,uring)")
    parser.add_argument("--busy", default="0,20,50", help="milliseconds per page (0,20,50)")
    parser.add_argument("--requests", type=int, default=400, help="per run (400)")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--check", action="store_true", help="exit 1 where argiope misses a target")
    parser.add_argument("--json", metavar="FILE",
                        help="every error, in µs; in a directory as DATE-latency_judge-COMMIT.json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve("" if options.serve == "-" else options.serve)
    if not CRAWL.exists():
        raise SystemExit("build first: cargo build --release --example stalling_crawl")
    if shutil.which("tcpdump") is None:
        raise SystemExit("tcpdump is not installed")
    print(f"{'':25} {'':12} {'exact: error in µs':^32}  {'bounds':^20} {'established':^17}")
    print(
        f"{'':20} {'busy':>4} {'n':>6} {'lost':>5} {'median':>10} {'p99':>10} {'max':>10} "
        f" {'share':>5} {'lowest':>8} {'slack':>5} {'median':>8} {'p99':>8}"
    )
    wrong, seen = [], {}
    for row, command in commands(options):
        if options.only not in row:
            continue
        for busy in map(int, options.busy.split(",")):
            judged = run(row, command, busy, options)
            show(judged)
            seen[f"{row}-{busy}"] = kept_of(judged)
            if row.startswith("argiope"):
                wrong += [f"{row}, busy {busy} ms: {fault}" for fault in wrong_with(judged)]
    if options.json:
        raw.write(options.json, raw.header("latency_judge", 1), requests=options.requests, seen=seen, wrong=wrong)
    if options.check:
        print("\n".join(wrong) if wrong else "every target is met")
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
