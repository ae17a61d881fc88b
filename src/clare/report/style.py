"""The look of the report page, for screens light and dark, large and small, and for paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1b1f24; --quiet: #5b6470; --paper: #ffffff; --panel: #f5f6f8; --faint: #d5d9e0;
  --accent: #b84e00; --mark: #fff4ea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e8eaee; --quiet: #a0a8b4; --paper: #14171c; --panel: #1d2128; --faint: #39404b;
    --accent: #ff9a4d; --mark: #33261b;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--faint); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { max-width: 46rem; }
.quiet { color: var(--quiet); font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }
.card { background: var(--panel); border-radius: .6rem; padding: .9rem 1rem; }
.card b { display: block; font-size: 1.75rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.card:first-child b { color: var(--accent); }
.card span { color: var(--quiet); font-size: .85rem; }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--faint); }
th:first-child, .words td { text-align: left; }
thead th { color: var(--quiet); font-weight: 600; border-bottom: 2px solid var(--faint); }
.words td { white-space: normal; overflow-wrap: anywhere; }
tbody th { font-weight: 500; }
tr.mark { background: var(--mark); }
tr.mark th { color: var(--accent); font-weight: 700; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1.2rem; }
figure { margin: 0; background: var(--panel); border-radius: .6rem; padding: .8rem; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg text { font-family: inherit !important; }
details { border: 1px solid var(--faint); border-radius: .6rem; padding: .2rem 1rem; margin: .6rem 0; }
details[open] { padding-bottom: 1rem; }
summary { cursor: pointer; padding: .5rem 0; font-weight: 600; }
summary span { color: var(--quiet); font-weight: 400; margin-left: .6rem; }
details figure { max-width: 36rem; }
pre {
  background: var(--panel); border-radius: .4rem; padding: .7rem .9rem; margin: .4rem 0; font-size: .85rem;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
@media print {
  :root {
    color-scheme: light; --ink: #000000; --quiet: #444444; --paper: #ffffff; --panel: #ffffff; --faint: #bbbbbb;
    --accent: #b84e00; --mark: #f2f2f2;
  }
  body { max-width: none; padding: 0; font-size: 10pt; }
  h2, h3 { break-after: avoid; }
  figure, tr, .card { break-inside: avoid; }
  .scroll { overflow: visible; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
