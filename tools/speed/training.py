#!/usr/bin/env python3
"""Runs crawls of each kind to record a profile of the command, for tools/profiled.sh.

    tools/speed/training.py ARGIOPE
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from speed.stage import ROOT, Stage, Trouble, check_machine, enter_namespace

# New connections, kept connections and TLS, on both back ends; and the demo: links, robots.txt, DNS,
# redirects and WARC files.
PAGES = {"new": 40_000, "kept": 80_000, "tls": 20_000}
DEMO = ("--domains", "300", "--pages", "20", "-s", "DOWNLOAD_DELAY=0")


def train(stage):
    for io in ("epoll", "uring"):
        for kind, pages in PAGES.items():
            kept = "CONCURRENT_REQUESTS_PER_DOMAIN=64" if kind == "kept" else "KEEPALIVE_MAX=0"
            run, _ = stage.crawl(kind, pages, f"IO={io}", kept)
            print(f"{kind} on {io}: {run.rate:.0f} pages/s", file=sys.stderr)
        subprocess.run([stage.argiope, "demo", *DEMO, "-s", f"IO={io}"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    check_machine()
    enter_namespace()
    try:
        with Stage(ROOT / "target" / "release", Path(sys.argv[1]).resolve()) as stage:
            train(stage)
    except (Trouble, subprocess.CalledProcessError) as trouble:
        sys.exit(str(trouble))


if __name__ == "__main__":
    main()
