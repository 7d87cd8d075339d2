#!/usr/bin/env python3
"""Mutation tests of throttle, frontier, fetch and robots.txt: lists mutants that no test detects.

    cargo install cargo-mutants --locked
    tools/mutants.py                # 200 mutants, which takes hours; resumes an interrupted run
    tools/mutants.py --only throttle --count 20
    tools/mutants.py --again        # tries unexplained survivors again, after tests were added
    tools/mutants.py --report       # prints the results so far

cargo-mutants lists every mutant of src/throttle, src/frontier, src/fetch and src/wire/robots (some
4 600). A sample is drawn by a hash of a fixed seed (--seed) and of the mutant's name, so that a
change of the source elsewhere changes neither the sample nor its order. The name is that of
cargo-mutants without line and column; duplicates are numbered. Mutants are tried one at a time, at low
priority, in a copy of the tree below target/mutants with its own build directory and without debug
information. Each is tested by the unit tests of its floor; survivors by those of src/crawl, and then by
those of the other floors. Results are lines of target/mutants/results.jsonl.

A survivor shows a missing test, or is equivalent to the original. tools/mutants.md lists the latter, with
reasons. Exits 1 if a survivor is not listed there.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
WORK = ROOT / "target" / "mutants"
TREE = WORK / "tree"
RESULTS = WORK / "results.jsonl"
EXPLAINED = TOOLS / "mutants.md"

FILES = [
    "src/throttle/**/*.rs",
    "src/frontier/**/*.rs",
    "src/fetch/**/*.rs",
    "src/wire/robots.rs",
    "src/wire/robots/**/*.rs",
]
# The unit tests by floor, and those of the floor above them all.
TESTS = {
    "throttle": "throttle::",
    "frontier": "frontier::",
    "fetch": "fetch::",
    "wire": "wire::robots",
}
ABOVE = "crawl::"
BUILD_SECONDS = 900
TEST_SECONDS = 200
# A mutant may fill memory in an endless loop.
MEMORY_MAX = 8 << 30


def main():
    options = arguments()
    if options.report:
        return report(options)
    if shutil.which("cargo-mutants") is None:
        sys.exit("cargo-mutants is missing: cargo install cargo-mutants --locked")
    copy_tree()
    os.nice(5)
    sample = draw(options)
    known = results()
    if test(None) != "missed":
        sys.exit("the tests fail without any mutant: fix them first")
    for number, mutant in enumerate(sample, 1):
        name = mutant["lasting"]
        outcome = known.get(name)
        is_tried_again = options.again and outcome == "missed" and name not in explained()
        if outcome is not None and not is_tried_again:
            continue
        outcome = judge(mutant)
        print(f"{number:4} {outcome:9} {name}", flush=True)
        with RESULTS.open("a") as file:
            file.write(json.dumps({"name": name, "outcome": outcome}) + "\n")
    return report(options, sample)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="mutants in the sample")
    parser.add_argument("--seed", type=int, default=15, help="seed of the sample")
    parser.add_argument("--only", choices=TESTS, help="mutants of one floor only")
    parser.add_argument("--again", action="store_true", help="try unexplained survivors again")
    parser.add_argument("--report", action="store_true", help="only print the report")
    return parser.parse_args()


def copy_tree():
    """Updates the copy, writing only files that differ, because cargo compares modification times."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, target = ROOT / name, TREE / name
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for path in TREE.rglob("*.rs"):
        if str(path.relative_to(TREE)) not in names:
            path.unlink()


def draw(options):
    """The sample, in the order in which it is tried."""
    command = ["cargo", "mutants", "--list", "--json", "-d", str(TREE)]
    for file in FILES:
        command += ["-f", file]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    seen = Counter()
    for mutant in listed:
        # The line and column change with what stands above.
        name = re.sub(r":\d+:\d+:", ":", mutant["name"], count=1)
        seen[name] += 1
        mutant["lasting"] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    listed.sort(key=lambda mutant: digest(f"{options.seed} {mutant['lasting']}"))
    sample = listed[: options.count]
    return [mutant for mutant in sample if options.only in (None, floor(mutant))]


def floor(mutant):
    return mutant["file"].split("/")[1]


def digest(text):
    return hashlib.sha256(text.encode()).digest()


def judge(mutant):
    file = TREE / mutant["file"]
    sound = file.read_bytes()
    try:
        subprocess.run(
            ["patch", "--silent", "--no-backup-if-mismatch", str(file)],
            input=mutant["diff"], check=True, text=True,
        )
        return test(TESTS[floor(mutant)])
    finally:
        file.write_bytes(sound)


def test(own):
    """The outcome of the tests on the copy, those of its own floor first."""
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(WORK / "build"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
    }
    build = ["cargo", "test", "--quiet", "--lib", "--no-run"]
    others = [tests for tests in TESTS.values() if tests != own]
    try:
        if quietly(build, environment, BUILD_SECONDS) != 0:
            return "unviable"
        for tests in [own] if own else [ABOVE], [ABOVE], others:
            command = ["cargo", "test", "--quiet", "--lib", "--", *tests]
            if quietly(command, environment, TEST_SECONDS) != 0:
                return "caught"
        return "missed"
    except subprocess.TimeoutExpired:
        return "timeout"


def quietly(command, environment, seconds):
    """The exit code of a command; after the timeout it and its children are killed."""
    process = subprocess.Popen(
        command, cwd=TREE, env=environment, start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        return process.wait(seconds)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def results():
    """The last outcome of each mutant."""
    if not RESULTS.exists():
        return {}
    lines = map(json.loads, RESULTS.read_text().splitlines())
    return {line["name"]: line["outcome"] for line in lines}


def explained():
    """Equivalent mutants: the code spans at the start of list items in mutants.md."""
    text = EXPLAINED.read_text() if EXPLAINED.exists() else ""
    return set(re.findall(r"^- `(src/[^`]+)`", text, re.MULTILINE))


def report(options, sample=None):
    known = results()
    if sample is not None:
        wanted = {mutant["lasting"] for mutant in sample}
        known = {name: outcome for name, outcome in known.items() if name in wanted}
    if options.only:
        known = {name: one for name, one in known.items() if name.split("/")[1] == options.only}
    for outcome, count in Counter(known.values()).most_common():
        print(f"{count:4} {outcome}")
    missed = sorted(name for name, outcome in known.items() if outcome == "missed")
    unexplained = [name for name in missed if name not in explained()]
    print(f"{len(missed) - len(unexplained):4} of those missed are explained in {EXPLAINED.name}")
    for name in unexplained:
        print(f"     survives: {name}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
