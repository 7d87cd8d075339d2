//! The examples below each command's help.

pub const MAIN: &str = "\
Examples:
  argiope demo
  argiope crawl https://example.com --max-pages 100 --contact me@example.org
  argiope help crawl";

pub const CRAWL: &str = "\
Examples:
  argiope crawl https://example.com --max-pages 100 --contact me@example.org
  argiope crawl --seeds hosts.txt --follow none --out hosts --contact https://example.org/bot
  argiope crawl https://example.com --delay 0.5 --max-bytes 100MB --contact me@example.org
  argiope crawl https://example.com/docs/ --allow '^https://example\\.com/docs/' --delay 2
  argiope crawl https://example.com --extract title --extract 'price=.price' --contact me@example.org
  argiope crawl --preset broad --seeds hosts.txt --contact https://example.org/bot
  argiope crawl https://example.com --user-for example.com name:password --filtered
  argiope crawl http://127.0.0.1:8080 --allow-net loopback --results - --no-warc | jq .url

Exit: 0 finished or at a limit, 1 failed, 2 usage, 3 stopped early.";

pub const FETCH: &str = "\
Examples:
  argiope fetch https://example.com
  argiope fetch https://example.com -o page.html
  argiope fetch https://example.com/form -d name=value -d @more.txt
  argiope fetch --fail --timeout 5s -H 'Accept-Language: de' https://example.com/a https://example.com/b";

pub const PROBE: &str = "\
Examples:
  argiope probe https://example.com
  argiope probe http://127.0.0.1:8080/ --allow-net loopback --rate 2000 --duration 30s --warmup 5s
  argiope probe https://example.com/a https://example.com/b --arrivals poisson --hdr probe.hlog
  argiope probe --targets targets.txt --every 15s --admin 127.0.0.1:9115
  argiope probe https://example.com --requests 500 --fail-above p99=200ms --fail-above errors=0

Exit: 0 measured, 1 a bound exceeded, the rate not reached or no reply, 2 usage, 3 stopped early.";

pub const ROBOTS: &str = "\
Examples:
  argiope robots https://example.com/private/x
  argiope robots robots.txt --agent argiope https://example.com/private/x
  argiope robots robots.txt --agent argiope --json /a /b
  argiope robots - < questions.jsonl";

pub const URL: &str = "\
Examples:
  argiope url 'HTTP://Example.com:80/a/../b#c'
  argiope url --config crawl.toml --from https://example.com https://example.com/a.pdf
  argiope url --deny '[.]pdf$' --robots robots.txt https://example.com/a.pdf
  argiope url --json --base https://example.com/a/ ../b
  argiope url - < inputs.jsonl";

pub const LINKS: &str = "\
Examples:
  argiope links page.html --base https://example.com/
  argiope links page.html --base https://example.com/ --content-type 'text/html; charset=latin1' --json
  argiope links - < pages.jsonl";

pub const SETTINGS: &str = "\
Examples:
  argiope settings
  argiope settings DOWNLOAD_DELAY PROXY
  argiope settings --toml > crawl.toml
  argiope settings --preset polite
  argiope settings --config crawl.toml -s RETRY_TIMES=5 --json";

pub const DEMO: &str = "\
Examples:
  argiope demo
  argiope demo --domains 200 --pages 10 --seed 7";

pub const COMPLETIONS: &str = "\
Examples:
  argiope completions bash > ~/.local/share/bash-completion/completions/argiope
  argiope completions zsh > ~/.zfunc/_argiope
  argiope completions fish > ~/.config/fish/completions/argiope.fish";

pub const MAN: &str = "\
Examples:
  argiope man ~/.local/share/man/man1
  man argiope-crawl";

pub const CTL: &str = "\
Examples:
  argiope ctl crawl
  argiope ctl crawl scopes --sort latency --match '*.example.com'
  argiope ctl crawl set example.com delay=2 concurrency=1
  argiope ctl crawl seeds more.txt
  argiope ctl crawl stop --grace 5s";

pub const STATE: &str = "\
Examples:
  argiope state crawl
  argiope state crawl --host example.com --json
  argiope state crawl --url https://example.com/page
  argiope state crawl --export > rest.jsonl";

pub const EXPORT: &str = "\
Examples:
  argiope export crawl --csv url status title -o pages.csv
  argiope export crawl --csv url kind status error.code --all
  argiope export crawl --csv url title --replied
  argiope export crawl --csv url meta.customer | head
  argiope export crawl --parquet url status sent latency -o pages.parquet";

pub const CDXJ: &str = "\
Examples:
  argiope cdxj crawl
  argiope cdxj crawl/warc/*.warc.gz -o index.cdxj
  argiope cdxj crawl -o - | grep '^com,example)/'
  zcat crawl/warc/*.warc.gz | less   # the archived requests and replies themselves";

pub const AUDIT: &str = "\
Examples:
  argiope audit crawl
  argiope audit crawl --json | jq '.scopes[] | select(.verdict == \"violated\")'
  argiope audit crawl --site example.com -o receipt.json";

pub const REPORT: &str = "\
Examples:
  argiope report crawl
  argiope report crawl -o /srv/www/crawl.html
  argiope report crawl --json | jq '.gaps | {compared, short}'";
