#!/usr/bin/env python3
"""Crawls the sites of a file of seeds with aiohttp on uvloop, following links within each.

    tools/race/aiohttp_peer.py SEEDS OUT [WARC]
    tools/race/aiohttp_peer.py --version

A peer in tools/race.py: what an engineer would write. selectolax finds links, warcio writes records; 256
requests at a time, robots.txt first, a connection per host kept while there is something to fetch.
"""

import asyncio
import json
import ssl
import sys
from io import BytesIO
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import aiohttp
import selectolax
import uvloop
from selectolax.lexbor import LexborHTMLParser

IN_FLIGHT = 256


class Crawl:
    def __init__(self, seeds, out, warc):
        self.queue = asyncio.Queue()
        self.sites, self.out, self.warc = {}, out, warc
        for seed in seeds:
            self.sites.setdefault(urlsplit(seed).netloc, {seed: None})
        for site in self.sites:
            self.queue.put_nowait(site)

    async def work(self, session):
        while True:
            try:
                site = self.queue.get_nowait()
            except asyncio.QueueEmpty:
                return
            await self.crawl_site(session, site)

    async def crawl_site(self, session, site):
        rules = RobotFileParser()
        async with session.get(f"https://{site}/robots.txt") as reply:
            rules.parse((await reply.text()).splitlines() if reply.status == 200 else [])
        seen = self.sites[site]
        queue = list(seen)
        while queue:
            url = queue.pop()
            if not rules.can_fetch("race", url):
                continue
            async with session.get(url) as reply:
                body = await reply.read()
                self.write(url, reply, body)
            for node in LexborHTMLParser(body).css("a[href]"):
                link = urldefrag(urljoin(url, node.attributes["href"] or "")).url
                if link not in seen and urlsplit(link).netloc == site:
                    seen[link] = None
                    queue.append(link)

    def write(self, url, reply, body):
        line = {"url": url, "status": reply.status, "type": reply.headers.get("Content-Type"), "bytes": len(body)}
        self.out.write(json.dumps(line) + "\n")
        if self.warc:
            from warcio.statusandheaders import StatusAndHeaders
            fields = [(name, value) for name, value in reply.headers.items() if name != "Content-Encoding"]
            head = StatusAndHeaders(f"{reply.status} {reply.reason}", fields, protocol="HTTP/1.1")
            record = self.warc.create_warc_record(url, "response", payload=BytesIO(body), http_headers=head)
            self.warc.write_record(record)


async def main(seeds, out, warc):
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=trust)
    async with aiohttp.ClientSession(connector=connector) as session:
        crawl = Crawl(seeds, out, warc)
        await asyncio.gather(*(crawl.work(session) for _ in range(IN_FLIGHT)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"aiohttp {aiohttp.__version__}, uvloop {uvloop.__version__}, selectolax {selectolax.__version__}, "
              f"Python {sys.version.split()[0]}")
        sys.exit()
    with open(sys.argv[1]) as file:
        seeds = file.read().split()
    with open(sys.argv[2], "w") as out:
        if len(sys.argv) > 3:
            from warcio.warcwriter import WARCWriter
            with open(sys.argv[3], "wb") as file:
                uvloop.run(main(seeds, out, WARCWriter(file, gzip=True)))
        else:
            uvloop.run(main(seeds, out, None))
