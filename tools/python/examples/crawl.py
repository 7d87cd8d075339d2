#!/usr/bin/env python3
"""A crawl inside an asyncio program: its descriptor is a reader of the loop, which goes on meanwhile.

    crawl.py [NAME=VALUE]... URL...

Each page is printed as it ends; beside the crawl another task counts how often it had its turn.
"""

import asyncio
import sys

import argiope


async def beat(beats):
    while True:
        beats.append(None)
        await asyncio.sleep(0.01)


async def main(arguments):
    settings = dict(argument.split("=", 1) for argument in arguments if "://" not in argument)
    urls = [argument for argument in arguments if "://" in argument]
    beats = []
    beating = asyncio.create_task(beat(beats))
    async for page in argiope.crawl(urls, settings):
        print(page.status, page.url, len(page.body), "bytes", page.error or "")
    beating.cancel()
    print(len(beats), "beats")


asyncio.run(main(sys.argv[1:]))
