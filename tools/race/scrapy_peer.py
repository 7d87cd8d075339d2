#!/usr/bin/env python3
"""Crawls the sites of a file of seeds with Scrapy, following links within each.

    tools/race/scrapy_peer.py SEEDS OUT
    tools/race/scrapy_peer.py --version

A peer in tools/race.py: Scrapy's link extractor and JSON lines, 256 requests at a time.
"""

import sys
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor


class Pages(scrapy.Spider):
    name = "pages"

    def __init__(self, seeds):
        super().__init__()
        self.seeds = seeds
        self.links = LinkExtractor(allow_domains=sorted({urlsplit(seed).netloc for seed in seeds}))

    async def start(self):
        for seed in self.seeds:
            yield scrapy.Request(seed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
        for link in self.links.extract_links(response):
            yield scrapy.Request(link.url)


def main():
    if sys.argv[1:] == ["--version"]:
        print(f"Scrapy {scrapy.__version__}, Python {sys.version.split()[0]}")
        return
    with open(sys.argv[1]) as file:
        seeds = file.read().split()
    process = CrawlerProcess({
        "CONCURRENT_REQUESTS": 256,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": True,
        "RETRY_ENABLED": False,
        "COOKIES_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
        "FEEDS": {sys.argv[2]: {"format": "jsonlines", "overwrite": True}},
    })
    process.crawl(Pages, seeds=seeds)
    process.start()


if __name__ == "__main__":
    main()
