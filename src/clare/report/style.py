"""The look of the report page, for screens light and dark, large and small, and for paper."""

from clare.report.looks import COLOURS, COLOURS_ON_DARK

_COLOURS = " ".join(
    f"--c{index}: light-dark({light}, {dark});"
    for index, (light, dark) in enumerate(zip(COLOURS, COLOURS_ON_DARK, strict=True))
)

STYLE = (
    """
:root {
  color-scheme: light dark;
  --ink: light-dark(#1a1d21, #e9ebef); --quiet: light-dark(#5a626d, #a3abb7);
  --paper: light-dark(#ffffff, #13161a); --panel: light-dark(#f6f7f9, #1b1f25);
  --faint: light-dark(#dfe3e8, #333a44); --accent: light-dark(#b34d00, #ff9a55); --mark: light-dark(#fff3e8, #2f241a);
  """
    + _COLOURS
    + """
}
:root[data-theme=light] { color-scheme: light; }
:root[data-theme=dark] { color-scheme: dark; }
* { box-sizing: border-box; }
html { scroll-padding-top: 3.6rem; -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 0 1.5rem 5rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
}
header { padding: 3rem 0 .5rem; position: relative; }
h1 { font-size: 2.1rem; line-height: 1.15; letter-spacing: -.015em; margin: 0 4rem .6rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.4rem; line-height: 1.25; letter-spacing: -.01em; margin: 0 0 .9rem; }
h3 { font-size: 1rem; line-height: 1.35; margin: 1.8rem 0 .5rem; overflow-wrap: anywhere; }
section { margin-top: 3.4rem; }
p { max-width: 48rem; margin: .4rem 0; }
.quiet, .lead { color: var(--quiet); font-size: .92rem; }
.cards {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .8rem; margin: 1.6rem 0 1.2rem;
}
.card { background: var(--panel); border-radius: .7rem; padding: 1rem 1.1rem; }
.card b {
  display: block; font-size: 2rem; font-weight: 650; line-height: 1.15; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums;
}
.card b i { font-style: normal; font-size: 1.1rem; font-weight: 500; margin-left: .15em; color: var(--quiet); }
.card:first-child b { color: var(--accent); }
.card span { display: block; color: var(--quiet); font-size: .85rem; line-height: 1.35; margin-top: .3rem; }
nav {
  position: sticky; top: 0; z-index: 3; display: flex; gap: 1.4rem; overflow-x: auto; margin: .6rem 0 0;
  padding: .4rem 0; background: var(--paper); border-bottom: 1px solid var(--faint); scrollbar-width: none;
}
nav a { padding: .3rem 0; color: var(--quiet); text-decoration: none; font-size: .92rem; white-space: nowrap; }
nav a:hover { color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.theme {
  position: absolute; top: 3rem; right: 0; font: inherit; font-size: .85rem; color: var(--quiet);
  background: var(--panel); border: 1px solid var(--faint); border-radius: .5rem; padding: .3rem .7rem; cursor: pointer;
}
.scroll { overflow-x: auto; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
table.sortable { min-width: 100%; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
th, td { padding: .42rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--faint); }
th:first-child { text-align: left; padding-left: .6rem; position: sticky; left: 0; background: var(--paper); }
.words td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.words th:first-child { position: static; }
thead th { color: var(--quiet); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 500; }
tbody tr:hover > * { background: var(--panel); }
td small { color: var(--quiet); font-size: .85em; }
tr.mark > *, tr.mark:hover > * { background: var(--mark); }
tr.mark th { color: var(--accent); font-weight: 700; }
th button {
  position: relative; font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer;
  white-space: nowrap;
}
th button:hover { color: var(--ink); }
th button::after { content: "↕"; position: absolute; left: 100%; opacity: .3; }
th[aria-sort=ascending] button::after { content: "↑"; opacity: 1; }
th[aria-sort=descending] button::after { content: "↓"; opacity: 1; }
th[aria-sort] button { color: var(--ink); }
.failure { border-left: 3px solid var(--accent); padding-left: .8rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(29rem, 100%), 1fr)); gap: 1.4rem; }
figure { margin: 0; min-width: 0; }
.chart { border: 1px solid var(--faint); border-radius: .8rem; padding: 1.1rem 1.2rem .7rem; }
.charts .chart:only-child:not(.large) { max-width: 36.5rem; }
figcaption h3 { margin: 0; font-size: 1.02rem; }
figcaption p { margin: .15rem 0 .8rem; color: var(--quiet); font-size: .86rem; line-height: 1.45; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--quiet); font-size: 13px; font-family: inherit; font-variant-numeric: tabular-nums; }
svg text.name { fill: var(--quiet); }
svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; }
.line, .rule, .axis, .stub, .threshold { fill: none; }
.rule { stroke: var(--faint); stroke-width: .8; }
.axis, .stub { stroke: var(--quiet); stroke-width: 1; opacity: .7; }
.line { stroke: var(--c); stroke-width: 1.7; stroke-linejoin: round; }
.strong .line { stroke-width: 3; }
svg .marks { fill: var(--c); stroke: var(--paper); stroke-width: .9; }
svg .band { fill: var(--c); opacity: .13; }
.series { transition: opacity .12s; }
.swatch { width: 34px; height: 12px; flex: none; display: inline-block; }
.legend {
  list-style: none; margin: .7rem 0 .4rem; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem .3rem;
  font-size: .84rem; line-height: 1.3;
}
.legend .what { flex-basis: 100%; color: var(--quiet); font-size: .8rem; padding: 0 .35rem .1rem; }
.large .legend .what { text-align: right; }
.legend .head { flex-basis: 100%; color: var(--quiet); font-size: .8rem; padding: .35rem .35rem .05rem; }
.legend button {
  display: flex; align-items: center; gap: .45rem; width: 100%; font: inherit; color: inherit; text-align: left;
  background: none; border: 0; border-radius: .4rem; padding: .18rem .35rem; cursor: pointer;
}
.legend button:hover, .legend button[aria-pressed=true] { background: var(--panel); }
.legend span { overflow-wrap: anywhere; }
.legend b { font-weight: 400; color: var(--quiet); font-variant-numeric: tabular-nums; white-space: nowrap; }
.legend .strong span { font-weight: 700; color: var(--accent); }
.large { display: grid; grid-template-columns: minmax(0, 1fr) 15rem; column-gap: 1.6rem; align-items: start; }
.large figcaption, .large .numbers { grid-column: 1 / -1; }
.large .legend { flex-direction: column; flex-wrap: nowrap; margin: 0; }
.large .legend b { margin-left: auto; }
.large svg.curves text { font-size: 10.5px; }
body.lit .series, body.lit .legend button[data-key] { opacity: .16; }
body.lit .legend button[data-key] { opacity: .4; }
body.lit .series.lit, body.lit .legend button.lit { opacity: 1; }
body.lit .series.lit .line { stroke-width: 3; }
.tip {
  position: absolute; z-index: 4; pointer-events: none; background: var(--ink); color: var(--paper);
  padding: .3rem .6rem; border-radius: .4rem; font-size: .82rem; line-height: 1.35; white-space: nowrap;
}
.numbers { border: 0; padding: 0; margin: .2rem 0 0; }
.numbers summary { font-weight: 400; font-size: .84rem; color: var(--quiet); padding: .2rem .35rem; }
.numbers table { font-size: .8rem; }
.numbers th, .numbers td { padding: .2rem .5rem; }
.choice { border: 0; padding: 0; margin: .6rem 0; display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; }
.choice legend { float: left; padding: 0 .5rem 0 0; font-size: .88rem; color: var(--quiet); }
.choice input { position: absolute; opacity: 0; }
.choice label {
  border: 1px solid var(--faint); border-radius: 99rem; padding: .15rem .8rem; font-size: .86rem; cursor: pointer;
}
.choice input:checked + label { background: var(--ink); color: var(--paper); border-color: var(--ink); }
.choice input:focus-visible + label { outline: 2px solid var(--accent); outline-offset: 2px; }
.scale { display: flex; align-items: center; gap: .5rem; font-size: .8rem; color: var(--quiet); margin: .5rem 0 1rem; }
.scale i { width: 9rem; height: .6rem; border-radius: .2rem; }
.grids { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(15.5rem, 100%), 1fr)); gap: 1.8rem 1.6rem; }
.grids:has(> figure:only-child) { grid-template-columns: minmax(0, 27rem); }
.chart > svg.grid { max-width: 24rem; margin: 0 auto .6rem; }
.grids h3 { display: flex; align-items: center; gap: .5rem; font-size: .92rem; margin-bottom: .3rem; }
.grids .strong h3 { color: var(--accent); }
.grids .scale i { width: 6rem; }
svg.grid text, svg.histogram text { font-size: 12px; }
svg.grid .numbers text { text-anchor: middle; dominant-baseline: central; font-size: 10.5px; fill: #000000; }
svg.grid .numbers .bright { fill: #ffffff; }
svg .quiet { fill: var(--faint); }
svg .chosen { fill: var(--c0); }
.threshold { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 4 3; }
details { border: 1px solid var(--faint); border-radius: .7rem; padding: .1rem 1rem; margin: .6rem 0; }
details[open] { padding-bottom: .8rem; }
summary { cursor: pointer; padding: .5rem 0; font-weight: 600; overflow-wrap: anywhere; }
summary span { color: var(--quiet); font-weight: 400; margin-left: .7rem; font-size: .88rem; }
.copied { position: relative; }
pre.long { max-height: 26rem; overflow-y: auto; }
pre {
  background: var(--panel); border-radius: .6rem; padding: .8rem 1rem; margin: .3rem 0 .9rem; font-size: .85rem;
  line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere;
  font-family: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
.copied pre { padding-right: 5.5rem; }
.copied button {
  position: absolute; top: .5rem; right: .5rem; font: inherit; font-size: .8rem; color: var(--quiet);
  background: var(--paper); border: 1px solid var(--faint); border-radius: .4rem; padding: .15rem .6rem;
  cursor: pointer;
}
@media (max-width: 60rem) {
  .large { grid-template-columns: minmax(0, 1fr); }
  .large .legend { flex-direction: row; flex-wrap: wrap; margin-top: .7rem; }
  .large .legend b { margin-left: 0; }
  .large .legend .what { text-align: left; }
}
@media (max-width: 40rem) {
  body { padding: 0 1rem 3rem; }
  header { padding-top: 1.6rem; }
  h1 { font-size: 1.6rem; }
  .theme { top: 1.5rem; }
  .cards { grid-template-columns: 1fr 1fr; gap: .6rem; }
  .card { padding: .8rem .9rem; }
  .card b { font-size: 1.6rem; }
  .chart { padding: .9rem .8rem .5rem; }
  svg.curves text, .large svg.curves text { font-size: 16px; }
}
@media print {
  :root, :root[data-theme] {
    color-scheme: light; --ink: #000000; --quiet: #3c3c3c; --panel: #ffffff; --faint: #c4c4c4;
  }
  body { max-width: none; padding: 0; font-size: 10pt; }
  header { padding-top: 0; }
  nav, .theme, .choice, .numbers:not([open]), .copied button { display: none; }
  section { margin-top: 1.6rem; }
  h2, h3, figcaption { break-after: avoid; }
  figure, tr, .card, pre { break-inside: avoid; }
  .card { border: 1px solid var(--faint); padding: .5rem .7rem; }
  .card b { font-size: 1.4rem; }
  .scroll { overflow: visible; }
  pre.long { max-height: none; }
  table { font-size: 7.5pt; }
  th, td { padding: .2rem .35rem; }
  th:first-child { position: static; }
  th button::after { content: none; }
  .charts { grid-template-columns: 1fr 1fr; gap: .8rem; }
  .large { grid-column: 1 / -1; grid-template-columns: minmax(0, 1fr) 12rem; }
  .grids { grid-template-columns: repeat(3, 1fr); gap: 1rem; }
  svg.curves text { font-size: 17px; }
  .large svg.curves text { font-size: 13px; }
  .legend { font-size: 8pt; }
  .legend button { padding: .05rem .3rem; }
  .legend .what, .legend .head { font-size: 7.5pt; }
  .series, .legend button { opacity: 1 !important; }
}
"""
)
