#!/usr/bin/env python3
"""Judges from the files of a crawl whether it was polite: a second verifier beside `argiope audit`, without its code.

    python3 tools/audit.py DIR [--json]

docs/reference/audit.md says what is judged. Exit code 0: no violation, 1: violations, 2: the directory cannot be judged.
Needs all lines in memory, and the standard library alone; of compressed lines it reads .gz.
"""
import base64, bisect, glob, gzip, heapq, ipaddress, json, os, re, sys
from calendar import timegm
from collections import defaultdict, deque
from urllib.parse import unquote_to_bytes

SECOND, NEVER = 10**9, 1 << 63
def time_of(text):
    """Nanoseconds since 1970 of an RFC 3339 time."""
    parts = [int(part) for part in re.split("[-T:.Z]", text)[:6]]
    return timegm((*parts, 0, 0, 0)) * SECOND + int(text[20:29])
def nanos(seconds):
    return max(0, round(seconds * 1e9))
def lines_of(folder, name):
    """The intact lines of a file, or of a series of files that begins with it."""
    stem = os.path.join(folder, name)
    for path in sorted(glob.glob(stem + "-*.jsonl*")) + sorted(glob.glob(stem + ".jsonl*")):
        if ".zst" in path:
            sys.exit(f"{path}: audit.py reads no .zst; decompress it")
        with (gzip.open if ".gz" in path else open)(path, "rb") as file:
            yield from (json.loads(line) for line in file if line.endswith(b"}\n"))
def normal(path):
    """A path of robots.txt or of a URL: escapes of unreserved octets are plain, others in upper case."""
    def escaped(match):
        plain, octets = match[0][0] != "%" or len(match[0]) == 1, unquote_to_bytes(match[0])
        return "".join(chr(octet) if re.match(r"[!-~]" if plain else r"[\w.~-]", chr(octet), re.A) else "%%%02X" % octet
                       for octet in octets)
    return re.sub(r"%[0-9A-Fa-f]{2}|.", escaped, path, flags=re.S)
def matches(pattern, path):
    whole = r"\Z" if pattern.endswith("$") else ""
    return re.match(re.escape(pattern[:-1] if whole else pattern).replace(r"\*", ".*") + whole, path, re.S)

class Rules:
    """The rules of a robots.txt for one agent (RFC 9309)."""
    def __init__(self, text, agent):
        groups, is_open = [], False
        for line in re.split("\r\n|\r|\n", text.lstrip("\ufeff")):
            key, colon, value = line.split("#")[0].partition(":")
            key, value = key.strip().lower().replace(" ", "-"), value.strip()
            if colon and key == "user-agent":
                if not is_open:
                    groups.append(([], [], []))
                is_open = True
                groups[-1][0].extend(re.match(r"\*|[a-z_-]*", name.strip().lower()).group() for name in value.split(","))
            elif colon and groups and key in ("allow", "disallow"):
                is_open = False
                groups[-1][1].extend([(normal(value), key == "allow")] if value else [])
            elif colon and groups and key == "crawl-delay" and re.fullmatch(r"\d+(\.\d*)?|\.\d+", value):
                groups[-1][2].append(float(value))
        token = re.match("[a-z_-]*", agent.strip().lower()).group()
        chosen = [group for group in groups if token in group[0]] or [group for group in groups if "*" in group[0]]
        self.rules = [rule for group in chosen for rule in group[1]]
        self.delay = nanos(max((delay for group in chosen for delay in group[2]), default=0))
    def allows(self, target):
        hits = [(len(pattern), allow) for pattern, allow in self.rules if matches(pattern, normal(target or "/"))]
        return max(hits, default=(0, True))[1] or target.split("?")[0] == "/robots.txt"
def excludes(entry, host):
    return host == entry[2:] or host.endswith(entry[1:]) if entry.startswith("*.") else entry == host
def networks(texts):
    return [ipaddress.ip_network(text, False) for text in texts]
def is_in(address, nets):
    both = (address, getattr(address, "ipv4_mapped", None))
    return any(one in net for net in nets for one in both if one and one.version == net.version)
# The special-purpose registries of IANA, and what in them is global nevertheless.
SPECIAL = networks((
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3 2001::/23 2001:db8::/32 "
    "3fff::/20").split())
EXCEPTED = networks((
    "192.0.0.9/32 192.0.0.10/32 2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:3::/32 2001:4:112::/48 2001:20::/28 "
    "2001:30::/28").split())
NAMED = {"loopback": ["127.0.0.0/8", "::1/128"], "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7".split()}
def is_global(address):
    if address.version == 6:
        carried = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        carried = ipaddress.ip_address(int(address) & 0xFFFFFFFF) if is_in(address, networks(["64:ff9b::/96"])) else carried
        if carried or address not in ipaddress.ip_network("2000::/3"):
            return bool(carried) and is_global(carried)
    return is_in(address, EXCEPTED) or not is_in(address, SPECIAL)

class Settings:
    """The settings in effect from a time on."""
    def __init__(self, of, scopes=None):
        self.of, self.scopes = of, of["scopes"] if scopes is None else scopes
        self.allowed = networks(net for word in of["allow_net"] for net in NAMED.get(word, [word]))
        self.excluded = networks(of["exclude_nets"])
    def entry(self, scope, domains):
        host = scope.split(":")[0] if "/" not in scope else ""
        above = [scope[:slash.start()] for slash in re.finditer("/", "" if scope.startswith("ip/") else scope)][7::-1]
        patterns = [scope] + ["ip/*"] * scope.startswith("ip/") + ["*" + host[dot.start():] for dot in re.finditer(r"\.", host)]
        patterns += [key + "/*" for key in above if key != "domain"]
        return next((self.scopes[one] for one in patterns + ["domain/*"] * (scope in domains) if one in self.scopes), None)
    def limits(self, scope, domains):
        """gap, slot gap, slots, concurrency, per minute, hold until, longest hold; None: nothing is promised."""
        entry, per_ip = self.entry(scope, domains), self.of["concurrent_requests_per_ip"]
        if scope.startswith("host/") or entry is None and per_ip and scope.startswith("ip/"):
            return (0, 0, 0, per_ip, 0, 0, NEVER) if scope.startswith("ip/") else None
        entry = entry or self.of["default"]
        longest = NEVER if self.of["holds"]["obeyed_fully"] else nanos(entry["hold_max"])
        until, minute = time_of(entry["hold_until"] or "1970-01-01T00:00:00.000000000Z"), entry["requests_per_minute"]
        low = min(0, entry["jitter"][0], (entry["backoff_jitter"] or [0])[0])
        least = lambda delay: max(0, nanos(delay * (1 + low) * (1 - 1e-6)) - 2)
        minute = 0 if minute is None else max(1, int(minute))
        if entry["managed"]:
            return (0, 0, 0, 0, 0, until, longest)
        if entry["rampup_min_delay"] is not None:
            return (least(entry["rampup_min_delay"]), 0, 0, 0, minute, until, longest)
        gap, slot_gap, most = least(entry["delay"]), least(entry["delay_per_slot"]), entry["concurrency"]
        gap, slot_gap = (max(gap, slot_gap), 0) if most == 1 else (gap, slot_gap)
        return (gap, slot_gap, most if slot_gap else 0, most, minute, until, longest)

class Auditor:
    def __init__(self, folder):
        self.found, self.runs, self.changes, self.cancels = [], [], [], []
        self.spans, self.robots, self.files, self.rules = defaultdict(list), defaultdict(list), {}, {}
        self.domains = set()
        for line in lines_of(folder, "runs"):
            at, event = time_of(line["at"]), line["event"]
            if event == "end":
                self.runs[-1][1] = at
            elif event in ("scope", "scopes"):
                of = {**(before := self.changes[-1][1]).of, "default": line.get("default", before.of["default"])}
                scopes = {**line.get("scopes", before.scopes), **line.get("changed", {line.get("scope"): line.get("settings")})}
                self.changes.append((at, Settings(of, {name: entry for name, entry in scopes.items() if entry})))
            else:
                self.runs.extend([[at, NEVER, line]] if event == "start" else [])
                self.changes.append((at, Settings(line["settings"])))
        self.times = [at for at, _ in self.changes]
        self.starts = [run[0] for run in self.runs]
        self.read_orders(lines_of(folder, "orders"))
        for line in lines_of(folder, "robots"):
            of_origin, at = self.robots[line["origin"]], time_of(line["at"])
            if "body" in line or "body_b64" in line:
                coded = base64.b64decode(line.get("body_b64", "")).decode("utf-8", "replace")
                self.files[line["digest"]] = line.get("body", coded)
            for before in of_origin[-1:]:
                before[1] = min(before[1], at)
            of_origin.append([at, time_of(line["until"]), line["meaning"], line["digest"]])
        self.attempts = [line for line in lines_of(folder, "results") if line["sent"]]
    def read_orders(self, orders):
        events = [(run[0], 0, {"order": "start", "line": run[2]}) for run in self.runs]
        events += [(time_of(order["at"]), 1, order) for order in orders]
        opened = {}
        def switch(key, at, is_on):
            if is_on:
                opened.setdefault(key, at)
            elif key in opened:
                self.spans[key].append((opened.pop(key), at))
        for at, _, order in sorted(events, key=lambda event: event[:2]):
            kind, name = order["order"], order.get("host") or order.get("network") or order.get("pattern") or ""
            if kind == "start":
                excluded = ["x" + text for text in order["line"]["settings"]["excluded"]]
                switch("stop", at, False)
                switch("pause", at, order["line"]["paused"])
                for key in [key for key in opened if key[0] == "x"] + excluded:
                    switch(key, at, key in excluded)
            elif kind == "cancel":
                self.cancels.append((at, order["scope"], order["until"]))
            elif kind in ("pause", "resume", "stop", "exclude", "include"):
                switch({"pause": "pause", "resume": "pause", "stop": "stop"}.get(kind, "x" + name), at, order.get("after", True))
        self.spans = defaultdict(list, {key: self.spans[key] + [(opened.get(key, NEVER), NEVER)]
                                        for key in {*self.spans, *opened}})
    def is_on(self, key, times):
        return all(any(begin < at < end for begin, end in self.spans[key]) for at in times)
    def settings(self, at):
        return self.changes[max(0, bisect.bisect_right(self.times, at) - 1)][1]
    def rules_of(self, one, agent):
        known = self.rules.get((one[3], agent)) or Rules(self.files.get(one[3], ""), agent)
        return self.rules.setdefault((one[3], agent), known)
    def report(self, kind, line, is_violated=True):
        self.found.extend([(kind, line["id"])] if is_violated else [])
    def judge(self):
        events, redirects = [], {}
        for line in self.attempts:
            line["at"] = sent = time_of(line["sent"])
            due, started = time_of(line["due"] or line["sent"]), time_of(line["started"])
            line["allowed"] = min(max(due, sent - SECOND), sent)
            line["end"] = max(sent, started + nanos(line.get("ended") or line["body"] or line["headers"] or 0))
            line["origin"] = origin = re.match(r"[a-z]+://[^/?#]*", line["url"]).group()
            authority, times = origin.split("://")[1], (sent, line["allowed"])
            host, target, pair = re.sub(r":\d+$", "", authority), line["url"][len(origin):], [*map(self.settings, times)]
            now, names = pair[0].of, [scope for scope in line["scopes"] if "/" not in scope]
            if {"domain", "hierarchy"} & set(now["scope_map"]) and names and re.search("[a-z]", names[0]):
                self.domains.add(names[0])
            self.report("early", line, due > sent)
            run = bisect.bisect_right(self.starts, sent) - 1
            self.report("outside-run", line, run < 0 or sent > self.runs[run][1])
            self.report("paused", line, self.is_on("pause", times))
            self.report("stopped", line, self.is_on("stop", times))
            is_direct = line["remote"] and not line.get("proxied", now["proxied"])
            address = ipaddress.ip_address(line["remote"].rsplit(":", 1)[0].strip("[]")) if is_direct else None
            self.judge_exclusions(line, host, address, times, pair)
            if address:
                self.report("address", line, all(not is_global(address) and not is_in(address, of.allowed) for of in pair))
                self.report("excluded-network", line, all(is_in(address, of.excluded) for of in pair))
                self.report("address-scope", line, f"ip/{address}" not in line["scopes"] and all(
                    of.of["concurrent_requests_per_ip"] for of in pair))
            started, agent = min(started, sent), now["robots"]["agent"]
            forced = [one for one in self.robots[origin] if one[1] > started and one[0] <= sent]
            if line["kind"] != "robots" and not line.get("robots_ignored") and all(of.of["robots"]["obeyed"] for of in pair):
                before = any(one[0] <= sent for one in self.robots[origin])
                if not forced:
                    self.report("robots-expired" if before else "robots-not-fetched", line)
                elif not any(one[2] == "absent" or one[2] == "rules" and self.rules_of(one, agent).allows(target)
                             for one in forced):
                    self.report("robots-disallowed" if forced[-1][2] == "rules" else "robots-unreachable", line)
            self.report("redirect-wait", line, sent < redirects.pop(line["parent"], 0))
            self.note_hold(line, events, redirects)
            delays = [self.rules_of(one, agent).delay * (one[2] == "rules") for one in forced if forced[0][0] <= started]
            line["crawl_delay"], line["alone"] = min(delays, default=0), True
            for of in pair:
                entry, by = of.entry(authority, self.domains) or {}, of.of["robots"]
                obeyed = by["obeyed"] and by["crawl_delay"] and not entry.get("own_delay")
                line["crawl_delay"] = min(line["crawl_delay"], nanos(by["crawl_delay_max"])) if obeyed else 0
                line["alone"] &= not (by["keeps_concurrency"] or entry.get("own_concurrency"))
            events.append((sent, 1, line["id"], line))
        self.judge_in_order(sorted(events, key=lambda event: event[:3]))
    def judge_exclusions(self, line, host, address, times, pair):
        for text in [key[1:] for key in self.spans if key[0] == "x" and self.is_on(key, times)]:
            if text.startswith("re:"):
                is_hit = line["kind"] != "robots" and re.search(text[3:], line["url"])
            else:
                is_hit = address and is_in(address, networks([text])) if "/" in text else excludes(text, host)
            if is_hit:
                self.report("excluded-by-order", line)
                break
        self.report("cancelled", line, line["kind"] == "page" and any(
            scope in line["scopes"] and line["id"] <= until and min(times) > at for at, scope, until in self.cancels))
        self.report("excluded-host", line, all(any(excludes(entry, host) for entry in of.of["exclude_hosts"]) for of in pair))
    def note_hold(self, line, events, redirects):
        hold = line.get("hold") or {"from": line["sent"], "seconds": 0, "redirect": None, "scopes": {}}
        begin, asked, of = time_of(hold["from"]), nanos(hold["seconds"]), self.settings(time_of(hold["from"]))
        if hold["redirect"] is not None:
            wait = nanos(hold["redirect"])
            self.report("short-hold", line, wait < min(asked, nanos(of.of["holds"]["redirect_max"])))
            redirects[line["id"]] = begin + wait
        for scope, held in hold["scopes"].items():
            limits = of.limits(scope, self.domains)
            self.report("short-hold", line, nanos(held) < min(asked, limits[6] if limits else NEVER))
            events.append((begin, 0, line["id"], (scope, begin, begin + nanos(held), hold["source"])))
    def judge_in_order(self, events):
        last, recent, holds, flying, slots_of = {}, defaultdict(deque), {}, defaultdict(list), {}
        def count(key, line):
            while flying[key] and flying[key][0] <= line["at"]:
                heapq.heappop(flying[key])
            heapq.heappush(flying[key], line["end"])
            return len(flying[key])
        for sent, is_departure, _, line in events:
            if not is_departure:
                scope, begin, end, kind = line
                known = holds.get(scope)
                begin = min(begin, known[0]) if known and known[1] >= begin else begin
                holds[scope] = known if known and known[1] > end else (begin, end, kind)
                continue
            pair = [self.settings(sent), self.settings(line["allowed"])]
            for scope in line["scopes"]:
                begin, end, kind = holds.get(scope, (0, 0, ""))
                self.report(kind, line, begin < sent < end and line["allowed"] > begin)
                limits, kept = [of.limits(scope, self.domains) for of in pair], recent[scope]
                if None not in limits:
                    now, then = limits
                    self.report("hold-until", line, sent < min(now[5], then[5]))
                    self.report("gap", line, scope in last and sent - last[scope] < min(now[0], then[0]))
                    kept = kept if slots_of.get(scope, 0) == now[2] else deque()
                    slots_of[scope], minute, longest = now[2], max(now[4], then[4]), max(now[2], now[4])
                    is_full = now[2] and len(kept) >= now[2]
                    self.report("slot-gap", line, is_full and sent - kept[-now[2]] < min(now[1], then[1]))
                    is_full = min(now[4], then[4]) and len(kept) >= minute
                    self.report("per-minute", line, is_full and sent - kept[-minute] < 60 * SECOND)
                    recent[scope] = deque(kept, maxlen=longest)
                    recent[scope].append(sent)
                    self.report("concurrency", line, count(scope, line) > max(now[3], then[3]) and min(now[3], then[3]))
                last[scope] = sent
            origin = ("origin", line["origin"])
            self.report("crawl-delay", line, origin in last and sent - last[origin] < line["crawl_delay"])
            last[origin] = sent
            self.report("crawl-delay-concurrency", line, line["crawl_delay"] and line["alone"] and count(origin, line) > 1)
            self.report("total-concurrency", line, count("all", line) > max(of.of["concurrent_requests"] for of in pair))

def main():
    folders = [word for word in sys.argv[1:] if not word.startswith("-")]
    if len(folders) != 1 or not os.path.exists(os.path.join(folders[0], "runs.jsonl")):
        print(__doc__, file=sys.stderr)
        return 2
    auditor = Auditor(folders[0])
    auditor.judge()
    found, count, verdict = auditor.found, len(auditor.attempts), "violated" if auditor.found else "kept"
    text = "\n  ".join([f"{verdict}: {len(found)} violations in {count} requests"] + [f"{one[0]} {one[1]}" for one in found[:50]])
    as_json = json.dumps({"verdict": verdict, "departures": count, "violations": found})
    print(as_json if "--json" in sys.argv else text)
    return 1 if found else 0
if __name__ == "__main__":
    sys.exit(main())
