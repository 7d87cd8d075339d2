"""Requests pages from one origin without end, at the pace of Scrapy's settings.

    scrapy runspider tools/limits_spider.py -a origin=http://127.0.0.1:8080

The peer in tools/limits.py; the origin measures.
"""

from itertools import count

import scrapy
from scrapy import signals


class LimitsSpider(scrapy.Spider):
    name = "limits"
    custom_settings = {"LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False}

    async def start(self):
        for number in count(1):
            yield scrapy.Request(f"{self.origin}/{number}", dont_filter=True)
            # Otherwise the endless iterator would be queued before the first request is sent.
            if number % 64 == 0:
                await self.crawler.signals.wait_for(signals.scheduler_empty)

    def parse(self, response):
        pass
