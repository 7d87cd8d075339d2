#!/usr/bin/env python3
"""Tests of the package against a server on the loopback device: `python3 tests/test_argiope.py`."""

import ast
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import argiope

HOME = Path(__file__).resolve().parent.parent


class Server:
    """Answers every path with its name; records each request and its time."""

    def __init__(self):
        asked = self.asked = []
        bodies = self.bodies = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                asked.append((time.monotonic(), self.path))
                if self.path.startswith("/slow"):
                    time.sleep(0.3)
                body = b"<title>Tea</title>" if self.path == "/html" else self.path.encode()
                if self.path.startswith("/megabyte"):
                    body = bytes(1 << 20)
                self.send_response(404 if self.path == "/robots.txt" else 200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("X-Twice", "1")
                self.send_header("X-Twice", "2")
                try:
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # The client has gone.

            def do_POST(self):
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.do_GET()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def settings(self, **more):
        port = self.server.server_address[1]
        return {"ALLOW_NET": "loopback", "RESOLVE": f"*:80:127.0.0.1:{port}", "DOWNLOAD_DELAY": 0,
                "ROBOTSTXT_OBEY": False, "RETRY_TIMES": 0, **more}


async def pages_of(requests, settings):
    return [page async for page in argiope.crawl(requests, settings)]


def crawl(requests, settings):
    return asyncio.run(asyncio.wait_for(pages_of(requests, settings), 60))


class Crawls(unittest.TestCase):
    def setUp(self):
        self.server = Server()

    def test_page_has_the_values_of_the_reply(self):
        request = json.dumps({"url": "http://a.test/1?x=y", "meta": {"n": 1}})
        [page] = crawl([request], self.server.settings())
        self.assertEqual((page.status, page.url, page.body), (200, "http://a.test/1?x=y", b"/1?x=y"))
        self.assertEqual((page.kind, page.is_final, page.error), ("page", True, None))
        self.assertEqual(json.loads(page.meta), {"n": 1})
        self.assertEqual([v for n, v in page.headers if n.lower() == b"x-twice"], [b"1", b"2"])
        self.assertGreater(page.server_latency, 0)
        self.assertEqual(page.scopes, ["a.test"])

    def test_request_accepts_all_keys_of_a_seeds_line(self):
        def line(**said):
            return json.dumps({"url": "http://a.test/slow", "dont_filter": True, **said})

        requests = [line(timeout=0.1, tag=5), line(body_max=2, tag=6),
                    line(proxy="http://127.0.0.1:9", ignore_robots=True, tag=7)]
        pages = crawl(requests, self.server.settings(ROBOTSTXT_OBEY=True))
        pages = {page.tag: page for page in pages if page.kind == "page"}
        self.assertTrue(pages[5].error.startswith("timeout."), pages[5])
        self.assertEqual((pages[6].status, pages[6].body), (200, b"/s"))
        self.assertEqual(pages[7].error, "connect.refused")

    def test_request_may_be_a_dict(self):
        request = {"url": "http://a.test/1", "meta": {"n": None}, "tag": 5, "scopes": {"key/a": 2.5}}
        [page] = crawl([request], self.server.settings())
        self.assertEqual((page.tag, json.loads(page.meta), page.scopes), (5, {"n": None}, ["key/a"]))
        post = {"url": "http://a.test/2", "method": "POST", "body": b"\xff\x00"}
        [page] = crawl([post], self.server.settings())
        self.assertEqual((page.method, self.server.bodies), ("POST", [b"\xff\x00"]))
        self.assertEqual(post["body"], b"\xff\x00")
        for wrong, says in ((7, "str or a dict"), ({"url": "http://a.test/", "body": "x"}, "`body` is bytes"),
                            ({}, "url"), ({"url": "http://a.test/", "depht": 1}, "depht")):
            with self.assertRaisesRegex(ValueError, says):
                argiope.Crawler().submit(wrong)

    def test_page_has_phases_and_addresses(self):
        first, second = crawl(["http://a.test/1", "http://a.test/slow"],
                              self.server.settings(CONCURRENT_REQUESTS_PER_DOMAIN=1))
        port = self.server.server.server_address[1]
        for page in (first, second):
            self.assertEqual(page.remote, f"127.0.0.1:{port}")
            self.assertTrue(page.local.startswith("127.0.0.1:"))
            self.assertEqual((page.attempt, page.depth, page.seed, page.parent), (1, 0, True, None))
            self.assertLessEqual(page.started, page.sent)
            self.assertLessEqual(page.due, page.sent)
        self.assertEqual((first.reused, second.reused), (False, True))
        self.assertIsNone(second.spans["connect"])
        self.assertIsNone(first.spans["tls"])
        self.assertGreater(first.spans["connect"], 0)
        self.assertGreaterEqual(second.spans["first_byte"], 0.3)
        line = second.to_dict()
        self.assertEqual((line["url"], line["remote"], line["tls"]), (second.url, second.remote, None))
        self.assertAlmostEqual(line["server_latency"], second.server_latency, places=6)

    def test_page_has_the_extracted_fields(self):
        settings = self.server.settings(EXTRACT=["title", "price=.price"], FOLLOW="none")
        html, text = crawl(["http://a.test/html", "http://a.test/text"], settings)
        self.assertEqual(html.fields, {"title": "Tea", "price": None})
        self.assertEqual(html.to_dict()["fields"], html.fields)
        self.assertIsNone(text.fields)

    def test_crawl_that_ends_early_does_not_wait_for_more_requests(self):
        async def requests():
            for number in range(20):
                yield f"http://a.test/{number}"
            await asyncio.Event().wait()

        pages = crawl(requests(), self.server.settings(CLOSESPIDER_PAGECOUNT=3))
        self.assertGreaterEqual(len(pages), 3)

    def test_sitemap_that_was_submitted_is_a_result(self):
        [page] = crawl([{"url": "http://a.test/map", "sitemap": 1, "tag": 5}], self.server.settings())
        self.assertEqual((page.kind, page.tag), ("sitemap", 5))

    def test_generator_is_read_a_little_ahead_of_the_pages(self):
        taken = 0

        def urls():
            nonlocal taken
            for taken in range(1, 1_000_001):
                yield f"http://{taken % 7}.test/{taken}"

        async def main():
            ended = 0
            settings = self.server.settings(CONCURRENT_REQUESTS=4)
            pages = argiope.crawl(urls(), settings, ahead=20)
            async for _ in pages:
                ended += 1
                untaken = taken - ended
                # Beyond those in flight, and those that wait for this loop.
                self.assertLessEqual(untaken, 20 + 1 + 4 + 1000)
                if ended == 300:
                    break
            await pages.aclose()
            return ended

        self.assertEqual(asyncio.run(asyncio.wait_for(main(), 60)), 300)
        self.assertLess(taken, 2000)

    def test_large_pages_that_are_not_taken_stop_the_crawl(self):
        async def main():
            urls = (f"http://h{n % 20}.test/megabyte/{n}" for n in range(200))
            crawler = argiope.Crawler(self.server.settings(CONCURRENT_REQUESTS=4), ahead=20)
            for url in urls:
                crawler.submit(url)
            before = 0
            ends = time.monotonic() + 20
            # Until it has come to rest.
            while time.monotonic() < ends:
                for _ in range(100):
                    crawler.turn(0.005)
                if before == crawler.waiting and before > 0:
                    break
                before = crawler.waiting
            # 8 MiB, and those in flight.
            self.assertLessEqual(before, 9 + 4)
            taken = 0
            while crawler.reason is None or crawler.waiting:
                crawler.turn(0.05)
                for page in crawler.pages():
                    self.assertEqual(len(page.body), 1 << 20)
                    taken += 1
            return taken

        self.assertEqual(asyncio.run(asyncio.wait_for(main(), 60)), 200)

    def test_handle_is_full_when_so_many_are_ahead(self):
        crawler = argiope.Crawler(self.server.settings(), ahead=3)
        handle = crawler.handle()
        handle.pause()
        for n in range(3):
            handle.submit(f"http://a.test/{n}")
        with self.assertRaises(argiope.Full):
            handle.submit("http://a.test/3")
        handle.shutdown(0)
        with self.assertRaises(ValueError):
            argiope.Crawler(ahead=0)

    def test_crawler_is_an_asynchronous_iterable(self):
        async def main():
            crawler = argiope.Crawler(self.server.settings())
            # Without one the crawl ends with its last request, while the loop's body has its page.
            handle = crawler.handle()
            crawler.submit("http://a.test/0", tag=0)
            tags = []
            async for page in crawler:
                tags.append(page.tag)
                if page.tag < 5:
                    crawler.submit(f"http://a.test/{page.tag + 1}", tag=page.tag + 1)
                else:
                    handle.close()
            return tags, crawler.reason

        tags, reason = asyncio.run(asyncio.wait_for(main(), 60))
        self.assertEqual((tags, reason), ([0, 1, 2, 3, 4, 5], "finished"))

    def test_stubs_name_what_there_is(self):
        folder = Path(argiope.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        stubs = ast.parse((folder / "_argiope.pyi").read_text())
        for stub in (node for node in stubs.body if isinstance(node, ast.ClassDef)):
            named = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
            there = getattr(argiope, stub.name)
            public = {name for name in vars(there) if not name.startswith("_")}
            self.assertEqual({name for name in named if not name.startswith("_")}, public, stub.name)
            self.assertEqual(named - {"__init__"} - set(dir(there)), set(), stub.name)

    def test_failed_request_yields_a_page(self):
        [page] = crawl(["http://127.0.0.1:9/"], self.server.settings())
        self.assertEqual((page.status, page.error), (None, "connect.refused"))
        self.assertIn("connect.refused", repr(page))

    def test_pages_are_results_unless_every_attempt_is_wanted(self):
        def kinds(**options):
            async def pages():
                crawler = argiope.Crawler(self.server.settings(ROBOTSTXT_OBEY=True), **options)
                crawler.submit("http://a.test/1")
                return sorted([page.kind async for page in argiope.drive(crawler)])

            return asyncio.run(asyncio.wait_for(pages(), 60))

        self.assertEqual(kinds(), ["page"])
        self.assertEqual(kinds(every_attempt=True), ["page", "robots"])

    def test_requests_are_taken_from_an_asynchronous_iterable(self):
        answered = []

        async def requests():
            for number in range(3):
                while len(answered) < number:
                    await asyncio.sleep(0.001)
                yield f"http://a.test/{number}"

        async def main():
            async for page in argiope.crawl(requests(), self.server.settings()):
                answered.append(page.url)

        asyncio.run(asyncio.wait_for(main(), 60))
        self.assertEqual(answered, [f"http://a.test/{number}" for number in range(3)])

    def test_descriptor_alone_keeps_the_pace_to_the_millisecond(self):
        for _ in range(5):
            self.server.asked.clear()
            settings = self.server.settings(DOWNLOAD_DELAY="50ms", RANDOMIZE_DOWNLOAD_DELAY=False)
            pages = crawl([f"http://a.test/{number}" for number in range(12)], settings)
            late = sorted(page.lateness for page in pages)
            # Others need the processor, too. What a loop rounds it rounds for most.
            if late[3] < 0.001:
                break
        self.assertLess(late[3], 0.001)
        moments = [page.sent for page in pages]
        for before, after in zip(moments, moments[1:]):
            self.assertGreaterEqual(after - before, 0.05)

    def test_requests_beyond_the_queue_are_submitted_when_it_has_room(self):
        count = 10_000
        settings = self.server.settings(DENY=".*")
        pages = crawl((f"http://a.test/{number}" for number in range(count)), settings)
        self.assertEqual(len({page.root for page in pages}), count)
        self.assertEqual({page.error.split(".")[0] for page in pages}, {"filtered"})

    def test_crawl_continues_during_the_loop_body(self):
        async def main():
            pages = argiope.crawl([f"http://{n}.test/" for n in range(20)], self.server.settings())
            await pages.__anext__()
            deadline = time.monotonic() + 30
            while len(self.server.asked) < 20 and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            self.assertEqual(len(self.server.asked), 20)
            return 1 + len([page async for page in pages])

        self.assertEqual(asyncio.run(main()), 20)

    def test_leaving_the_loop_ends_the_crawl(self):
        async def main():
            pages = argiope.crawl([f"http://a.test/slow/{n}" for n in range(50)], self.server.settings())
            async for _ in pages:
                break
            await pages.aclose()
            await asyncio.sleep(0.3)  # What was on its way then arrives.
            asked = len(self.server.asked)
            await asyncio.sleep(0.7)
            self.assertEqual(len(self.server.asked), asked)

        asyncio.run(main())

    def test_error_names_the_invalid_setting_or_request(self):
        for settings in ({"NO_SUCH_SETTING": 1}, {"DOWNLOAD_DELAY": "soon"}, {"DOWNLOAD_DELAY": object()}):
            with self.assertRaises(ValueError):
                argiope.Crawler(settings)
        with self.assertRaisesRegex(ValueError, "DOWNLOAD_DELAY"):
            argiope.Crawler({"DOWNLOAD_DELAY": "soon"})
        with self.assertRaisesRegex(ValueError, "no url"):
            crawl(["http://a.test/", "no url"], self.server.settings())

    def test_error_names_the_index_of_an_invalid_request(self):
        async def requests():
            yield "http://a.test/"
            yield {"url": "http://"}

        with self.assertRaisesRegex(ValueError, "request 1 .*http://"):
            crawl(requests(), self.server.settings())
        with self.assertRaisesRegex(ValueError, "request 2 .*, 7:"):
            crawl(["http://a.test/", "http://a.test/2", 7], self.server.settings())

        def fails():
            yield "http://a.test/"
            raise ValueError("the caller's own")

        with self.assertRaisesRegex(ValueError, "^the caller's own$"):
            crawl(fails(), self.server.settings())

    def test_invalid_requests_are_left_out_where_a_function_takes_them(self):
        invalid = []

        async def main(urls, on_invalid):
            pages = argiope.crawl(urls, self.server.settings(), on_invalid=on_invalid)
            return [page.url async for page in pages if page.kind == "page"]

        def keep(index, request, error):
            invalid.append((index, request, str(error)))

        urls = ["http://a.test/1", "no url", {"url": "http://"}, 7, "http://a.test/2"]
        fetched = asyncio.run(main(urls, keep))
        self.assertEqual(sorted(fetched), ["http://a.test/1", "http://a.test/2"])
        self.assertEqual([(index, request) for index, request, _ in invalid], list(enumerate(urls))[1:4])
        self.assertTrue(all(error for _, _, error in invalid))

        def refuse(index, request, error):
            raise LookupError(f"{index} is the caller's own")

        with self.assertRaisesRegex(LookupError, "^1 is the caller's own$"):
            asyncio.run(main(urls, refuse))

    def test_value_that_no_request_can_have_is_an_invalid_one(self):
        url, invalid = "http://a.test/", []
        cyclic = {"url": url}
        cyclic["meta"] = {"own": [cyclic]}
        deep = {"url": url, "meta": None}
        for _ in range(5000):
            deep["meta"] = [deep["meta"]]
        requests = [cyclic, deep, {"url": url, "tag": 2**64}, {"url": url, "tag": -2**63 - 1}, {"url": url, 7: 7},
                    {"url": url, "meta": {None: 7}}, url + "\udc80", {"url": url + "\udc80"},
                    {"url": url, "meta": object()}]
        crawler = argiope.Crawler(self.server.settings())
        for request in requests:
            with self.assertRaises(ValueError):
                crawler.submit(request)
        with self.assertRaisesRegex(ValueError, "surrogate"):
            crawler.submit(url + "\udc80")
        with self.assertRaisesRegex(ValueError, "key of a dict is a str, not .*int"):
            crawler.submit({"url": url, 7: 7})
        with self.assertRaises(ValueError):
            argiope.Crawler({"DOWNLOAD_DELAY": 2**64})

        async def main():
            with_function = argiope.crawl(requests + [{"url": url, "tag": 2**63}], self.server.settings(),
                                          on_invalid=lambda index, *_: invalid.append(index))
            return [(page.url, page.tag) async for page in with_function]

        self.assertEqual(asyncio.run(main()), [(url, 2**63)])
        self.assertEqual(invalid, list(range(len(requests))))

    def test_invalid_request_after_which_the_loop_is_left_is_not_logged(self):
        async def main():
            missed = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: missed.append(context))
            pages = argiope.crawl(["http://a.test/", "no url"], self.server.settings())
            async for _ in pages:
                break
            await pages.aclose()
            del pages
            gc.collect()
            await asyncio.sleep(0)
            return missed

        self.assertEqual(asyncio.run(main()), [])

    def test_single_request_in_place_of_an_iterable_is_refused(self):
        for single in ("http://a.test/", b"http://a.test/", {"url": "http://a.test/"}):
            with self.assertRaisesRegex(TypeError, f"not a single {type(single).__name__}: write \\["):
                crawl(single, self.server.settings())
        self.assertEqual(self.server.asked, [])

    def test_settings_accept_dicts_and_lists(self):
        settings = self.server.settings(THROTTLING_SCOPES={"a.test": {"delay": 0.2, "jitter": [0, 0]}})
        pages = crawl(["http://a.test/1", "http://a.test/2"], settings)
        self.assertGreaterEqual(pages[1].sent - pages[0].sent, 0.2)

    def test_other_threads_run_and_submit_during_a_turn(self):
        crawler = argiope.Crawler(self.server.settings())
        handle = crawler.handle()
        numbers = []

        def feed():
            time.sleep(0.1)
            numbers.append(handle.submit("http://a.test/1", tag=7))
            handle.close()

        began = time.monotonic()
        feeder = threading.Thread(target=feed)
        feeder.start()
        while crawler.turn(30):
            pass
        self.assertLess(time.monotonic() - began, 20)
        feeder.join()
        [page] = crawler.pages()
        self.assertEqual(([page.root], page.tag, page.status), (numbers, 7, 200))
        self.assertEqual((list(crawler.pages()), crawler.reason), ([], "finished"))
        with self.assertRaises(argiope.Over):
            handle.submit("http://a.test/2")
        with self.assertRaises(argiope.Over):
            crawler.submit("http://a.test/2")
        with self.assertRaises(argiope.Over):
            crawler.handle()

    def test_submit_of_the_crawler_never_raises_full(self):
        crawler = argiope.Crawler(self.server.settings())
        numbers = [crawler.submit(f"http://a.test/{n}", tag=n) for n in range(20_000)]
        self.assertEqual(len(set(numbers)), 20_000)
        with self.assertRaises(ValueError):
            crawler.submit("no url")
        pages = []
        while len(pages) < 3:
            crawler.turn(1)
            pages += crawler.pages()
        for page in pages:
            self.assertEqual((page.root, page.status), (numbers[page.tag], 200))
        crawler.handle().shutdown(0)
        while crawler.turn(None):
            pass

    def test_pages_after_a_break_can_be_taken_later(self):
        async def driven():
            crawler = argiope.Crawler(self.server.settings(CONCURRENT_REQUESTS_PER_DOMAIN=1))
            handle = crawler.handle()
            for n in range(60):
                crawler.submit(f"http://a.test/{n}", tag=n)
            while crawler.waiting < 20:
                crawler.turn(0.01)
            taken = crawler.pages()
            tags = [next(taken).tag for _ in range(2)]
            for most in (3, 8, 60):
                pages = argiope.drive(crawler)
                async for page in pages:
                    tags.append(page.tag)
                    with self.assertRaises(RuntimeError):
                        await argiope.drive(crawler).__anext__()
                    if len(tags) == most:
                        break
                await pages.aclose()
            handle.close()
            return tags

        tags = asyncio.run(asyncio.wait_for(driven(), 60))
        self.assertEqual(tags, list(range(60)))

    def test_iterator_takes_only_pages_ready_at_its_creation(self):
        crawler = argiope.Crawler(self.server.settings())
        for n in range(10):
            crawler.submit(f"http://a.test/{n}", tag=n)
        while crawler.waiting < 3:
            crawler.turn(1)
        count, pages = crawler.waiting, crawler.pages()
        tags = [next(pages).tag]
        while crawler.turn(30):
            pass
        tags += [page.tag for page in pages]
        self.assertEqual(len(tags), count)
        self.assertEqual(list(pages), [])
        others = crawler.pages()
        tags += [page.tag for page in crawler.pages()]
        self.assertEqual((sorted(tags), crawler.waiting), (list(range(10)), 0))
        self.assertEqual(list(others), [])

    def test_handle_controls_the_crawl(self):
        crawler = argiope.Crawler(self.server.settings())
        handle = crawler.handle()
        handle.pause()
        number = handle.submit("http://a.test/1")
        handle.submit("http://b.test/2")
        handle.cancel(number)
        while not crawler.waiting:
            crawler.turn(1)
        [page] = crawler.pages()
        self.assertEqual((page.root, page.error), (number, "cancelled.asked"))
        self.assertEqual(self.server.asked, [])
        handle.shutdown(0)
        while crawler.turn(None):
            pass
        self.assertEqual(crawler.reason, "shutdown")

    def test_set_scope_takes_effect_during_the_crawl_and_shows_in_stats(self):
        crawler = argiope.Crawler(self.server.settings(DOWNLOAD_DELAY=3600))
        handle = crawler.handle()
        for number in range(3):
            handle.submit(f"http://a.test/{number}")
        with self.assertRaisesRegex(ValueError, "delai"):
            handle.set_scope("a.test", {"delai": 1})
        with self.assertRaises(ValueError):
            handle.set_scope("a.test", {"concurrency": 0})
        handle.set_scope("a.test", {"delay": "50ms", "jitter": [0, 0]})
        handle.close()
        while crawler.turn(30):
            pass
        moments = [page.sent for page in crawler.pages()]
        self.assertEqual(len(moments), 3)
        for before, after in zip(moments, moments[1:]):
            self.assertGreaterEqual(after - before, 0.05)
            self.assertLess(after - before, 5)
        stats = crawler.stats()
        self.assertEqual((stats["pages"], stats["finish_reason"]), (3, "finished"))

    def test_crawl_with_a_state_continues_and_acknowledged_pages_come_once(self):
        settings = self.server.settings(STATE_SYNC="20ms", DOWNLOAD_DELAY="5ms")
        stored = []

        async def run(folder, most):
            """Stores so many pages; returns how many were kept of earlier runs, and why it ended."""
            crawler = argiope.Crawler(settings, state=folder)
            with self.assertRaisesRegex(OSError, "in use"):
                argiope.Crawler(settings, state=folder)
            stored[:] = [(epoch, url) for epoch, url in stored if epoch <= crawler.committed_epoch]
            kept = len(stored)
            if not crawler.committed_epoch:
                for n in range(60):
                    crawler.submit(f"http://a.test/{n}")
            pages = argiope.drive(crawler)
            async for page in pages:
                stored.append((page.epoch, page.url))
                most -= 1
                if most == 0:
                    break
                crawler.acknowledge(page.id)
            await pages.aclose()
            return kept, crawler.reason

        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(asyncio.run(run(folder, 30)), (0, None))
            kept, reason = asyncio.run(run(folder, 25))
            self.assertTrue(0 < kept < 30, kept)
            self.assertIsNone(reason)
            kept, reason = asyncio.run(asyncio.wait_for(run(folder, 1000), 60))
            self.assertEqual(reason, "finished")
            self.assertEqual(sorted(url for _, url in stored), sorted(f"http://a.test/{n}" for n in range(60)))
            asked = len(self.server.asked)
            self.assertEqual(asyncio.run(run(folder, 1000)), (60, "finished"))
            self.assertEqual(len(self.server.asked), asked)

    def test_crawl_with_a_state_goes_on_when_untaken_pages_are_taken(self):
        count = 3000
        with tempfile.TemporaryDirectory() as folder:
            crawler = argiope.Crawler(self.server.settings(DENY=".*"), state=folder)
            handle = crawler.handle()
            for n in range(count):
                handle.submit(f"http://a.test/{n}")
            handle.close()
            for _ in range(200):
                crawler.turn(0.001)
            self.assertEqual(crawler.waiting, 1000)
            roots = set()
            for page in crawler.pages():
                roots.add(page.root)
                crawler.acknowledge(page.id)
            self.assertEqual(len(roots), 1000)
            self.assertGreater(crawler.waiting, 0)

            async def rest():
                async for page in argiope.drive(crawler):
                    roots.add(page.root)
                    crawler.acknowledge(page.id)

            asyncio.run(asyncio.wait_for(rest(), 60))
            self.assertEqual((len(roots), crawler.reason), (count, "finished"))

    def test_example_crawls_while_its_loop_runs(self):
        example = HOME / "examples" / "crawl.py"
        self.assertLessEqual(len(example.read_text().splitlines()), 40)
        settings = [f"{name}={value}" for name, value in self.server.settings().items()]

        def lines_of(*arguments):
            ran = subprocess.run([sys.executable, example, *settings, *arguments],
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            return ran.stdout.splitlines()

        port = self.server.server.server_address[1]
        lines_of(f"PROXY=http://127.0.0.1:{port}", "http://a.test/?x=1")
        self.assertEqual([path for _, path in self.server.asked], ["http://a.test/?x=1"], "by the proxy")
        lines = lines_of("http://a.test/slow", "http://b.test/2")
        self.assertIn("200 http://a.test/slow 5 bytes ", lines)
        self.assertIn("200 http://b.test/2 2 bytes ", lines)
        self.assertGreater(int(lines[-1].split()[0]), 5)


if __name__ == "__main__":
    unittest.main()
