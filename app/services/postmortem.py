"""A post-mortem in Markdown, filled in as far as the data go: times, timeline, evidence, pictures, links. People write the rest.

Names, labels and texts come from strangers: every character that Markdown or HTML would obey is escaped, and line breaks are
taken out, so that they stay text.
"""

from __future__ import annotations

import base64
import io
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from app.services.harm import quantile_word
from app.services.incident_load import Loaded, load
from app.services.incident_view import IncidentView, kind_title
from app.services.lifecycle import Conflict, find
from app.services.postmortem_pictures import Picture, pictures
from app.services.story import evidence_text, signal_title, told_actions
from app.services.view import TICK, View, round_up
from app.services.wording import instant, listing, percent, promise, quantity, seconds, span
from core.config import Config
from core.incidents import Incident
from core.lifecycle import LABEL_WORDS
from sql.store import Store

_SPECIAL = re.compile(r"[\\`*_\[\]<>&|~$]|:(?=//)|(?<=www)\.|^(?:[#+=>-]|\d+(?=[.)]))")
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
BEYOND = 900.0


@dataclass(frozen=True, slots=True)
class PostMortem:
    """``text`` is the Markdown; ``pictures`` are the files that it shows, beside it."""

    name: str
    text: str
    pictures: tuple[Picture, ...]

    def inline(self) -> str:
        """One Markdown file with its pictures inside, as data addresses."""
        text = self.text
        for p in self.pictures:
            data = base64.b64encode(p.svg.encode()).decode()
            text = text.replace(f"]({p.name})", f"](data:image/svg+xml;base64,{data})")
        return text

    def zip(self) -> bytes:
        """Markdown and pictures in one archive."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
            for name, content in self.files():
                made.writestr(zipfile.ZipInfo(f"{self.name}/{name}", (1980, 1, 1, 0, 0, 0)), content)
        return out.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """Write the files into a folder, which is made where it is missing; OSError where that cannot be."""
        folder.mkdir(parents=True, exist_ok=True)
        out = []
        for name, content in self.files():
            (folder / name).write_text(content, encoding="utf-8")
            out.append(folder / name)
        return out

    def files(self) -> list[tuple[str, str]]:
        """(name, content) of each file, the Markdown first."""
        return [("postmortem.md", self.text), *((p.name, p.svg) for p in self.pictures)]


def post_mortem(store: Store, config: Config, incident_id: str, *, base: str = "") -> PostMortem:
    """The post-mortem of an incident as it is known now. ``base`` is the address of the app, for links. NotFound; Conflict
    where nobody was ever told of it."""
    stored = find(store, incident_id)
    loaded = load(store, view_at_end(store, stored), config, stored.id)
    if loaded is None:
        raise Conflict(stored.id, "nobody was ever told of it", "there is nothing to look back on")
    return PostMortem(f"postmortem-{stored.id}", *_written(loaded, base.rstrip("/")))


def view_at_end(store: Store, incident: Incident) -> View:
    """A quarter of an hour after the end of an incident; the newest data while it goes on."""
    newest = store.newest()
    end = incident.ended_at
    known = max(t for t in (newest, incident.updated_at, incident.started_at) if t is not None)
    at = known if end is None else end + BEYOND
    at = round_up(max(at, incident.detected_at or 0.0, incident.announced_at or 0.0), TICK)
    return View(at - 3600.0, at, False, newest=newest)


def md(text: object) -> str:
    """Text from anywhere as one line of Markdown that means itself."""
    line = _BREAKS.sub(" ", str(text)).replace("\u00a0", " ").strip()
    return _SPECIAL.sub(lambda m: m[0] + "\\" if m[0][0] == ":" or m[0].isdigit() else "\\" + m[0], line)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; the heads are ours, the cells are escaped."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(md(c) or '–' for c in row)} |" for row in rows]
    return "\n".join(lines)


def _written(loaded: Loaded, base: str) -> tuple[str, tuple[Picture, ...]]:
    v = loaded.view
    drawn = tuple(pictures(v, loaded.heat))
    parts = [
        f"# Post-mortem: {md(v.sentence)}",
        _facts(loaded, base),
        "## Summary\n\n" + _summary(v),
        "## Impact\n\n" + _impact(v, drawn),
        "## Timeline (UTC)\n\n" + _timeline(loaded),
        "## Cause and evidence\n\n" + _evidence(v, drawn),
        "## Ruled out\n\n" + _ruled_out(v.incident),
        "## What ended it, and what to do\n\n" + _actions(loaded),
        "## Earlier incidents like it\n\n" + _similar(loaded, base),
        "## For people to write\n\n"
        "### What went well\n\n- \n\n### What went badly\n\n- \n\n### Where we were lucky\n\n- \n\n"
        "### Follow-ups\n\n| what | who | until |\n|---|---|---|\n|  |  |  |",
    ]
    return "\n\n".join(parts) + "\n", drawn


def _facts(loaded: Loaded, base: str) -> str:
    v, h = loaded.view, loaded.standing.handling
    i = v.incident
    since = i.started_at
    first_ack = min((e.ts for e in loaded.log if e.action == "acknowledged"), default=None)

    def after(t: float | None) -> str:
        return "–" if t is None else f"{instant(t)}, {span(t - since)} after the onset"

    rows = [
        ("incident", i.id),
        ("kind", kind_title(i.kind)),
        ("severity", i.severity),
        ("onset", instant(since)),
        ("announced", after(i.announced_at)),
        ("detected", after(i.detected_at)),
        ("diagnosed", after(i.diagnosed_at)),
        ("acknowledged", after(first_ack)),
        ("ended", after(i.ended_at) if i.ended_at is not None else "still open"),
        ("classes", listing(list(i.classes), 8) or "all"),
        ("pools", listing(list(i.pools), 8) or "all"),
        ("replicas", listing(list(i.replicas), 12) or "not told"),
        ("owner", loaded.standing.owner or "nobody"),
        (
            "people called it",
            LABEL_WORDS.get(h.label, "nothing yet") + (f" ({h.label_by})" if h.label else ""),
        ),
    ]
    lines = [table(["", ""], rows)]
    if base:
        lines.append(
            f"Page: <{base}/incident?id={quote(i.id, safe='')}> · as it stood: <{base}/incident?id={quote(i.id, safe='')}"
            f"&as_of={datetime.fromtimestamp(v.as_of, UTC):%Y-%m-%dT%H:%M:%SZ}>"
        )
    if loaded.parts:
        lines.append(
            "Merged into it: " + "; ".join(f"{md(p.title)} ({md(p.id)})" for p in loaded.parts) + "."
        )
    if loaded.expired:
        lines.append(
            "What it was measured from is past its retention: the pictures could not be drawn any more."
        )
    return "\n\n".join(lines)


def _summary(v: IncidentView) -> str:
    i = v.incident
    lines = [md(v.sentence) + ".", md(v.summary)]
    if i.cause:
        lines.append(f"Cause: {md(i.cause.rstrip('.'))} (confidence {i.confidence:.2f}).")
    if i.kind == "degraded_generations":
        word = {
            True: "It follows load.",
            False: "It does not follow load.",
            None: "Whether it follows load is not known.",
        }
        lines.append(word[i.load_correlated])
    return "\n\n".join(x for x in lines if x.strip())


def _impact(v: IncidentView, drawn: Sequence[Picture]) -> str:
    lines = []
    if v.harm:
        rows = [
            (
                h.class_,
                h.label,
                "–" if h.peak is None else seconds(h.peak),
                "–" if h.here is None else quantile_word(h.here),
                "none set"
                if h.threshold is None
                else f"{promise(h.objective or 0.0)} ≤ {seconds(h.threshold)}",
                "unknown"
                if h.late is None
                else (f"{h.late:,}" if h.late == h.late_high else f"{h.late:,} to {h.late_high:,}")
                + f" of {h.n:,}",
            )
            for h in v.harm
        ]
        head = ["class", "latency", "highest p99", "p99 at the end", "objective", "late since onset"]
        lines.append(table(head, rows))
    if v.quality is not None:
        q = v.quality
        lines.append(
            f"Degraded answers: {md(q.now.per_10k())} per 10,000 ({q.now.k:,} of {q.now.n:,} sampled) since the onset, "
            f"{md(q.before.per_10k())} ({q.before.k:,} of {q.before.n:,}) before."
        )
    if v.tenants:
        told = ", ".join(f"{name} {percent(share, 0)}" for name, share in v.tenants[:6])
        lines.append(f"Late or failed requests by tenant: {md(told)}.")
    if not lines:
        lines.append("No class with latency data in its pools.")
    return "\n\n".join([*lines, *_shown(drawn, "latency-")])


def _shown(drawn: Sequence[Picture], start: str) -> list[str]:
    return [f"![{md(p.alt)}]({p.name})" for p in drawn if p.name.startswith(start)]


def _timeline(loaded: Loaded) -> str:
    """Everything with a time, in its order: changes, findings, and what people did."""
    v = loaded.view
    rows: list[tuple[float, str, str, str]] = [
        (e.ts, e.action.replace("_", " "), e.text, e.who) for e in loaded.log
    ]
    rows += [(e.ts, e.kind, e.text or e.replica or e.pool, e.source) for e in v.changes]
    rows += [(x.at, x.what, x.detail, "") for x in v.chain if x.at is not None]
    rows.append((v.incident.started_at, "onset", "first sign, as estimated later", ""))
    rows.sort(key=lambda r: r[0])
    seen: set[tuple[int, str, str]] = set()
    out = []
    for t, what, detail, who in rows:
        key = (round(t), what.split(" of ")[0], detail)
        if key not in seen:
            seen.add(key)
            out.append((f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%S}", what, detail, who))
    return table(["time", "what", "detail", "who"], out)


def _evidence(v: IncidentView, drawn: Sequence[Picture]) -> str:
    i = v.incident
    lines = [f"{md(i.cause) or 'Not established'}."] if not i.cause.endswith(".") else [md(i.cause)]
    after = f", next: {md(kind_title(i.runner_up))}" if i.runner_up else ""
    lines.append(
        f"Confidence {i.confidence:.2f}{after}. Control group: {md(listing(list(v.control), 12) or 'none')}."
    )
    if i.evidence:
        rows = [
            (
                signal_title(e.signal),
                e.scope,
                evidence_text(e),
                "–" if e.expected is None else quantity(e.expected, e.unit),
                instant(e.at),
                e.note,
            )
            for e in i.evidence
        ]
        lines.append(table(["signal", "where", "before → now", "expected", "at", "note"], rows))
    return "\n\n".join([*lines, *_shown(drawn, "evidence-"), *_shown(drawn, "replicas")])


def _ruled_out(i: Incident) -> str:
    if not i.ruled_out:
        return "No look-alike was tested."
    return table(
        ["look-alike", "test", "result", "is it?"],
        [(kind_title(r.kind), r.test, r.result, "no" if r.excluded else "not excluded") for r in i.ruled_out],
    )


def _actions(loaded: Loaded) -> str:
    v = loaded.view
    h = loaded.standing.handling
    lines = [f"Resolution, as noted: {md(h.resolution)}" if h.resolution else "Nobody noted what ended it."]
    if v.action is not None:
        later = told_actions(v.incident, "tomorrow") or (v.action.tomorrow,)
        lines += [
            f"If it comes back, first: {md(v.action.now)}",
            f"Risk: {md(v.action.risk)}",
            "For good: " + "; ".join(md(t.rstrip(".")) for t in later[:3]) + ".",
        ]
    return "\n\n".join(lines)


def _similar(loaded: Loaded, base: str) -> str:
    if not loaded.similar:
        return "None in the 400 days before."
    rows = [(s.incident.id, s.when(), "; ".join(s.why), s.ended_by, s.label or "–") for s in loaded.similar]
    return table(["incident", "when", "alike in", "what ended it", "people called it"], rows)
