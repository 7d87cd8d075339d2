#!/bin/sh
# How fast a crawl is, as shares of a bare epoll loop and of wrk, against nginx on the other core.
#
#     tools/speed.sh [ROUNDS]
#
# Runs in a network namespace of its own that has loopback only, so that nginx may listen on all
# of 127.0.0.0/8, and with cubic on both ends: bbr paces. Needs root, nginx, wrk, and two cores.
# Each round runs all of them one after the other; the last lines give each ratio's median.
#
# BIN: where the release binaries are (default target/release). PAGES: pages per run.
set -eu

if [ "${IN_NAMESPACE:-}" != 1 ]; then
    IN_NAMESPACE=1 exec unshare -n "$0" "$@"
fi

rounds=${1:-3}
pages=${PAGES:-20000}
bin=${BIN:-$(dirname "$0")/../target/release}
port=18080
dir=$(mktemp -d)
# Its worker is another user.
chmod 755 "$dir"
trap 'kill "$nginx" 2>/dev/null || true; rm -rf "$dir"' EXIT

ip link set lo up
for route in 127.0.0.0/8 127.0.0.1; do
    ip route replace table local local $route dev lo proto kernel scope host src 127.0.0.1 \
        congctl cubic
done

# A page of about a kilobyte without links; robots.txt allows all.
mkdir -p "$dir/www"
head -c 700 /dev/zero | tr '\0' x | sed 's|.*|<html><body><p>&</p></body></html>|' >"$dir/www/page.html"
printf 'User-agent: *\nAllow: /\n' >"$dir/www/robots.txt"
cat >"$dir/nginx.conf" <<EOF
daemon off;
worker_processes 1;
worker_cpu_affinity 10;
error_log $dir/error.log;
pid $dir/nginx.pid;
events { worker_connections 8192; multi_accept on; }
http {
    access_log off;
    default_type text/html;
    keepalive_requests 100000000;
    open_file_cache max=100;
    server {
        listen 0.0.0.0:$port backlog=4096;
        root $dir/www;
        location / { try_files \$uri /page.html; }
    }
}
EOF
nginx -c "$dir/nginx.conf" &
nginx=$!
sleep 1

# One page on each of 10 000 addresses, and again with another path until there are enough.
awk -v pages="$pages" -v port=$port 'BEGIN {
    for (i = 0; i < pages; i++) {
        a = i % 10000
        printf "http://127.0.%d.%d:%d/%s\n", 1 + int(a / 250), 1 + a % 250, port,
            i < 10000 ? "" : "p" int(i / 10000)
    }
}' >"$dir/many.txt"
awk -v pages="$pages" -v port=$port 'BEGIN {
    for (i = 0; i < pages * 2; i++) printf "http://127.0.0.%d:%d/p%d\n", 1 + i % 4, port, i
}' >"$dir/few.txt"

# Pages per second of a crawl by its own stats.json, and microseconds of processor time per page.
crawl() {
    seeds=$1
    shift
    taskset -c 0 "$bin/argiope" crawl --seeds "$seeds" --out "$dir/crawl" --overwrite --quiet \
        --no-warc --follow none --allow-net loopback --contact speed@example.com \
        -s DOWNLOAD_DELAY=0 -s DOWNLOAD_DELAY_PER_SLOT=0 -s CONCURRENT_REQUESTS=256 "$@" >&2
    # The second line: what this subshell's children used.
    times >"$dir/times"
    value() { sed -n "s/^ *\"$1\": \([0-9.]*\).*/\1/p" "$dir/crawl/stats.json"; }
    cpu=$(awk -F '[ms ]+' 'NR == 2 { print $1 * 60 + $2 + $3 * 60 + $4 }' "$dir/times")
    echo "$(value pages_per_second) $(value pages)" |
        awk -v cpu="$cpu" '{ printf "%.0f/s, %.1f us each\n", $1, cpu / $2 * 1e6 }'
}

ratio() { awk -v a="${1%%/*}" -v b="${2%%/*}" 'BEGIN { printf "%.3f\n", a / b }'; }
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for round in $(seq "$rounds"); do
    bare=$(taskset -c 0 "$bin/examples/bare_loop" --port $port --requests "$pages")
    bare=${bare#*: }
    plain=$(crawl "$dir/many.txt" -s ROBOTSTXT_OBEY=false)
    polite=$(crawl "$dir/many.txt" -s ROBOTSTXT_OBEY=true)
    wrk=$(taskset -c 0 wrk -t1 -c 256 -d 2 "http://127.0.0.1:$port/" | sed -n 's/^Requests\/sec: *//p')
    kept=$(crawl "$dir/few.txt" -s ROBOTSTXT_OBEY=false -s CONCURRENT_REQUESTS_PER_DOMAIN=64)
    ratio "$plain" "$bare" >>"$dir/new"
    ratio "$polite" "$bare" >>"$dir/robots"
    ratio "$kept" "$wrk" >>"$dir/kept"
    echo "round $round, new connections: bare loop $bare; crawl $plain; with robots.txt $polite"
    echo "round $round, kept: wrk $wrk/s; crawl $kept"
done
echo "new connections, crawl to bare loop:   $(median "$dir/new")"
echo "the same with robots.txt obeyed:       $(median "$dir/robots")"
echo "kept connections, crawl to wrk -t1:    $(median "$dir/kept")"
