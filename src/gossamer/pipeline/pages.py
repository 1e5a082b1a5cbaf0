"""Parts of a page: one self-contained HTML file, light and dark, readable on a phone, with no
script and nothing to load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gossamer.pipeline.charts import number
from gossamer.pipeline.drawing import DARK, LIGHT, variables

CSS = f"""
:root{{color-scheme:light dark;{variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:70rem;padding:1rem 1rem 4rem;
background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,sans-serif}}
header{{padding:1.2rem 0 .4rem;border-bottom:1px solid var(--line);margin-bottom:1rem}}
h1{{font-size:1.7rem;line-height:1.2;margin:.2rem 0}}
h2{{font-size:1.25rem;margin:2.4rem 0 .4rem}}h3{{font-size:1.02rem;margin:0 0 .5rem}}
p{{max-width:48rem;margin:.5rem 0}}.soft{{color:var(--soft)}}.good{{color:var(--good)}}
.bad{{color:var(--bad)}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.6rem;
margin:1rem 0}}
.tile{{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.6rem .8rem;
font-size:.9rem;color:var(--soft)}}
.tile b{{display:block;font-size:1.4rem;color:var(--fg);font-variant-numeric:tabular-nums}}
.cards{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,29rem),1fr));gap:1rem}}
.card{{border:1px solid var(--line);border-radius:.7rem;padding:.9rem;background:var(--card);
min-width:0}}
.card p{{font-size:.93rem}}.figure{{width:100%;height:auto;background:var(--bg);
border:1px solid var(--line);border-radius:.5rem}}
blockquote{{margin:.6rem 0;padding:.1rem .8rem;border-left:3px solid var(--line);color:var(--soft);
font-size:.93rem}}
.chip{{display:inline-block;border-radius:1rem;padding:.05rem .6rem;font-size:.8rem;font-weight:600;
border:1px solid currentColor;white-space:nowrap}}
.figures{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem;
margin:1rem 0}}
.verdict{{font-size:1.15rem;font-weight:600}}
.wide{{overflow-x:auto}}table{{border-collapse:collapse;font-size:.88rem;
font-variant-numeric:tabular-nums;min-width:100%}}
th,td{{padding:.28rem .45rem;border-bottom:1px solid var(--line);text-align:right;
white-space:nowrap;vertical-align:top}}
th{{white-space:normal;vertical-align:bottom}}th.text,td.text{{text-align:left;white-space:normal;
overflow-wrap:break-word}}
.glance>div{{padding:.5rem 0;border-bottom:1px solid var(--line);font-size:.95rem}}
details{{margin:.5rem 0;font-size:.93rem}}summary{{cursor:pointer;color:var(--soft)}}
code{{font:.85em ui-monospace,monospace;overflow-wrap:anywhere}}
"""


def tiles(shown: Mapping[str, Any]) -> str:
    cells = (
        f'<div class="tile"><b>{said(value)}</b>{escape(name)}</div>'
        for name, value in shown.items()
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    rows = list(rows)
    words = {name for name in columns if any(isinstance(row[name], str) for row in rows)}
    head = "".join(
        f"<th{' class=text' * (name in words)}>{escape(name.replace('_', ' '))}</th>"
        for name in columns
    )

    def cell(row: Mapping[str, Any], name: str) -> str:
        return (
            f'<td class="text">{said(row[name])}</td>'
            if name in words
            else f"<td>{said(row[name])}</td>"
        )

    body = "".join(f"<tr>{''.join(cell(row, name) for name in columns)}</tr>" for row in rows)
    inside = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table>{inside}</table></div>'


def folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def chip(text: str, good: bool | None) -> str:
    """A label. ``good`` is None if it is neither good nor bad."""
    colour = {True: "good", False: "bad", None: "soft"}[good]
    return f'<span class="chip {colour}">{escape(text)}</span>'


def said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "–"
    return number(value) if isinstance(value, int | float) else escape(str(value))


def write(path: Path, title: str, lead: str, body: Iterable[str]) -> Path:
    """Write the page whole or not at all."""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n"
        f"<body><header><h1>{escape(title)}</h1>"
        f'<p class="soft">{escape(lead)}</p></header>\n' + "\n".join(body) + "\n</body></html>\n"
    )
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(page, encoding="utf-8")
    fresh.replace(path)
    return path
