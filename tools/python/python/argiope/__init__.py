"""A broad-crawl runtime: polite by default, paced by scope, with true latencies.

    async for page in argiope.crawl(["https://example.com/"], {"DOWNLOAD_DELAY": "250ms"}):
        print(page.status, page.url)

`Crawler` is the same for loops other than asyncio's: an object with a descriptor, and turns to take.
"""

import asyncio
import weakref

from ._argiope import Crawler, Full, Handle, Over, Page, Pages

__all__ = ["Crawler", "Full", "Handle", "Over", "Page", "Pages", "crawl", "drive"]


async def crawl(requests, settings=None):
    """Crawls `requests`, URLs or JSON texts as lines of seeds have them; yields each page as it ends.

    `requests` may be any iterable, asynchronous or not; more is taken from it as there is room. The
    crawl goes on while a page is looked at, until a thousand wait behind it. Leaving the loop ends it.
    """
    crawler = Crawler(settings)
    handle = crawler.handle()
    feeding = asyncio.ensure_future(_feed(handle, requests))
    turns = _Turns(crawler)
    try:
        while await turns.have_brought_pages():
            for page in crawler.pages():
                yield page
        # What it said that could not be submitted.
        await feeding
    finally:
        turns.end()
        feeding.cancel()
        handle.close()


async def drive(crawler):
    """Takes a crawler's turns in the running loop, whenever anything is due; yields its pages.

    Closing this by `aclose()`, which a `break` alone leaves for later, leaves the crawl as it is: it can be
    driven again, and goes on with the next page. A `RuntimeError` says that it is driven already.
    """
    turns = _Turns(crawler)
    try:
        while await turns.have_brought_pages():
            for page in crawler.pages():
                yield page
    finally:
        turns.end()


class _Turns:
    """The turns of a crawler in the running loop, one whenever anything is due."""

    # A loop has one reader of a descriptor: a second would silence the first.
    driven = weakref.WeakSet()

    def __init__(self, crawler):
        if crawler in self.driven:
            raise RuntimeError("the crawl is driven already: close drive() before you drive it again")
        self.crawler = crawler
        self.loop = asyncio.get_running_loop()
        self.descriptor = crawler.fileno()
        # Who waits for pages, a future.
        self.waiter = None
        self.failure = None
        self.loop.add_reader(self.descriptor, self._turn)
        self.driven.add(crawler)
        self._turn()

    async def have_brought_pages(self):
        """Waits until pages wait; whether any does, for once it is over none comes."""
        while not self.crawler.waiting:
            if self.failure is not None:
                raise self.failure
            if self.crawler.reason is not None:
                return False
            self.waiter = self.loop.create_future()
            await self.waiter
        return True

    def end(self):
        self.driven.discard(self.crawler)
        self.loop.remove_reader(self.descriptor)

    def _turn(self):
        try:
            goes_on = self.crawler.turn(0)
        except BaseException as failure:
            self.failure = failure
            goes_on = False
        if not goes_on:
            self.end()
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


async def _feed(handle, requests):
    try:
        if hasattr(requests, "__aiter__"):
            async for request in requests:
                try:
                    handle.submit(request)
                except Full:
                    await _submit_later(handle, request)
        else:
            for request in requests:
                try:
                    handle.submit(request)
                except Full:
                    await _submit_later(handle, request)
    except Over:
        pass
    finally:
        handle.close()


async def _submit_later(handle, request):
    """Submits it once there is room. Turns make some, and there are some whenever something is due."""
    while True:
        await asyncio.sleep(0.01)
        try:
            return handle.submit(request)
        except Full:
            pass
