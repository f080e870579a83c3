"""The pages docs/signals.md and docs/engines.md, made from the data: ``python -m collectors.reference`` writes both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from collectors.dictionary import Component, Dictionary, load_dictionary
from core.signals import ALIASES, SIGNALS, Signal

DOCS = Path(__file__).parents[1] / "docs"

_COVERAGE = (
    "ttft_seconds",
    "inter_token_latency_seconds",
    "time_per_output_token_seconds",
    "request_latency_seconds",
    "queue_time_seconds",
    "requests_running",
    "requests_waiting",
    "kv_cache_usage_ratio",
    "preemptions_total",
    "evictions",
    "prefix_cache_hit_tokens_total",
    "request_success_total",
    "aborted_total",
    "errors_total",
    "spec_accepted_tokens_total",
)


def signals_page() -> str:
    """docs/signals.md: every signal with kind, unit, labels, and which components give it."""
    dictionary = load_dictionary()
    lines = [
        "# Signals",
        "",
        "Made from `core/signals.py` and `collectors/engines/*.yaml` by `python -m collectors.reference`; do not edit.",
        "",
        "Every part of Gustfront names what it measures by these ids. A *counter* is a whole number that grows, a *sum* a",
        "real one, a *gauge* a value at one time, a *histogram* one count per bucket and a sum. In the column *kept*, `class`",
        "means rolled up per minute and hour by class and pool, `replica` also per replica; all signals are kept in frames.",
        "",
        "Where an engine gives less than a histogram, what it gives is stored under a suffix and never dressed up: `_sum` and",
        "`_count` (their increases give a mean, no quantile) or `_mean` (an average the engine made itself).",
        "",
        "| signal | kind | unit | labels | kept | meaning |",
        "|---|---|---|---|---|---|",
        *(_signal_row(s) for s in SIGNALS.values() if not s.of),
        "",
        "## Derived forms",
        "",
        "| form | of | kind | unit | from |",
        "|---|---|---|---|---|",
        *(_form_row(s, dictionary) for s in SIGNALS.values() if s.of),
        "",
        "## Short names",
        "",
        "Accepted wherever a signal is named.",
        "",
        "| short | signal |",
        "|---|---|",
        *(f"| `{short}` | `{id}` |" for short, id in ALIASES.items()),
        "",
        "## Computed when read",
        "",
        *_derived(dictionary),
        "",
    ]
    return "\n".join(lines)


def _signal_row(s: Signal) -> str:
    kept = ("class" if s.rollup else "") + (", replica" if s.per_replica else "")
    labels = ", ".join(f"`{x}`" for x in s.labels)
    return f"| `{s.id}` | {s.kind} | {s.unit} | {labels} | {kept} | {s.meaning} |"


def _form_row(s: Signal, dictionary: Dictionary) -> str:
    users = [
        c.title
        for c in dictionary.ordered
        if any(e.source.as_ == s.id for e in dictionary.entries(c.component))
    ]
    return f"| `{s.id}` | `{s.base}` | {s.kind} | {s.unit} | {', '.join(users) or 'wherever buckets are missing'} |"


def _derived(dictionary: Dictionary) -> Iterator[str]:
    for c in dictionary.ordered:
        for id, ways in c.derived.items():
            for way in ways:
                needs = ", ".join(f"`{n}`" for n in way.needs)
                yield f"- `{id}` of {c.title}: {way.formula} ({needs})."


def engines_page() -> str:
    """docs/engines.md: what each component exports, under which flag, and what to know about it."""
    dictionary = load_dictionary()
    parts = [
        "# Engines",
        "",
        "Made from `collectors/engines/*.yaml` by `python -m collectors.reference`; do not edit.",
        "",
        "`gustfront doctor URL` says for a target of yours which of these are there, which are missing and what turns them on.",
        "",
        "## Who exports what",
        "",
        *_coverage(dictionary),
        "",
        "yes: as the canonical form. mean: without buckets, so no quantiles. derived: computed from others. –: not exported.",
        "",
    ]
    for c in dictionary.ordered:
        parts += _component(c, dictionary)
    return "\n".join(parts).rstrip() + "\n"


def _coverage(dictionary: Dictionary) -> Iterator[str]:
    columns = [c for c in dictionary.ordered if "ttft_seconds" in {*c.signals, *c.absent} or c.inherits]
    yield "| signal | " + " | ".join(c.title for c in columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for id in _COVERAGE:
        yield f"| `{id}` | " + " | ".join(_covers(dictionary, c, id) for c in columns) + " |"


def _covers(dictionary: Dictionary, component: Component, id: str) -> str:
    entries = [
        e for e in dictionary.entries(component.component) if e.signal == id and e.source.trust == "full"
    ]
    if not entries:
        return "derived" if id in dictionary.derived(component.component) else "–"
    if SIGNALS[id].kind != "histogram":
        return "yes"
    return "yes" if any(e.source.type == "histogram" and not e.source.as_ for e in entries) else "mean"


def _component(c: Component, dictionary: Dictionary) -> Iterator[str]:
    yield f"## {c.title}"
    yield ""
    facts = [f"component `{c.component}`"]
    if c.port:
        facts.append(f"port {c.port}")
    if c.enable:
        facts.append(f"enable: {c.enable}")
    if c.inherits:
        facts.append(f"everything of `{c.inherits}` as well")
    yield "; ".join(facts) + "."
    yield ""
    for note in c.notes:
        yield f"- {note}"
    if c.notes:
        yield ""
    yield "| signal | family, in order of preference | needs | note |"
    yield "|---|---|---|---|"
    for id, entry in c.signals.items():
        families = dict.fromkeys(f"`{s.family}`" for s in entry.sources)
        flags = dict.fromkeys(s.flag for s in entry.sources if s.flag)
        notes = dict.fromkeys(s.note for s in entry.sources if s.note)
        joined = {"sum": " + ", "separate": ", ", "first": ", else "}[entry.combine].join(families)
        yield f"| `{id}` | {joined} | {'; '.join(flags)} | {'; '.join(notes)} |"
    yield ""
    if c.absent:
        yield "Not exported: " + "; ".join(f"`{id}` ({why})" for id, why in c.absent.items()) + "."
        yield ""


def write(folder: Path = DOCS) -> list[Path]:
    """Write both pages; returns their paths."""
    out = []
    for name, page in (("signals.md", signals_page()), ("engines.md", engines_page())):
        path = folder / name
        path.write_text(page)
        out.append(path)
    return out


if __name__ == "__main__":
    for written in write():
        print(written)
