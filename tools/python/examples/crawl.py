#!/usr/bin/env python3
"""A crawl inside an asyncio program; other tasks of the loop keep running.

    crawl.py [NAME=VALUE]... URL...

Prints each page as it ends. A second task counts how often it ran.
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
