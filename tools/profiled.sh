#!/usr/bin/env bash
# Builds the command once more, laid out by a profile of its own crawls: target/profiled/argiope
#
#     tools/profiled.sh
#
# First a build that counts where it goes, then crawls with it, then a build to which the compiler is
# given the counts: what is run together then lies together, and what is never run is out of the way.
# Ten minutes; needs what tools/figures.py does, and llvm-profdata of the LLVM
# that the compiler has (Debian: apt-get install llvm-22).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
home=$PWD/target/profiled

# The one that rustup brings with the component `llvm-tools`, or the system's.
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$profdata" ] || profdata=$(command -v "llvm-profdata-$llvm") || {
    echo "llvm-profdata of LLVM $llvm is absent: apt-get install llvm-$llvm, or rustup component add llvm-tools" >&2
    exit 1
}

# Named by its triple, the target is the command's alone: what runs while it is built counts nothing.
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
