#!/usr/bin/env python3
"""Cost of a page when more hosts take turns than connections are kept.

    cargo build --release
    tools/rotation.py [--hosts N,N,...] [--pages N] [--delay SECONDS] [--plain] [--robots] [--rounds N]
        [--argiope FILE] [--before FILE] [-s NAME=VALUE]... [--json FILE]

Crawls of `pages` pages from each of so many hosts, by TLS 1.3 unless `--plain`; the hosts take turns in the list of
seeds. Links are not followed, and robots.txt is fetched only with `--robots`. One nginx on one core, the crawl on
the other, in a network namespace with loopback only. A round runs every number of hosts, and with `--before` an
older command, too.

For each it prints the medians of processor time and connections per page, of pages a second and of the most memory,
and how many of a host's connections after its first resumed a TLS session; then the cost of a page in relation to
that with the first number of hosts.
"""

import argparse
import json
import sys
from pathlib import Path

import raw
from speed.stage import PORT, ROOT, TLS_PORT, Stage, Trouble, check_machine, enter_namespace, median


def address(number):
    """127.1.0.1 and on, 250 addresses in each block of 256."""
    return f"127.{1 + number // 62500}.{number // 250 % 250}.{1 + number % 250}"


class Rotation(Stage):
    """nginx, and crawls of many hosts."""

    def seeds(self, hosts, options):
        path = self.dir / f"{hosts}.txt"
        if not path.exists():
            scheme, port = ("http", PORT) if options.plain else ("https", TLS_PORT)
            with open(path, "w") as out:
                for page in range(options.pages):
                    for host in range(hosts):
                        out.write(f"{scheme}://{address(host)}:{port}/p{page}\n")
        return path

    def rotate(self, argiope, hosts, options):
        """A whole crawl, and what it cost."""
        pages, out = hosts * options.pages, self.dir / "crawl"
        command = [argiope, "crawl", "--seeds", self.seeds(hosts, options), "--out", out, "--overwrite", "--quiet",
                   "--no-warc", "--follow", "none", "--allow-net", "loopback", "--contact", "rotation@example.com",
                   "--insecure"]
        for setting in ("STATE=false", f"ROBOTSTXT_OBEY={str(options.robots).lower()}",
                        f"DOWNLOAD_DELAY={options.delay}", "DOWNLOAD_DELAY_PER_SLOT=0", *options.settings):
            command += ["-s", setting]
        run = self.run(command, pages, seconds=600)
        stats = json.loads((out / "stats.json").read_text())
        if stats["pages"] != pages:
            raise Trouble(f"the crawl got {stats['pages']} pages of {pages}: {stats['errors']}")
        resumed = connections = 0
        with open(out / "results.jsonl") as lines:
            for line in lines:
                result = json.loads(line)
                if not result["reused"]:
                    connections += 1
                    resumed += bool(result.get("tls") and result["tls"]["resumed"])
        return {"cost": run.user + run.system, "rate": stats["pages_per_second"], "memory": run.memory,
                "connections": connections / pages, "resumed": resumed / max(connections - hosts, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="1000,5000,50000")
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--delay", type=float, default=1)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--robots", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--argiope", type=Path, default=ROOT / "target" / "release" / "argiope")
    parser.add_argument("--before", type=Path)
    parser.add_argument("-s", dest="settings", action="append", default=[])
    parser.add_argument("--json", type=Path, help="where the raw results go: a file or a directory")
    options = parser.parse_args()
    check_machine()
    enter_namespace()
    sizes = [int(hosts) for hosts in options.hosts.split(",")]
    commands = {"seen": options.argiope, **({"before": options.before} if options.before else {})}
    rounds = {(by, hosts): [] for by in commands for hosts in sizes}
    with Rotation(options.argiope.parent, options.argiope) as stage:
        for number in range(options.rounds):
            for hosts in sizes:
                for by in list(commands) if number % 2 == 0 else list(commands)[::-1]:
                    result = stage.rotate(commands[by], hosts, options)
                    rounds[by, hosts].append(result)
                    print(f"round {number + 1}: {line(by, hosts, result)}", file=sys.stderr)
    kept = {by: {} for by in commands}
    for (by, hosts), results in rounds.items():
        medians = {key: median([result[key] for result in results]) for key in results[0]}
        first = median([result["cost"] for result in rounds[by, sizes[0]]])
        print(f"{line(by, hosts, medians)}; {medians['cost'] / first:.2f} × the cost of a page of {sizes[0]} hosts")
        for key in medians:
            kept[by][f"{key}-{hosts}"] = [[round(result[key], 4)] for result in results]
    if options.json:
        files = {"argiope": raw.binary(options.argiope)}
        if options.before:
            files["compared"] = raw.binary(options.before)
        raw.write(options.json, raw.header("rotation", options.rounds), **files, **kept)


def line(by, hosts, result):
    command = "before" if by == "before" else "argiope"
    return (f"{command}: {hosts} hosts: {result['cost']:.0f} µs a page, {result['rate']:.0f} pages/s, "
            f"{result['memory']:.0f} MB, {result['connections']:.3f} connections a page, "
            f"{result['resumed']:.1%} of the later ones resumed")


if __name__ == "__main__":
    main()
