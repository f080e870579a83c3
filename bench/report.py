"""What a sweep says: figures with their intervals, a table by scenario, the confusion matrix.

Rules beyond those of :mod:`bench.score`. *Right*: of the faults that have a kind, those named right on the right replicas, with
the exact (Clopper-Pearson) 95 % interval. *Precision*: right ones of right ones and false alarms; *named right*: right
ones of everything said, wrong names included. *Confidently wrong*: a wrong kind, or a false alarm, said with a confidence
of 0.8 or more, of everything said. *Unknown faults*: those whose cause no metric tells; what may be said of them is
``tail_latency_spike``, ``slo_burn`` or nothing. Scenarios whose name begins with ``unknown_`` count only there.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy import special

from bench.judged import Judged
from bench.score import FalseAlarm, Row
from detectors.stats import exact_interval

SURE = 0.8
WEEK = 168.0
UNKNOWN = "unknown_"
UNNAMED = frozenset({"tail_latency_spike", "slo_burn"})
NOTHING = "nothing"
CALM = "(no fault)"


def poisson_upper(k: int, level: float = 0.95) -> float:
    """One-sided upper bound of a Poisson mean of which ``k`` were seen.

    >>> round(poisson_upper(0), 3)
    2.996
    """
    return float(special.gammaincinv(k + 1, level))


@dataclass(frozen=True, slots=True)
class Total:
    """Of many judged histories: rows of faults with a kind, rows of unknown ones, false alarms."""

    rows: tuple[Row, ...]
    unknown: tuple[Row, ...]
    false: tuple[FalseAlarm, ...]
    duplicates: int
    replica_hours: float

    @classmethod
    def of(cls, many: Iterable[Judged]) -> Total:
        """Scores added up."""
        rows: list[Row] = []
        unknown: list[Row] = []
        false: list[FalseAlarm] = []
        duplicates, hours = 0, 0.0
        for one in many:
            got = one.score
            (unknown if one.name.startswith(UNKNOWN) else rows).extend(got.rows)
            false += got.false
            duplicates += got.duplicates
            hours += got.replica_hours
        return cls(tuple(rows), tuple(unknown), tuple(false), duplicates, hours)

    @property
    def right(self) -> int:
        """Named right on the right replicas."""
        return sum(r.right for r in self.rows)

    @property
    def sure_and_wrong(self) -> int:
        """Wrong kinds and false alarms said with confidence."""
        wrong = [r.confidence for r in self.rows if r.said and not r.kind_right]
        wrong += [r.confidence for r in self.unknown if r.said not in ("", *UNNAMED)]
        wrong += [f.confidence for f in self.false]
        return sum(c is not None and c >= SURE for c in wrong)

    def lines(self) -> list[str]:
        """The figures, a line each."""
        n, right, false = len(self.rows), self.right, len(self.false)
        said = sum(bool(r.said) for r in (*self.rows, *self.unknown)) + false
        kinds = sum(r.kind_right for r in self.rows)
        low, high = exact_interval(right, n)
        delays = [r.delay for r in self.rows if r.right and r.delay is not None]
        loads = [r.load for r in self.rows if r.load is not None]
        unnamed = [r for r in (*self.rows, *self.unknown) if r.kind in UNNAMED]
        obeyed = sum(r.said in ("", *UNNAMED) for r in unnamed)
        weeks = self.replica_hours / WEEK
        bound = poisson_upper(false) / weeks if weeks else float("nan")
        rate = false / weeks if weeks else float("nan")
        return [
            f"faults with a kind           {n}",
            f"right (kind and replicas)    {right}/{n} = {_share(right, n)}  (95 % {100 * low:.1f}–{100 * high:.1f} %)",
            f"right kind, any replicas     {kinds}/{n} = {_share(kinds, n)}",
            f"said something               {sum(bool(r.said) for r in self.rows)}/{n}",
            f"precision                    {_share(right, right + false)}  ({false} false alarms)",
            f"named right of all said      {_share(right, said - sum(bool(r.said) for r in self.unknown))}",
            f"confidently wrong            {self.sure_and_wrong}/{said} = {_share(self.sure_and_wrong, said)}",
            f"duplicates                   {self.duplicates}",
            f"false alarms                 {rate:.2f} a replica-week, at most {bound:.2f} (95 %), in {weeks:.1f} replica-weeks",
            f"unknown faults left unnamed  {obeyed}/{len(unnamed)}",
            f"median delay                 {_seconds(delays)}",
            f"load verdicts right          {sum(loads)}/{len(loads)}",
        ]


def _share(k: int, n: int) -> str:
    return f"{100 * k / n:.1f} %" if n else "-"


def _seconds(delays: Sequence[float]) -> str:
    return f"{statistics.median_low(delays):.0f} s" if delays else "-"


def by_scenario(many: Sequence[Judged]) -> list[str]:
    """One line a scenario and fault: what was said how often, right, delay, load verdicts, false alarms."""
    lines = [f"{'scenario':22s} {'true kind':24s} right delay  load  said"]
    for name in dict.fromkeys(j.name for j in many):
        scores = [j.score for j in many if j.name == name]
        for i in range(max(len(s.rows) for s in scores)):
            rows = [s.rows[i] for s in scores if i < len(s.rows)]
            said = Counter(_said(r) for r in rows)
            loads = [r.load for r in rows if r.load is not None]
            words = ", ".join(f"{k} {v}" if len(rows) > 1 else k for k, v in said.most_common())
            delays = [r.delay for r in rows if r.delay is not None]
            lines.append(
                f"{name:22s} {rows[0].kind:24s} {sum(r.right for r in rows)}/{len(rows)}   {_seconds(delays):>6s} "
                f"{f'{sum(loads)}/{len(loads)}' if loads else '':5s} {words}"
            )
        false = Counter(f"{f.kind} on {f.pools or '?'}" for s in scores for f in s.false)
        if not any(s.rows for s in scores):
            quiet = sum(not s.false for s in scores)
            lines.append(f"{name:22s} {CALM:24s} {quiet}/{len(scores)}                silent {quiet}")
        if false:
            words = ", ".join(f"{k} {v}" for k, v in false.most_common())
            lines.append(f"{'':22s} FALSE ALARM: {words}")
    return lines


def _said(row: Row) -> str:
    if row.kind_right and not row.right:
        return f"{row.said} (other replicas, overlap {row.overlap:.2f})"
    return row.said or NOTHING


Matrix = dict[str, Counter[tuple[str, bool]]]


def confusion(total: Total) -> Matrix:
    """True kind -> (said kind, whether that is right or accepted) -> how often. What nothing explains: :data:`CALM`."""
    out: Matrix = {}
    for row in total.rows:
        out.setdefault(row.kind, Counter())[row.said or NOTHING, row.kind_right] += 1
    for row in total.unknown:
        out.setdefault("unknown", Counter())[row.said or NOTHING, row.said in ("", *UNNAMED)] += 1
    if total.false:
        out[CALM] = Counter((f.kind, False) for f in total.false)
    return out


def confusion_lines(matrix: Matrix) -> list[str]:
    """True kinds and what was said of them, most frequent first; ``!`` marks what is wrong."""
    lines = []
    for kind in sorted(matrix, key=lambda k: (k == CALM, k)):
        said = ", ".join(f"{'' if ok else '! '}{k} {v}" for (k, ok), v in matrix[kind].most_common())
        lines.append(f"{kind:26s} {said}")
    return lines


def markdown(total: Total, head: str) -> str:
    """The confusion matrix and the figures as a page."""
    matrix = confusion(total)
    said = {k for c in matrix.values() for k, _ in c}
    columns = [*sorted(said - {NOTHING}), *([NOTHING] if NOTHING in said else [])]
    rows = sorted(matrix, key=lambda k: (k == CALM, k == "unknown", k))
    out = ["# What is said of which fault", "", head, "", "```", *total.lines(), "```", ""]
    out += ["Rows are what was true, columns what was said; bold is right or accepted.", ""]
    numbers = {name: i + 1 for i, name in enumerate(columns)}
    out += ["| true \\ said | " + " | ".join(str(numbers[c]) for c in columns) + " |"]
    out += ["|---|" + "---:|" * len(columns)]
    for kind in rows:
        cells = [_cell(matrix[kind][c, True], matrix[kind][c, False]) for c in columns]
        out.append(f"| {kind} | " + " | ".join(cells) + " |")
    out += ["", "Columns: " + " · ".join(f"{i} `{name}`" for name, i in numbers.items()) + ".", ""]
    return "\n".join(out)


def _cell(right: int, wrong: int) -> str:
    return " + ".join([f"**{right}**"] * bool(right) + [str(wrong)] * bool(wrong))
