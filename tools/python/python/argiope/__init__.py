"""A broad-crawl runtime: polite by default, throttled per scope, with latencies by kernel timestamps.

    async for page in argiope.crawl(["https://example.com/"], {"DOWNLOAD_DELAY": "250ms"}):
        print(page.status, page.url)

For loops other than asyncio's, `Crawler` is an object with a descriptor and a method `turn`.
"""

import asyncio
import weakref
from typing import Any, AsyncGenerator, AsyncIterable, Callable, Dict, Iterable, Union

from ._argiope import Crawler, Full, Handle, Over, Page, Pages

# A URL, a dict with `url` and other keys, or the JSON text of one.
Request = Union[str, Dict[str, Any]]

__all__ = ["Crawler", "Full", "Handle", "Over", "Page", "Pages", "Request", "crawl", "drive"]


async def crawl(
    requests: "AsyncIterable[Request] | Iterable[Request]",
    settings: "Dict[str, Any] | None" = None,
    *,
    ahead: int = 10_000,
    on_invalid: "Callable[[int, Any, ValueError], None] | None" = None,
) -> "AsyncGenerator[Page, None]":
    """Crawls `requests`, URLs or dicts as of `Crawler.submit`; yields each page as it ends.

    `requests` is an iterable of them, asynchronous or not; a single URL is `[url]`. It is read as the crawl goes on: at
    most `ahead` requests are taken from it beyond those that are being fetched and the pages that the loop has not
    taken. The crawl continues while the loop's body runs, until 1000 pages are untaken, or 8 MiB of their bodies. If the crawl ends early, by a limit, the iterable is not read on. An
    invalid request raises `ValueError` with its index once the requests before it have ended, unless the loop is left
    before; those after it are not read. With `on_invalid` it is left out instead, and the crawl continues:
    `on_invalid(index, request, error)` is called in the loop, and what it raises ends the crawl in the same way.

    The crawl ends when the generator is closed: soon after the loop is left, if nothing refers to the generator. If it
    is kept in a variable, close it:

        async with contextlib.aclosing(argiope.crawl(urls)) as pages:  # Python 3.9: `await pages.aclose()`
            async for page in pages:
                break
    """
    if isinstance(requests, (str, bytes, dict)):
        kind = type(requests).__name__
        raise TypeError(f"`requests` is an iterable of URLs or dicts, not a single {kind}: write [{_shown(requests)}]")
    crawler = Crawler(settings, ahead=ahead)
    handle = crawler.handle()
    turns = _Turns(crawler)
    feeding = asyncio.ensure_future(_feed(handle, requests, turns, on_invalid))
    try:
        while await turns.have_brought_pages():
            for page in crawler.pages():
                yield page
        # A crawl that has ended early takes no more, whatever is still to come. Raises if a request was invalid.
        if feeding.done():
            await feeding
    finally:
        turns.end()
        # If it has failed, nothing is logged then.
        feeding.cancel()
        handle.close()


async def drive(crawler: Crawler) -> "AsyncGenerator[Page, None]":
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
        # Set by each turn: it may have made room.
        self.turned = asyncio.Event()
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
        self.turned.set()
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


async def _feed(handle, requests, turns, on_invalid):
    index = 0
    try:
        if hasattr(requests, "__aiter__"):
            async for request in requests:
                await _submit(handle, request, index, turns, on_invalid)
                index += 1
        else:
            for request in requests:
                await _submit(handle, request, index, turns, on_invalid)
                index += 1
    except Over:
        pass
    finally:
        handle.close()


async def _submit(handle, request, index, turns, on_invalid):
    """Submits a request once there is room, which turns make."""
    while True:
        try:
            return handle.submit(request)
        except Full:
            turns.turned.clear()
            await turns.turned.wait()
        except ValueError as error:
            if on_invalid is not None:
                return on_invalid(index, request, error)
            raise ValueError(f"request {index} (from 0) of the iterable, {_shown(request)}: {error}") from error


def _shown(request):
    """A request in a message, shortened."""
    text = repr(request)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"


# Characters of a request in a message.
SHOWN_MAX = 200
