"""Latency as reported by other crawlers while their handlers are busy, for tools/latency_judge.py.

    tools/latency_peers.py scrapy|aiohttp|pycurl BUSY_MS < URLS

Prints a line of JSON per page, with each crawler's own value for the time from TCP established to
headers: Scrapy's download_latency, aiohttp's trace events, and libcurl's STARTTRANSFER_TIME minus its
CONNECT_TIME (each head arrives in one segment). All keep 32 requests in flight, each on a new
connection, and are busy for BUSY_MS after each page.
"""

import asyncio
import json
import sys
import time

IN_FLIGHT = 32


def done(url, latency, busy):
    print(json.dumps({"url": url, "latency": latency}), flush=True)
    until = time.perf_counter() + busy
    while time.perf_counter() < until:
        pass


def scrapy(urls, busy):
    import scrapy as library
    from scrapy.crawler import CrawlerProcess

    class Spider(library.Spider):
        name = "judged"

        async def start(self):
            for url in urls:
                yield library.Request(url, dont_filter=True)

        def parse(self, response):
            done(response.url, response.meta["download_latency"], busy)

    process = CrawlerProcess(
        {
            "LOG_LEVEL": "ERROR",
            "TELNETCONSOLE_ENABLED": False,
            "RETRY_ENABLED": False,
            "DOWNLOAD_DELAY": 0,
            "CONCURRENT_REQUESTS": IN_FLIGHT,
            "CONCURRENT_REQUESTS_PER_DOMAIN": IN_FLIGHT,
            "DNS_RESOLVER": "scrapy.resolver.CachingThreadedResolver",
        }
    )
    process.crawl(Spider)
    process.start()


def aiohttp(urls, busy):
    import aiohttp as library

    async def established(_session, context, _params):
        context.established = time.perf_counter()

    async def headers(_session, context, _params):
        context.trace_request_ctx["latency"] = time.perf_counter() - context.established

    async def crawl():
        trace = library.TraceConfig()
        trace.on_connection_create_end.append(established)
        trace.on_request_end.append(headers)
        connector = library.TCPConnector(limit=IN_FLIGHT, force_close=True)
        gate = asyncio.Semaphore(IN_FLIGHT)
        async with library.ClientSession(connector=connector, trace_configs=[trace]) as session:

            async def fetch(url):
                async with gate:
                    trace_data = {}
                    async with session.get(url, trace_request_ctx=trace_data) as response:
                        await response.read()
                    done(url, trace_data["latency"], busy)

            await asyncio.gather(*(fetch(url) for url in urls))

    asyncio.run(crawl())


def pycurl(urls, busy):
    import pycurl as library

    multi = library.CurlMulti()
    waiting = list(reversed(urls))
    running = set()
    while waiting or running:
        while waiting and len(running) < IN_FLIGHT:
            easy = library.Curl()
            easy.url = waiting.pop()
            easy.setopt(library.URL, easy.url)
            easy.setopt(library.FRESH_CONNECT, 1)
            easy.setopt(library.FORBID_REUSE, 1)
            easy.setopt(library.WRITEFUNCTION, lambda _bytes: None)
            multi.add_handle(easy)
            running.add(easy)
        while multi.perform()[0] == library.E_CALL_MULTI_PERFORM:
            pass
        _, finished, failed = multi.info_read()
        for easy in [*finished, *(failure[0] for failure in failed)]:
            multi.remove_handle(easy)
            running.discard(easy)
            if easy in finished:
                latency = easy.getinfo(library.STARTTRANSFER_TIME_T) - easy.getinfo(library.CONNECT_TIME_T)
                done(easy.url, latency / 1e6, busy)
        if running and not finished:
            multi.select(1.0)


if __name__ == "__main__":
    crawl = {"scrapy": scrapy, "aiohttp": aiohttp, "pycurl": pycurl}[sys.argv[1]]
    crawl(sys.stdin.read().split(), float(sys.argv[2]) / 1000)
