#!/usr/bin/env bash
# Builds the command with profile-guided optimization: target/profiled/argiope
#
#     tools/profiled.sh
#
# An instrumented build, crawls with it, then a build with the recorded profile. Takes ten minutes; needs
# what tools/figures.py needs, and llvm-profdata of the compiler's LLVM version (Debian: apt-get install
# llvm-22).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
home=$PWD/target/profiled

# From the rustup component `llvm-tools`, or from the system.
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$profdata" ] || profdata=$(command -v "llvm-profdata-$llvm") || {
    echo "llvm-profdata of LLVM $llvm is not installed: apt-get install llvm-$llvm, or rustup component add llvm-tools" >&2
    exit 1
}

# With an explicit --target, RUSTFLAGS do not apply to build scripts, which would count too.
build() {
    RUSTFLAGS="$1" cargo build --release --bin argiope --target "$host" --target-dir "$home/$2"
}

rm -rf "$home/counts"
build "-Cprofile-generate=$home/counts" counting
tools/speed/training.py "$home/counting/$host/release/argiope"
"$profdata" merge -o "$home/counts.profdata" "$home/counts"
build "-Cprofile-use=$home/counts.profdata" laid_out
cp "$home/laid_out/$host/release/argiope" "$home/argiope"
echo "target/profiled/argiope"
