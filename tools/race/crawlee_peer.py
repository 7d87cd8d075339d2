#!/usr/bin/env python3
"""Crawls the sites of a file of seeds with Crawlee, following links within each.

    tools/race/crawlee_peer.py SEEDS OUT
    tools/race/crawlee_peer.py --version

A peer in tools/race.py: `BeautifulSoupCrawler`, storage in memory, 256 requests at a time.
"""

import asyncio
import json
import sys
from datetime import timedelta

import crawlee
from crawlee import ConcurrencySettings
from crawlee.crawlers import BeautifulSoupCrawler
from crawlee.http_clients import HttpxHttpClient
from crawlee.storage_clients import MemoryStorageClient


async def main(seeds, out):
    crawler = BeautifulSoupCrawler(
        http_client=HttpxHttpClient(verify=False, http2=False),
        storage_client=MemoryStorageClient(),
        respect_robots_txt_file=True,
        concurrency_settings=ConcurrencySettings(min_concurrency=64, desired_concurrency=256, max_concurrency=256),
        request_handler_timeout=timedelta(minutes=5),
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context):
        out.write(json.dumps({"url": context.request.url, "status": context.http_response.status_code}) + "\n")
        await context.enqueue_links(strategy="same-hostname")

    await crawler.run(seeds)


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"Crawlee {crawlee.__version__}, Python {sys.version.split()[0]}")
        sys.exit()
    with open(sys.argv[1]) as file:
        seeds = file.read().split()
    with open(sys.argv[2], "w") as out:
        asyncio.run(main(seeds, out))
