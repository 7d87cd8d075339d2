#!/usr/bin/env bash
# A crawl behind a pipe: writes seeds to it one by one, as URLs or JSON, and prints each result as a line
# of JSON when it arrives. Each seed waits for the answer to the one before; the crawl ends with the
# seeds.
#
#   printf '%s\n' http://example.com/ '{"url": "http://example.org/", "meta": 7}' | examples/lines.sh
#
# Arguments are passed to `argiope crawl`. ARGIOPE is the path of the program.
set -euo pipefail

coproc crawl {
    exec "${ARGIOPE:-argiope}" crawl --seeds - --results - --follow none --quiet "$@"
}
pid=$crawl_PID
exec {seeds}>&"${crawl[1]}" {results}<&"${crawl[0]}"
eval "exec ${crawl[1]}>&-"

while read -r seed; do
    printf '%s\n' "$seed" >&"$seeds"
    # Skip the result of robots.txt before the page, and redirects before their target.
    while read -r result <&"$results"; do
        printf '%s\n' "$result"
        [[ $result == *'"final": true, "kind": "page"'* ]] && break
    done
done

exec {seeds}>&-
wait "$pid"
