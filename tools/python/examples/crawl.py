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


def is_setting(argument):
    # A URL has a colon before any equals sign; a value may be a URL, as that of PROXY is.
    return "=" in argument.split(":")[0]


async def main(arguments):
    settings = dict(argument.split("=", 1) for argument in arguments if is_setting(argument))
    urls = [argument for argument in arguments if not is_setting(argument)]
    beats = []
    beating = asyncio.create_task(beat(beats))
    async for page in argiope.crawl(urls, settings):
        print(page.status, page.url, len(page.body), "bytes", page.error or "")
    beating.cancel()
    print(len(beats), "beats")


asyncio.run(main(sys.argv[1:]))
