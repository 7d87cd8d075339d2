"""Environment of speed measurements: one network namespace, nginx on one core, clients on the other,
with their processor time."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
IN_NAMESPACE = "ARGIOPE_FIGURES_IN_NAMESPACE"
PORT = 18080
TLS_PORT = 18443
ADDRESSES = 10_000
# At most as many as a crawl caches sessions for.
TLS_ADDRESSES = 1_000
KEPT_ADDRESSES = 4
IN_FLIGHT = 256
CLIENT_CORE, SERVER_CORE = "0", "1"
WITH_STATE, WITHOUT_STATE = "STATE=true", "STATE=false"

NGINX = """
daemon off;
# One process, so that none is left when it is ended.
master_process off;
error_log {dir}/error.log;
pid {dir}/nginx.pid;
events {{ worker_connections 19900; multi_accept on; }}
http {{
    access_log off;
    default_type text/html;
    keepalive_requests 100000000;
    open_file_cache max=100;
    ssl_certificate {dir}/leaf.pem;
    ssl_certificate_key {dir}/leaf.key;
    ssl_protocols TLSv1.3;
    ssl_session_tickets on;
    server {{
        listen 0.0.0.0:{port} backlog=4096;
        listen 0.0.0.0:{tls_port} ssl backlog=4096;
        root {dir}/www;
        # Whatever path is asked for costs the same, so that no client is spared a look for a file.
        location / {{ rewrite ^ /page.html break; }}
        location = /robots.txt {{ }}
    }}
}}
"""


class Trouble(Exception):
    """Why a figure cannot be taken."""


@dataclass
class Run:
    """Result of a client: its output, rate, processor time per page, and most resident memory in MB."""

    output: str
    rate: float
    user: float
    system: float
    memory: float = 0


def address(number):
    """127.0.1.1 and on, 250 addresses in each block of 256."""
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def check_machine():
    """Exits with a message if something is missing, before anything is started."""
    if os.geteuid() != 0:
        sys.exit("a network namespace needs root")
    if os.cpu_count() < 2:
        sys.exit("client and server need one core each")
    for program, package in (("unshare", "util-linux"), ("taskset", "util-linux"), ("ip", "iproute2"),
                             ("nginx", "nginx"), ("wrk", "wrk"), ("openssl", "openssl")):
        if not shutil.which(program):
            sys.exit(f"{program} is not installed: apt-get install {package}")


def enter_namespace():
    """Starts this program again in a network namespace with loopback only, unless already inside.

    There nginx may listen on all of 127.0.0.0/8, and both ends use cubic: bbr paces.
    """
    if os.environ.get(IN_NAMESPACE) != "1":
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    must(["ip", "link", "set", "lo", "up"])
    for route in ("127.0.0.0/8", "127.0.0.1"):
        must(["ip", "route", "replace", "table", "local", "local", route, "dev", "lo", "proto", "kernel",
              "scope", "host", "src", "127.0.0.1", "congctl", "cubic"])


def must(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Trouble(f"{command[0]}: {done.stderr.strip() or done.returncode}")


class Stage:
    """nginx with its pages, and their clients. A context manager that ends the processes it started."""

    nginx_conf = NGINX
    # As taskset takes them; the server has its core in any case.
    client_cores = CLIENT_CORE

    def __init__(self, binaries, argiope=None):
        self.argiope = argiope or binaries / "argiope"
        self.examples = binaries / "examples"
        self.children = set()
        self.stateful = {}

    def __enter__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="figures-"))
        try:
            self.make_pages()
            self.make_certificates()
            self.start_nginx()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in list(self.children):
            self.end(child)
        shutil.rmtree(self.dir, ignore_errors=True)

    def end(self, child):
        """Ends a child by SIGTERM, so that it can end its own children, then by SIGKILL."""
        child.terminate()
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        self.children.discard(child)

    def make_pages(self):
        """A page below a kilobyte without links; a robots.txt that allows everything."""
        www = self.dir / "www"
        www.mkdir()
        (www / "page.html").write_text(f"<html><body><p>{'x' * 700}</p></body></html>")
        (www / "robots.txt").write_text("User-agent: *\nAllow: /\n")

    def make_certificates(self):
        """An authority, and a certificate for every address that is used with TLS."""
        d = self.dir
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        names = ",".join(f"IP:{address(number)}" for number in range(TLS_ADDRESSES))
        (d / "names").write_text(f"basicConstraints=CA:FALSE\nsubjectAltName={names}\n")
        must(["openssl", "req", "-x509", *key, "-keyout", d / "ca.key", "-out", d / "ca.pem", "-days", "2",
              "-subj", "/CN=figures"])
        must(["openssl", "req", *key, "-keyout", d / "leaf.key", "-out", d / "leaf.csr", "-subj", "/CN=page"])
        must(["openssl", "x509", "-req", "-in", d / "leaf.csr", "-CA", d / "ca.pem", "-CAkey", d / "ca.key",
              "-CAcreateserial", "-days", "2", "-extfile", d / "names", "-out", d / "leaf.pem"])

    def start_nginx(self):
        conf = self.dir / "nginx.conf"
        conf.write_text(self.nginx_conf.format(dir=self.dir, port=PORT, tls_port=TLS_PORT))
        nginx = subprocess.Popen(["taskset", "-c", SERVER_CORE, "nginx", "-c", conf],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.add(nginx)
        ends = time.monotonic() + 10
        while time.monotonic() < ends and nginx.poll() is None:
            if subprocess.run(["openssl", "s_client", "-connect", f"{address(0)}:{TLS_PORT}"],
                              stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
                return
            time.sleep(0.05)
        log = self.dir / "error.log"
        raise Trouble(f"nginx does not listen: {log.read_text().strip() if log.exists() else 'no log'}")

    def urls(self, kind, count):
        """A file with this many URLs: `new` over many addresses in turn, `kept` over few, `tls`."""
        path = self.dir / f"{kind}-{count}.txt"
        if not path.exists():
            scheme, port, addresses = {
                "new": ("http", PORT, ADDRESSES),
                "kept": ("http", PORT, KEPT_ADDRESSES),
                "tls": ("https", TLS_PORT, TLS_ADDRESSES),
            }[kind]
            with open(path, "w") as out:
                for number in range(count):
                    host = address(number % addresses)
                    out.write(f"{scheme}://{host}:{port}/p{number // addresses}\n")
        return path

    def run(self, command, pages=None, seconds=180):
        """Runs a client on the client's cores; its rate is the `N/s` in its output."""
        command = ["taskset", "-c", self.client_cores, *map(str, command)]
        name = Path(command[3]).name
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)
            self.children.add(child)
            watch = threading.Timer(seconds, child.kill)
            watch.start()
            # Not `child.wait`, which does not return the processor time.
            _, status, usage = os.wait4(child.pid, 0)
            watch.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
            self.children.discard(child)
            out.seek(0)
            err.seek(0)
            output, complained = out.read(), err.read().strip()
        if child.returncode:
            last = complained.splitlines()[-1:] or ["no word"]
            raise Trouble(f"{name} ended with {child.returncode}: {last[0]}")
        rate = re.search(r"([\d.]+)/s", output)
        each = 1e6 / pages if pages else 0
        return Run(output, float(rate[1]) if rate else 0, usage.ru_utime * each, usage.ru_stime * each,
                   usage.ru_maxrss / 1024)

    def run_tool(self, command, seconds):
        """Runs a tool that includes its own server, on both cores; returns its output."""
        child = subprocess.Popen([*map(str, command)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)
        self.children.add(child)
        try:
            output, complained = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Trouble(f"{Path(command[0]).name} took more than {seconds} s") from None
        finally:
            self.end(child)
        if child.returncode:
            last = complained.strip().splitlines()[-1:] or ["no word"]
            raise Trouble(f"{Path(command[0]).name} ended with {child.returncode}: {last[0]}")
        return output.strip()

    def bare(self, requests, *more):
        return self.run([self.examples / "bare_loop", "--requests", requests, "--in-flight", IN_FLIGHT, *more],
                        requests)

    def can_have_state(self, argiope):
        """Whether this build of the command has the setting STATE."""
        if argiope not in self.stateful:
            listed = subprocess.run([argiope, "settings", "--json"], capture_output=True, text=True)
            self.stateful[argiope] = '"name":"STATE"' in listed.stdout.replace(" ", "")
        return self.stateful[argiope]

    def crawl(self, kind, pages, *settings, argiope=None):
        """A whole crawl with result lines, and its stats. Every page must have come. Without a state on disk,
        unless the settings ask for it."""
        argiope = argiope or self.argiope
        if WITH_STATE not in settings and self.can_have_state(argiope):
            settings = (*settings, WITHOUT_STATE)
        out = self.dir / "crawl"
        command = [argiope, "crawl", "--seeds", self.urls(kind, pages), "--out", out, "--overwrite",
                   "--quiet", "--no-warc", "--follow", "none", "--allow-net", "loopback",
                   "--contact", "figures@example.com", "--ca-file", self.dir / "ca.pem"]
        for setting in ("DOWNLOAD_DELAY=0", "DOWNLOAD_DELAY_PER_SLOT=0", f"CONCURRENT_REQUESTS={IN_FLIGHT}",
                        *settings):
            command += ["-s", setting]
        run = self.run(command, pages)
        stats = json.loads((out / "stats.json").read_text())
        if stats["pages"] != pages or stats["errors"] or stats["status"].get("200") != stats["attempts"]:
            raise Trouble(f"the crawl got {stats['pages']} pages of {pages}: {stats['errors']}")
        run.rate = stats["pages_per_second"]
        return run, stats
