"""A month report as HTML (one file, with a print style), CSV and JSON."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from app.services.month_costs import Costs
from app.services.month_report import ClassMonth, MonthReport, ObjectiveMonth, lasting
from app.services.slo_report import plain
from app.services.wording import brief, compact, count, percent
from core.incidents import iso

STYLE = """
:root{color-scheme:light}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:#1c2430;background:#fff;margin:2rem auto;
 max-width:62rem;padding:0 1.25rem}
h1{font-size:1.7rem;margin:0 0 .25rem}h2{font-size:1.3rem;margin:2.2rem 0 .5rem;border-bottom:2px solid #1c2430}
h3{font-size:1.05rem;margin:1.4rem 0 .3rem}p{margin:.3rem 0}.soft{color:#556070}
.big{display:flex;gap:2.2rem;flex-wrap:wrap;margin:.6rem 0}.big div{min-width:8rem}
.big b{display:block;font-size:1.45rem;font-weight:600}.bad b{color:#b3261e}
table{border-collapse:collapse;width:100%;margin:.4rem 0 .8rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.28rem .6rem .28rem 0;border-bottom:1px solid #d9dee6;vertical-align:top}
th{font-weight:600;color:#556070}.note{background:#fff6e0;padding:.4rem .7rem;border-left:4px solid #b7791f}
@media print{body{margin:0;max-width:none;font-size:10.5pt}h2{break-before:page}h2:first-of-type{break-before:auto}
 table,h3,.big{break-inside:avoid}a{color:inherit;text-decoration:none}}
"""


def write_report(report: MonthReport, folder: Path) -> list[Path]:
    """Write ``gustfront-2026-09.html``, ``.csv`` and ``.json`` into the folder; their paths."""
    stem = f"gustfront-{report.month}"
    files = [
        (folder / f"{stem}.html", to_html(report)),
        (folder / f"{stem}.csv", to_csv(report)),
        (folder / f"{stem}.json", to_json(report)),
    ]
    for path, text in files:
        path.write_text(text, "utf-8")
    return [path for path, _ in files]


def to_json(report: MonthReport) -> str:
    """The whole report; no NaN in it."""
    return json.dumps(report.as_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


COLUMNS = (
    "month", "class", "objective", "definition", "version", "measured_at", "coverage", "reportable", "attained_low",
    "attained_high", "state", "budget_left_low", "budget_left_high", "good", "bad", "undecided", "excluded", "frozen_at",
    "restated", "month_before",
)  # fmt: skip


def to_csv(report: MonthReport) -> str:
    """One line an objective. Cells that a spreadsheet would run as a formula begin with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for c in report.classes:
        for o in c.objectives:
            low, high = o.attainment or ("", "")
            left = o.budget_left or ("", "")
            undecided = o.counts["either"] + o.counts["bad_or_excluded"] + o.counts["good_or_excluded"]
            row = [
                report.month,
                c.class_,
                o.name,
                o.definition,
                o.version,
                o.point,
                round(o.coverage, 4),
                o.reportable,
            ]
            row += [low, high, o.state, left[0], left[1], o.counts["good"], o.counts["bad"], undecided]
            row += [o.counts["excluded"], o.frozen_at or "", o.restated, plain(o.before)]
            writer.writerow([_harmless(x) for x in row])
    return out.getvalue()


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "@", "\t", "\r", "-") else value


# ---------------------------------------------------------------------------------------------------------------- HTML


def to_html(report: MonthReport) -> str:
    """One page without scripts, outside references or markup from outside."""
    state = "closed" if report.closed else "still running: numbers may change"
    parts = [f"<h1>Month report {e(report.month)}</h1>"]
    parts.append(f'<p class="soft">{e(state)} · made {e(iso(report.made_at) or "")} · times in UTC</p>')
    if not report.classes:
        parts.append("<p>No traffic and no objective in this month.</p>")
    for c in report.classes:
        parts += _class(report, c)
    body = "\n".join(parts)
    title = f"Month report {e(report.month)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def e(text: object) -> str:
    """Text from anywhere, inert."""
    return html.escape(plain(str(text)))


def _class(report: MonthReport, c: ClassMonth) -> list[str]:
    out = [f"<h2>{e(c.class_)}</h2>"]
    for o in c.objectives:
        out += _objective(o)
    if not c.objectives:
        out.append('<p class="soft">No objective is configured for this class.</p>')
    out += _unmet(c)
    out += _incidents(c)
    out += _quality(c)
    out += _costs(report, c)
    return out


def _objective(o: ObjectiveMonth) -> list[str]:
    out = [f"<h3>{e(o.name)}</h3>", f"<p>{e(o.definition)}, measured at the {e(o.point)}.</p>"]
    left = "unknown" if o.budget_left is None else _range(o.budget_left)
    missed = ' class="bad"' if o.state.startswith("missed") else ""
    out.append(
        f'<div class="big"><div{missed}><span class="soft">attained</span><b>{e(o.attained)}</b>{e(o.state)}</div>'
        f'<div><span class="soft">budget left</span><b>{e(left)}</b></div>'
        f'<div><span class="soft">coverage</span><b>{e(percent(o.coverage, 1))}</b></div>'
        f'<div><span class="soft">month before</span><b>{e(o.before)}</b></div></div>'
    )
    n = o.counts
    either = n["either"] + n["bad_or_excluded"] + n["good_or_excluded"]
    out.append(
        f'<p class="soft">good {n["good"]:,} · bad {n["bad"]:,} · cannot be told {either:,} · excluded {n["excluded"]:,}'
        f" · version {e(o.version)}{' · frozen ' + e(o.frozen_at) if o.frozen_at else ''}</p>"
    )
    if o.restated:
        out.append(f'<p class="note">{e(o.restated)}</p>')
    out += [
        f'<p class="soft">Excluded {e(x["start"])} to {e(x["end"])}: {e(x["reason"])} ({e(x["author"])})</p>'
        for x in o.exclusions
    ]
    if o.days:
        rows = [(d.day, _range(d.share, 2), f"{d.bad:,}", f"{d.n:,}") for d in o.days]
        out.append(table("Worst days", ["day", "attained", "bad", "counted"], rows))
    if o.tenants and [t.name for t in o.tenants] != ["not named"]:
        parts = [(brief(t.name), f"{t.bad:,}", f"{t.n:,}") for t in o.tenants]
        out.append(table("Tenants hit most", ["tenant", "bad", "counted"], parts))
    if o.bands:
        bands = [(b.name, b.p99, f"{b.bad:,}", f"{b.n:,}") for b in o.bands]
        out.append(
            table("By prompt length", ["prompt tokens", "time to first token, p99", "bad", "counted"], bands)
        )
    if o.eaten:
        ate = [(x["incident"], f"{x['bad']:,}", percent(x["share"], 0)) for x in o.eaten]
        out.append(table("What ate the budget", ["incident", "bad requests", "of the month's budget"], ate))
    return out


def _unmet(c: ClassMonth) -> list[str]:
    if not c.requests:
        return [
            '<p class="soft">Demand that was not met is not known: there is no gateway log of this class.</p>'
        ]
    u = c.unmet
    text = (
        f"{c.requests:,} attempts; turned away {u['429']:,} (429) and {u['503']:,} (503), failed {u['failed']:,},"
        f" given up by clients {u['given_up']:,}."
    )
    return ["<h3>Demand</h3>", f"<p>{e(text)}</p>"]


def _incidents(c: ClassMonth) -> list[str]:
    if not c.incidents:
        return ["<h3>Incidents</h3>", "<p>None.</p>"]
    rows = [
        (i.started[:16].replace("T", " "), i.title, i.severity, lasting(i.detect), lasting(i.acknowledge),
         lasting(i.resolve), "yes" if i.false_page else "")
        for i in c.incidents
    ]  # fmt: skip
    pages = [i for i in c.incidents if i.severity == "page"]
    wrong = sum(i.false_page for i in pages)
    head = ["since", "what", "severity", "detected after", "acknowledged after", "over after", "false"]
    note = f'<p class="soft">{len(pages)} pages, {wrong} of them marked false by people.</p>'
    return [table("Incidents", head, rows), note]


def _quality(c: ClassMonth) -> list[str]:
    d, s = c.degraded, c.sessions
    if not d["n"]:
        return ["<h3>Answers</h3>", '<p class="soft">No outputs were sampled.</p>']
    first = f"Degraded generations: {d['per_10k']} per 10,000 ({d['bad']:,} of {d['n']:,} sampled)."
    return ["<h3>Answers</h3>", f"<p>{e(first)}</p>", f"<p>{e(s['text'])}; {e(s['cascade_text'])}.</p>"]


def _costs(report: MonthReport, c: ClassMonth) -> list[str]:
    lines = [
        ("prompt tokens", "prompt_tokens"),
        ("of them from the cache", "cached_tokens"),
        ("output tokens", "output_tokens"),
        ("GPU hours", "gpu_hours"),
        ("waste: tokens of attempts given up", "aborted_tokens"),
        ("waste: attempts failed or turned away, to be sent again", "failed_attempts"),
        ("waste: preemptions (prompts computed twice; whole pools)", "preemptions"),
    ]
    rows = [(label, _value(c.costs, name), _value(c.before, name)) for label, name in lines]
    now, before = c.costs.per_million(report.gpu_price), c.before.per_million(report.gpu_price)
    if report.gpu_price is not None:
        label = f"{report.currency} per million output tokens at {report.gpu_price:g} a GPU hour"
        rows.append((label, _money(now), _money(before)))
    return [table("Use and waste", ["", report.month, "month before"], rows)]


def _value(of: Costs, name: str) -> str:
    value = getattr(of, name)
    if value is None:
        return "not exported"
    return f"{value:,.1f}" if name == "gpu_hours" else count(value) if value < 1e6 else compact(value)


def _money(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"


def _range(pair: Sequence[float], digits: int = 0) -> str:
    low, high = (percent(x, digits) for x in pair)
    return low if low == high else f"{low} to {high}"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table with its title; every cell is text."""
    cells = "".join(f"<th>{e(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{e(x)}</td>" for x in row) + "</tr>" for row in rows)
    return f"<h3>{e(title)}</h3><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
