#!/usr/bin/env python3
"""Fetches the URLs of a file with Scrapy, 256 at a time, each on a new connection.

    tools/speed/scrapy_peer.py FILE COUNT
    tools/speed/scrapy_peer.py --version

A peer in tools/figures.py. Scrapy's defaults, without delays, retries, cookies and robots.txt.
"""

import sys
import time
from itertools import islice

import scrapy
from scrapy.crawler import CrawlerProcess

SETTINGS = {
    "CONCURRENT_REQUESTS": 256,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 256,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "RETRY_ENABLED": False,
    "COOKIES_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
    # Otherwise connections that are not used again would be kept for minutes.
    "DEFAULT_REQUEST_HEADERS": {"Connection": "close"},
}


class Pages(scrapy.Spider):
    name = "pages"
    got = 0
    began = ended = cpu_began = cpu_ended = None

    async def start(self):
        self.began, self.cpu_began = time.monotonic(), time.process_time()
        for url in self.urls:
            yield scrapy.Request(url, dont_filter=True)

    def parse(self, response):
        self.got += 1
        self.ended, self.cpu_ended = time.monotonic(), time.process_time()


def main():
    if sys.argv[1:] == ["--version"]:
        print(f"Scrapy {scrapy.__version__}, Python {sys.version.split()[0]}")
        return
    with open(sys.argv[1]) as file:
        urls = [line.strip() for line in islice(file, int(sys.argv[2]))]
    process = CrawlerProcess(SETTINGS)
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, urls=urls)
    process.start()
    spider = crawler.spider
    if spider.got != len(urls):
        sys.exit(f"{spider.got} pages of {len(urls)}")
    wall = spider.ended - spider.began
    each = (spider.cpu_ended - spider.cpu_began) / spider.got * 1e6
    print(f"{spider.got} requests in {wall:.3f} s: {spider.got / wall:.0f}/s, {each:.1f} us of processor time each")


if __name__ == "__main__":
    main()
