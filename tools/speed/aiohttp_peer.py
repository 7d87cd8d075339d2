#!/usr/bin/env python3
"""Fetches the URLs of a file with aiohttp on uvloop, 256 at a time, each on a new connection.

    tools/speed/aiohttp_peer.py FILE COUNT
    tools/speed/aiohttp_peer.py --version

A peer in tools/figures.py. Drops bodies; exits on any status but 200.
"""

import asyncio
import sys
import time
from itertools import islice

import aiohttp
import uvloop

IN_FLIGHT = 256


async def fetch(session, urls):
    for url in urls:
        async with session.get(url) as response:
            await response.read()
            if response.status != 200:
                sys.exit(f"{url}: {response.status}")


async def fetch_all(urls):
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        rest = iter(urls)
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(*(fetch(session, rest) for _ in range(IN_FLIGHT)))
        return time.monotonic() - began, time.process_time() - cpu


def main():
    if sys.argv[1:] == ["--version"]:
        print(f"aiohttp {aiohttp.__version__}, uvloop {uvloop.__version__}, Python {sys.version.split()[0]}")
        return
    with open(sys.argv[1]) as file:
        urls = [line.strip() for line in islice(file, int(sys.argv[2]))]
    wall, cpu = uvloop.run(fetch_all(urls))
    each = cpu / len(urls) * 1e6
    print(f"{len(urls)} requests in {wall:.3f} s: {len(urls) / wall:.0f}/s, {each:.1f} us of processor time each")


if __name__ == "__main__":
    main()
