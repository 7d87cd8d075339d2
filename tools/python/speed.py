#!/usr/bin/env python3
"""What a page costs where asyncio drives the crawl: what `cargo bench --bench hosts` asks of Python.

    speed.py PAGES SETTINGS

SETTINGS is a JSON object. Prints the seconds of the last nine tenths: on the wall, and of this thread.
"""

import asyncio
import json
import sys
import time

import argiope


async def main():
    pages, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    urls = (f"http://host{number % 4}.test/{number // 4}" for number in range(pages))
    begun = taken = 0
    async for page in argiope.crawl(urls, settings):
        assert page.status == 200, page
        taken += 1
        if taken == pages // 10:
            begun = time.perf_counter(), time.thread_time()
        elif taken == pages:
            ended = time.perf_counter(), time.thread_time()
    print(json.dumps({"wall": ended[0] - begun[0], "processor": ended[1] - begun[1]}))


asyncio.run(main())
