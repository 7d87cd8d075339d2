#!/usr/bin/env bash
# Looks for memory faults in the tests: bash tools/memory_checks.sh
#
# AddressSanitizer runs the io floor on epoll and io_uring, and the floors without system calls. It
# sees each access of ours to memory that was freed, not the kernel's. Its runtime comes with the
# compiler.
# valgrind runs the io floor by epoll: it also finds reads of uninitialized memory. It cannot follow
# io_uring, where the kernel writes to memory that was lent to it.
# Miri runs the floors without system calls: it also finds undefined behaviour that is not an access to
# freed memory. It needs a nightly toolchain: rustup +nightly component add miri.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

built=target/memory
pure=(base:: frontier::queued frontier::extra throttle::scope throttle::quota wire::)
host=$(rustc -vV | sed -n 's/^host: //p')

# The path of the unit tests' executable, built with the arguments given.
unit_tests() {
    cargo test --lib --no-run --message-format json "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

# The flag is unstable, which RUSTC_BOOTSTRAP allows on a stable compiler. Leaks are not looked for: a
# ring that cannot be quiesced leaks its buffers on purpose.
tests=$(RUSTC_BOOTSTRAP=1 RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address" \
    unit_tests --target "$host" --target-dir "$built/asan")
ASAN_OPTIONS=detect_leaks=0 "$tests" io:: "${pure[@]}"
echo "AddressSanitizer found nothing"

if command -v valgrind >/dev/null; then
    # rustix reads the vDSO, which valgrind hides; with libc it does not.
    tests=$(RUSTFLAGS="${RUSTFLAGS:-} --cfg rustix_use_libc" unit_tests --target-dir "$built/valgrind")
    # Tests that measure time fail now and then at this pace, so only valgrind's own findings count.
    status=0
    valgrind --quiet --error-exitcode=99 --fair-sched=yes \
        "$tests" io:: --skip uring --test-threads 1 || status=$?
    [ "$status" -ne 99 ] || { echo "valgrind found errors"; exit 1; }
    echo "valgrind found no errors"
else
    echo "SKIPPED valgrind: it is not installed"
fi

if cargo +nightly miri --version >/dev/null 2>&1; then
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --lib --target-dir "$built/miri" -- \
        "${pure[@]}"
else
    echo "SKIPPED Miri: it is not installed in a nightly toolchain"
fi
