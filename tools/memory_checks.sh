#!/usr/bin/env bash
# Looks for faults of memory in tests: bash tools/memory_checks.sh
#
# The io floor runs under valgrind: sockets, stamps, timers and the disk, by epoll. io_uring is left out:
# valgrind does not know what the kernel does with memory that is lent to it. The floors without system
# calls run under Miri where a nightly toolchain has it (rustup +nightly component add miri).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# rustix reads the vDSO itself, whose pages valgrind hides; through libc it does not.
export RUSTFLAGS="${RUSTFLAGS:-} --cfg rustix_use_libc"
built=target/memory

if command -v valgrind >/dev/null; then
    tests=$(cargo test --lib --no-run --target-dir "$built" --message-format json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    # Tests that measure time fail now and then at this pace, so only what valgrind says counts.
    status=0
    valgrind --quiet --error-exitcode=99 --fair-sched=yes \
        "$tests" io:: --skip uring --test-threads 1 || status=$?
    [ "$status" -ne 99 ] || { echo "valgrind found faults"; exit 1; }
    echo "valgrind found nothing"
else
    echo "SKIPPED valgrind: it is not installed"
fi

if cargo +nightly miri --version >/dev/null 2>&1; then
    unset RUSTFLAGS
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --lib --target-dir "$built" -- \
        base:: throttle::scope throttle::quota frontier::queued wire::http wire::robots
else
    echo "SKIPPED Miri: no nightly toolchain has it"
fi
