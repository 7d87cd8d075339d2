//! What is the same on every page: its head and its style.

/// What every page begins with.
pub const BEGINNING: &str = "<!doctype html>";

/// The rest before the title.
pub const HEAD: &str = "
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"referrer\" content=\"no-referrer\">
";

/// Light and dark.
pub const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --ink: #1b1b1b; --faint: #666; --line: #d5d5d5; --a: #2b6cb0;
  --b: #c05621; --note: #fff4d6; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181c; --ink: #e6e6e6; --faint: #9a9a9a; --line: #3a3d44; --a: #63a4e8; --b: #f0a35e;
    --note: #3b3116; }
}
body { background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1, td, th { overflow-wrap: anywhere; }
h2 { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
caption { color: var(--faint); text-align: left; }
td, th { border-bottom: 1px solid var(--line); font-weight: normal; padding: 0.15rem 0.8rem 0.15rem 0;
  text-align: left; vertical-align: top; }
thead th { color: var(--faint); }
.n { font-variant-numeric: tabular-nums; text-align: right; }
.note { background: var(--note); padding: 0.4rem 0.8rem; }
.none { color: var(--faint); }
svg { display: block; height: auto; margin: 1rem 0; max-width: 100%; width: 45rem; }
svg rect { shape-rendering: crispEdges; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.a { fill: var(--a); }
.b { fill: var(--b); }
.c { fill: var(--faint); }
.g { fill: var(--line); }
";
