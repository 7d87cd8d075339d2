#!/usr/bin/env python3
"""Cost of a page when asyncio drives the crawl; run by `cargo bench --bench hosts`.

    speed.py drive|crawl PAGES SETTINGS

`drive`: all requests are submitted first, as in the other hosts. `crawl`: requests are submitted while
the crawl runs, as in usual programs. SETTINGS is a JSON object. Prints seconds for the last nine tenths
of the pages: wall time, and processor time of this thread.
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
