"""From a server's answer to the samples of each target: grouped by job and instance, apart from ``up``, copies told apart.

Prometheus gives all samples of one scrape the same timestamp; that is what makes a scrape out of single series again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from collectors.prometheus_client_guard import RawAnswer, RawSeries
from collectors.prometheus_native import to_classic
from core.frames import FloatArray
from core.records import Problem

Times = tuple[float, ...]
LabelPairs = tuple[tuple[str, str], ...]
_Member = tuple[dict[str, str], LabelPairs, Times, FloatArray]
_Row = tuple[dict[str, str], Times, FloatArray, str]
SeriesKey = tuple[str, LabelPairs]
"""Metric name and the labels that are not the target's own, sorted."""

HA_LABELS = frozenset({"prometheus_replica", "__replica__"})
"""Names that only ever tell copies of one scrape apart; dropped without being asked."""
SYNTHETIC = frozenset(
    {
        "scrape_duration_seconds",
        "scrape_samples_scraped",
        "scrape_samples_post_metric_relabeling",
        "scrape_series_added",
        "scrape_timeout_seconds",
        "scrape_sample_limit",
        "scrape_body_size_bytes",
    }
)
"""What Prometheus writes about a scrape, also when it failed: not the target's own."""
PLACE_LABELS = frozenset(
    {"job", "instance", "pod", "namespace", "container", "node", "endpoint", "service", "cluster", "pool"}
)
"""Labels that are taken for a target's own where no ``up`` says which are."""


@dataclass(slots=True)
class Sampled:
    """One series of a window: times ascending (Unix seconds) and as many values."""

    key: SeriesKey
    times: Times
    values: FloatArray


@dataclass(slots=True)
class Copy:
    """What one copy of the server (one of an HA pair, or the only one) saw of a target."""

    up: dict[float, bool] = field(default_factory=dict)
    series: list[Sampled] = field(default_factory=list)


@dataclass(slots=True)
class TargetSamples:
    """All samples of one target in a window. ``selected`` is false where the selector asked for no series of it, only a
    further question gave its ``up``."""

    labels: dict[str, str]
    copies: dict[LabelPairs, Copy] = field(default_factory=dict)
    selected: bool = True


@dataclass(slots=True)
class Window:
    """The decoded samples with ``start <= t < end``: targets by identity, what was wrong, how many samples."""

    start: float
    end: float
    targets: dict[LabelPairs, TargetSamples]
    problems: list[Problem]
    samples: int


class _Reader:
    """Reads the samples of series from ``start`` on. Series of one scrape share their times, so these are checked once."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._times: dict[Times, tuple[int, Times]] = {}

    def read(self, raw: RawSeries) -> list[_Row]:
        """The float series and those made of a native histogram; KeyError, TypeError or ValueError for what is neither."""
        out: list[_Row] = []
        if raw.values:
            times, texts = zip(*raw.values, strict=True)
            values = np.fromiter(map(float, texts), np.float64, len(texts))
            first, times = self._checked(times)
            out.append((dict(raw.labels), times, values[first:], ""))
        if raw.histograms:
            rows, when, reason = to_classic(raw.labels.get("__name__", ""), raw.histograms)
            first, times = self._checked(tuple(when))
            for (name, le), cells in rows.items():
                own = {**raw.labels, "__name__": name} | ({"le": le} if le else {})
                out.append((own, times, cells[first:], reason))
        return [row for row in out if row[1]]

    def _checked(self, times: Times) -> tuple[int, Times]:
        """How many lie before the start, and the rest, the same object for equal ones."""
        found = self._times.get(times)
        if found is None:
            if any(not a < b for a, b in pairwise(times)) or not all(
                isinstance(t, int | float) for t in times
            ):
                raise ValueError("times are not ascending numbers")
            first = sum(t < self._start for t in times)
            found = self._times[times] = (first, times[first:])
        return found


def decode(
    answers: Sequence[RawAnswer],
    start: float,
    end: float,
    *,
    source: str,
    drop_labels: Collection[str] = (),
    ups: Sequence[RawAnswer] = (),
) -> Window:
    """Sort the series of one window by target.

    A target is (cluster, job, instance) and whatever else tells two of its ``up`` series apart. Labels in ``drop_labels`` are
    removed first; what then has the same identity are copies of one target, kept apart until one is chosen. ``ups`` are
    the ``up`` series that had to be asked for because the selector leaves them out.
    """
    reader = _Reader(start)
    drop = HA_LABELS | set(drop_labels)
    problems: list[Problem] = []
    groups: dict[tuple[str, str, str], list[_Member]] = {}
    samples = 0
    selected: set[tuple[str, str, str]] = set()
    for extra, answer in [*((False, a) for a in answers), *((True, a) for a in ups)]:
        samples += answer.samples
        problems.extend(_complaints(answer, source, end))
        for raw in answer.series:
            name = raw.labels.get("__name__", "")
            if name in SYNTHETIC:
                continue
            try:
                rows = reader.read(raw)
            except (KeyError, TypeError, ValueError) as error:
                problems.append(_bad_series(raw, error, source, end))
                continue
            for labels, times, values, _ in rows:
                tag = tuple((k, labels.pop(k)) for k in sorted(drop & labels.keys()))
                instance = labels.get("instance") or labels.get("pod", "")
                if not instance:
                    problems.append(_homeless(name, source, end))
                    break
                group = (labels.get("cluster", ""), labels.get("job", ""), instance)
                groups.setdefault(group, []).append((labels, tag, times, values))
                if not extra:
                    selected.add(group)
            if rows and rows[0][3]:
                problems.append(_no_buckets(raw, rows[0][3], source, end))
    targets: dict[LabelPairs, TargetSamples] = {}
    for group, members in groups.items():
        _split(members, targets, group in selected)
    return Window(start, end, targets, folded(problems), samples)


def _split(members: list[_Member], targets: dict[LabelPairs, TargetSamples], selected: bool) -> None:
    """Turn the series of one (cluster, job, instance) into one target, or into several where ``up`` exists more than once."""
    ups = {tuple(sorted(m[0].items())): m[0] for m in members if m[0].get("__name__") == "up"}
    if ups:
        homes = [{k: v for k, v in u.items() if k != "__name__"} for u in ups.values()]
    else:
        homes = [_common(m[0] for m in members)]
    shared = {k for k in homes[0] if all(h.get(k) == homes[0][k] for h in homes)}
    differ = sorted({k for h in homes for k in h} - shared)
    for home in homes:
        key: LabelPairs = tuple(
            (k, home[k]) for k in sorted({"cluster", "job", "instance", "pod", *differ}) if k in home
        )
        targets[key] = target = TargetSamples(home, selected=selected)
        for labels, tag, times, values in members:
            if any(labels.get(k) != home.get(k) for k in differ):
                continue
            copy = target.copies.setdefault(tag, Copy())
            if labels.get("__name__") == "up":
                copy.up.update(zip(times, (values > 0).tolist(), strict=True))
            else:
                copy.series.append(Sampled(_own_key(labels, home), times, values))


def _own_key(labels: Mapping[str, str], home: Mapping[str, str]) -> SeriesKey:
    """Name and labels as the process itself wrote them: without the target's, ``exported_x`` back to ``x``."""
    own = []
    for k, v in labels.items():
        if k == "__name__":
            continue
        if k in home:
            if home[k] == v:
                continue
        elif k.startswith("exported_") and k[9:] in home:
            k = k[9:]
        own.append((k, v))
    own.sort()
    return labels.get("__name__", ""), tuple(own)


def _common(series: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The labels of place that all series agree on."""
    out: dict[str, str] | None = None
    for labels in series:
        if out is None:
            out = {k: v for k, v in labels.items() if k in PLACE_LABELS}
        else:
            out = {k: v for k, v in out.items() if labels.get(k) == v}
    return out or {}


def _complaints(answer: RawAnswer, source: str, at: float) -> Iterable[Problem]:
    for text in answer.warnings:
        yield Problem(
            at,
            source,
            "partial",
            "query",
            f"The server says its answer is incomplete: {text}",
            "Bring back the store or shard that it names, then run the back-fill of this range again.",
        )
    if answer.malformed:
        yield Problem(
            at,
            source,
            "malformed_series",
            "query",
            "Entries of an answer were no series with labels and values; they were left out.",
            "Look at what stands between Gustfront and the server.",
            count=answer.malformed,
        )


def _bad_series(raw: RawSeries, error: Exception, source: str, at: float) -> Problem:
    name = raw.labels.get("__name__", "")
    return Problem(
        at,
        source,
        "malformed_series",
        name[:200],
        f"Samples of {name[:200]} cannot be read ({type(error).__name__}: {str(error)[:100]}); the series was left out.",
        "Look at what stands between Gustfront and the server.",
    )


def _homeless(name: str, source: str, at: float) -> Problem:
    return Problem(
        at,
        source,
        "no_instance",
        name[:200],
        "A series has neither an instance nor a pod label, so it belongs to no target; it was left out.",
        "Exclude recording rules with the selector, or keep the instance label when aggregating.",
    )


def _no_buckets(raw: RawSeries, reason: str, source: str, at: float) -> Problem:
    name = raw.labels.get("__name__", "")
    return Problem(
        at,
        source,
        "native_histogram",
        f"{name} of {raw.labels.get('instance', '')}"[:200],
        f"The native histogram {name} gives count and sum but no buckets: {reason}.",
        "Let Prometheus keep the classic buckets too (always_scrape_classic_histograms: true).",
    )


def folded(problems: Iterable[Problem]) -> list[Problem]:
    """One problem for each (source, code, subject): the latest, with the counts of all."""
    out: dict[tuple[str, str, str], Problem] = {}
    for p in problems:
        key = (p.source, p.code, p.subject)
        old = out.get(key)
        out[key] = p if old is None else replace(p, count=old.count + p.count)
    return list(out.values())
