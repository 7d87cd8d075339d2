#!/usr/bin/env python3
"""Fetches the URLs of a file with pycurl's CurlMulti, 256 at a time, each on a new connection.

    tools/speed/pycurl_peer.py FILE COUNT
    tools/speed/pycurl_peer.py --version

A peer in tools/figures.py: libcurl's multi interface as in its examples, with perform and select.
Drops bodies; exits on any status but 200.
"""

import sys
import time
from itertools import islice

import pycurl

IN_FLIGHT = 256
SELECT_SECONDS = 1.0


def drop(_bytes):
    pass


def begin(multi, easy, urls):
    """Starts the next transfer; false if there is none."""
    for url in urls:
        easy.setopt(pycurl.URL, url)
        multi.add_handle(easy)
        return True
    return False


def fetch_all(urls):
    multi = pycurl.CurlMulti()
    rest = iter(urls)
    # Keeps references while libcurl uses them.
    handles = [pycurl.Curl() for _ in range(IN_FLIGHT)]
    for easy in handles:
        easy.setopt(pycurl.WRITEFUNCTION, drop)
        easy.setopt(pycurl.NOSIGNAL, 1)
        easy.setopt(pycurl.FORBID_REUSE, 1)
    running = sum(begin(multi, easy, rest) for easy in handles)
    while running:
        multi.perform()
        queued = 1
        while queued:
            queued, good, bad = multi.info_read()
            for _, code, message in bad:
                sys.exit(f"a transfer failed: {code} {message}")
            for easy in good:
                if (status := easy.getinfo(pycurl.RESPONSE_CODE)) != 200:
                    sys.exit(f"{easy.getinfo(pycurl.EFFECTIVE_URL)}: {status}")
                multi.remove_handle(easy)
                running -= 1 - begin(multi, easy, rest)
        multi.select(SELECT_SECONDS)


def main():
    if sys.argv[1:] == ["--version"]:
        libcurl = pycurl.version_info()[1]
        print(f"{pycurl.version.split()[0]}, libcurl {libcurl}, Python {sys.version.split()[0]}")
        return
    with open(sys.argv[1]) as file:
        urls = [line.strip() for line in islice(file, int(sys.argv[2]))]
    began, cpu = time.monotonic(), time.process_time()
    fetch_all(urls)
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    each = cpu / len(urls) * 1e6
    print(f"{len(urls)} requests in {wall:.3f} s: {len(urls) / wall:.0f}/s, {each:.1f} us of processor time each")


if __name__ == "__main__":
    main()
