#!/usr/bin/env bash
# A crawl that runs as long as this does, behind a pipe: seeds go in one by one, as URLs or as JSON
# with more to say, and each result comes out as a line of JSON as soon as it is there. Here each
# seed waits for the answer to the one before it; at the end of the seeds the crawl ends.
#
#   printf '%s\n' http://example.com/ '{"url": "http://example.org/", "meta": 7}' | examples/lines.sh
#
# What is said to this is said to `argiope crawl`. ARGIOPE names the program.
set -euo pipefail

coproc crawl {
    exec "${ARGIOPE:-argiope}" crawl --seeds - --results - --follow none --quiet "$@"
}
pid=$crawl_PID
exec {seeds}>&"${crawl[1]}" {results}<&"${crawl[0]}"
eval "exec ${crawl[1]}>&-"

while read -r seed; do
    printf '%s\n' "$seed" >&"$seeds"
    # Before the page comes its robots.txt; behind a redirect comes what it leads to.
    while read -r result <&"$results"; do
        printf '%s\n' "$result"
        [[ $result == *'"final": true, "kind": "page"'* ]] && break
    done
done

exec {seeds}>&-
wait "$pid"
