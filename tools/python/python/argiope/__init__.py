"""A broad-crawl runtime: polite by default, throttled per scope, with latencies by kernel timestamps.

    async for page in argiope.crawl(["https://example.com/"], {"DOWNLOAD_DELAY": "250ms"}):
        print(page.status, page.url)

For loops other than asyncio's, `Crawler` is an object with a descriptor and a method `turn`.
"""

import asyncio
import weakref

from ._argiope import Crawler, Full, Handle, Over, Page, Pages

__all__ = ["Crawler", "Full", "Handle", "Over", "Page", "Pages", "crawl", "drive"]


async def crawl(requests, settings=None):
    """Crawls `requests`, URLs or seeds lines in JSON; yields each page as it ends.

    `requests` is an iterable, asynchronous or not, read as the queue has room. The crawl continues while
    the loop's body runs, until 1000 pages are untaken. Leaving the loop ends the crawl.
    """
    crawler = Crawler(settings)
    handle = crawler.handle()
    feeding = asyncio.ensure_future(_feed(handle, requests))
    turns = _Turns(crawler)
    try:
        while await turns.have_brought_pages():
            for page in crawler.pages():
                yield page
        # Raises if a request was invalid.
        await feeding
    finally:
        turns.end()
        feeding.cancel()
        handle.close()


async def drive(crawler):
    """Takes a crawler's turns in the running loop, when the descriptor is readable; yields its pages.

    After `aclose()` (a `break` alone closes it later) the crawl can be driven again, and continues with
    the next page. Raises `RuntimeError` if the crawl is already being driven.
    """
    turns = _Turns(crawler)
    try:
        while await turns.have_brought_pages():
            for page in crawler.pages():
                yield page
    finally:
        turns.end()


class _Turns:
    """Takes turns of a crawler in the running loop, one whenever its descriptor is readable."""

    # A loop has one reader per descriptor: a second would replace the first.
    driven = weakref.WeakSet()

    def __init__(self, crawler):
        if crawler in self.driven:
            raise RuntimeError("the crawl is already being driven: close the other drive() first")
        self.crawler = crawler
        self.loop = asyncio.get_running_loop()
        self.descriptor = crawler.fileno()
        # A future, while pages are awaited.
        self.waiter = None
        self.failure = None
        self.loop.add_reader(self.descriptor, self._turn)
        self.driven.add(crawler)
        self._turn()

    async def have_brought_pages(self):
        """Waits until a page is ready; false if the crawl has ended."""
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
    """Submits a request when the queue has room, which turns make."""
    while True:
        await asyncio.sleep(0.01)
        try:
            return handle.submit(request)
        except Full:
            pass
