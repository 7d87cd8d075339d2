"""Raw results of a run, as docs/benchmarks/raw keeps them: a header, and what each round measured.

A file is named DATE-TOOL-COMMIT.json, with -2 and so on where there is one already; `--json DIRECTORY`
gives it that name. Paths are those below the
repository, or a file's name alone: nothing here names a machine.
"""

import datetime
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def header(tool, rounds):
    """When, of which commit, on what and by which command a run was made."""
    return {
        "tool": tool,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "kernel": kernel()},
        "command": " ".join(["tools/" + Path(sys.argv[0]).name, *map(plain, sys.argv[1:])]),
        "rounds": rounds,
    }


def commit():
    """The commit of the work tree, with `+` where files that git knows were changed."""
    described = subprocess.run(["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"], cwd=ROOT,
                          capture_output=True, text=True)
    return described.stdout.strip() or "unknown"


def cpu_model():
    found = re.search(r"^model name\s*: *(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else platform.machine()


def kernel():
    """Its version, without the name that a builder gave it."""
    return "Linux " + re.match(r"[\d.]*\d", platform.release())[0]


def plain(word):
    """A word of the command line, without the folders above the repository and those outside of it."""
    if not word.startswith("/"):
        return word
    path = Path(word)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def binary(path):
    """Which program it was."""
    return {"file": plain(str(path)), "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]}


def write(where, head, **results):
    """Writes a run's results to a file, or into a directory under the name for keeping. A line for each
    entry of each list, so that they can be read and compared."""
    path = Path(where)
    if path.is_dir():
        name = "{date}-{tool}-{commit}".format(**head)
        names = (f"{name}{more}.json" for more in ["", *(f"-{number}" for number in range(2, 100))])
        path = next(path / name for name in names if not (path / name).exists())
    parts = []
    for key, value in {**head, **results}.items():
        if isinstance(value, list) and value:
            entries = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in value)
            parts.append(f" {json.dumps(key)}: [\n{entries}\n ]")
        elif key in results and isinstance(value, dict) and value:
            entries = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}"
                                 for name, entry in value.items())
            parts.append(f" {json.dumps(key)}: {{\n{entries}\n }}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    print(f"raw results: {plain(str(path))}", file=sys.stderr)
