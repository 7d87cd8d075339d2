#!/usr/bin/env python3
"""What a page costs where asyncio drives the crawl: what `cargo bench --bench hosts` asks of Python.

    speed.py drive|crawl PAGES SETTINGS

`drive`: all is submitted before, as in the other hosts; `crawl`: it is fed meanwhile, as programs are
written. SETTINGS is a JSON object. Prints the seconds of the last nine tenths: on the wall, and of this
thread.
"""

import asyncio
import json
import sys
import time

import argiope


async def main():
    how, pages, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    urls = (f"http://host{number % 4}.test/{number // 4}" for number in range(pages))
    if how == "crawl":
        crawl = argiope.crawl(urls, settings)
    else:
        crawler = argiope.Crawler(settings)
        for url in urls:
            crawler.submit(url)
        crawl = argiope.drive(crawler)
    taken, first = 0, pages // 10
    async for page in crawl:
        assert page.status == 200, page
        taken += 1
        if taken == first:
            begun = time.perf_counter(), time.thread_time()
    assert taken == pages, taken
    ended = time.perf_counter(), time.thread_time()
    print(json.dumps({"wall": ended[0] - begun[0], "processor": ended[1] - begun[1]}))


asyncio.run(main())
