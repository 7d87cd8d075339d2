"""A broad-crawl runtime: polite by default, paced by scope, with true latencies.

    async for page in argiope.crawl(["https://example.com/"], {"DOWNLOAD_DELAY": "250ms"}):
        print(page.status, page.url)

`Crawler` is the same for loops other than asyncio's: an object with a descriptor, and turns to take.
"""

import asyncio

from ._argiope import Crawler, Full, Handle, Over, Page

__all__ = ["Crawler", "Full", "Handle", "Over", "Page", "crawl", "drive"]


async def crawl(requests, settings=None):
    """Crawls `requests`, URLs or JSON texts as lines of seeds have them; yields each page as it ends.

    `requests` may be any iterable, asynchronous or not; more is taken from it as there is room. The
    crawl goes on while a page is looked at, until a thousand wait. Leaving the loop ends it.
    """
    crawler = Crawler(settings)
    handle = crawler.handle()
    feeding = asyncio.ensure_future(_feed(handle, requests))
    try:
        async for page in drive(crawler):
            yield page
        # What it said that could not be submitted.
        await feeding
    finally:
        feeding.cancel()
        handle.close()


async def drive(crawler):
    """Takes a crawler's turns in the running loop, whenever anything is due; yields its pages."""
    loop = asyncio.get_running_loop()
    descriptor = crawler.fileno()
    news = asyncio.Event()
    failures = []

    def turn():
        try:
            goes_on = crawler.turn(0)
        except BaseException as failure:
            failures.append(failure)
            goes_on = False
        if not goes_on:
            loop.remove_reader(descriptor)
        news.set()

    loop.add_reader(descriptor, turn)
    try:
        turn()
        while True:
            while (page := crawler.take()) is not None:
                yield page
            if failures:
                raise failures[0]
            if crawler.reason is not None:
                return
            news.clear()
            await news.wait()
    finally:
        loop.remove_reader(descriptor)


async def _feed(handle, requests):
    try:
        if hasattr(requests, "__aiter__"):
            async for request in requests:
                await _submit(handle, request)
        else:
            for request in requests:
                await _submit(handle, request)
    except Over:
        pass
    finally:
        handle.close()


async def _submit(handle, request):
    while True:
        try:
            return handle.submit(request)
        except Full:
            # Turns make room; there are some whenever something is due.
            await asyncio.sleep(0.01)
