"""How often the text rules are right on a set of outputs, and how fast they are: ``gustfront bench text``.

Recall: ordinary texts broken in known doses (:mod:`app.services.text_breaking`). False positives: hard verdicts on rows
labelled normal that no person overruled. Speed: processor time for 1.2 kB, one core, nothing remembered. Without a file the
texts are Python's own help pages, and there are no rows to be wrong about.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from app.services.text_breaking import KINDS, applies
from core.errors import EnvironmentProblem
from core.text import score_text
from detectors.quality.rates import exact

CUT = 2000
LABELS = Path(__file__).parent / "natural_degenerates.tsv"


@dataclass(frozen=True, slots=True)
class Row:
    """One output of the traces: its heuristic label, and the label by hand (empty where nobody read it)."""

    output: str
    prompt: str | None
    normal: bool
    hand: str


def trace_rows(path: Path) -> list[Row]:
    """Every output of a Parquet file with the columns ``output``, ``auto_label`` (or ``label``) and, if it likes, ``prompt``.
    ``EnvironmentProblem`` where it is no such file."""
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"{path}: {str(error)[:200]}", "name a Parquet file of outputs with --traces"
        ) from error
    label = next((c for c in ("auto_label", "label") if c in frame), None)
    if label is None or "output" not in frame:
        raise EnvironmentProblem(
            f"{path} has the columns {', '.join(map(str, frame.columns))[:200]}",
            "it needs output and auto_label (or label); prompt is used where it is there",
        )
    labels = frame[label]
    prompts = frame["prompt"] if "prompt" in frame else [""] * len(frame)
    hand = hand_labels()
    return [
        Row(
            str(o),
            str(p) if isinstance(p, str) and p else None,
            str(a) == "normal",
            hand.get(output_id(str(o)), ""),
        )
        for o, p, a in zip(frame["output"], prompts, labels, strict=True)
    ]


def output_id(text: str) -> str:
    """The id of an output in ``natural_degenerates.tsv``."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def hand_labels() -> dict[str, str]:
    """Id → ``degenerate`` or ``doubtful``, as labelled by hand."""
    lines = LABELS.read_text("utf-8").splitlines()
    return dict(line.split("\t") for line in lines if line and line[0] != "#")


def help_texts() -> list[str]:
    """Python's help pages, in pieces."""
    from pydoc_data.topics import topics

    return [t[i : i + CUT] for t in topics.values() for i in range(0, len(t), CUT) if len(t) - i > 400]


def recall(texts: list[str], n: int) -> list[tuple[str, int, float, float]]:
    """For each corruption: name, texts, share hard, share hard or soft (with a rule the unbroken text does not have)."""
    out = []
    for name, (sort, breaker) in KINDS.items():
        rng = random.Random(name)
        shuffled = [t[:CUT] for t in texts if applies(sort, t[:CUT])]
        rng.shuffle(shuffled)
        fitting = list(islice((t for t in shuffled if score_text(t).verdict == "clean"), n))
        scores = [score_text(breaker(t, rng)) for t in fitting]
        if scores:
            hard = sum(s.verdict == "hard" for s in scores) / len(scores)
            out.append((name, len(scores), hard, sum(s.verdict != "clean" for s in scores) / len(scores)))
    return out


def _per_10k(k: int, n: int) -> float | None:
    """None where nothing was looked at."""
    return round(1e4 * k / n, 2) if n else None


def soft_rates(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """(fired, rows labelled normal) of every rule, prompts known where recorded: what is usual for it."""
    seen: dict[str, int] = {}
    normal = [r for r in rows if r.normal]
    for r in normal:
        for rule in score_text(r.output, prompt=r.prompt).rules:
            seen[rule] = seen.get(rule, 0) + 1
    return {rule: (k, len(normal)) for rule, k in sorted(seen.items(), key=lambda x: (-x[1], x[0]))}


def on_traces(rows: list[Row]) -> dict[str, Any]:
    """Hard rules on the rows labelled normal, and on those labelled degenerate by hand; prompts known where recorded."""
    verdicts = [score_text(r.output, prompt=r.prompt).verdict for r in rows]
    normal = [(r, v) for r, v in zip(rows, verdicts, strict=True) if r.normal]
    raw = sum(v == "hard" for _, v in normal)
    wrong = sum(v == "hard" and r.hand != "degenerate" for r, v in normal)
    bad = [v for r, v in zip(rows, verdicts, strict=True) if r.hand == "degenerate"]
    doubtful = [v for r, v in zip(rows, verdicts, strict=True) if r.hand == "doubtful"]
    return {
        "rows_labelled_normal": len(normal),
        "false_positives_per_10k": _per_10k(wrong, len(normal)),
        "false_positives_upper_per_10k": round(1e4 * exact(wrong, len(normal)).high, 2) if normal else None,
        "hard_on_normal_per_10k": _per_10k(raw, len(normal)),
        "overruled_by_hand": raw - wrong,
        "natural": {
            "degenerate": len(bad),
            "hard": round(sum(v == "hard" for v in bad) / len(bad), 4) if bad else None,
            "hard_or_soft": round(sum(v != "clean" for v in bad) / len(bad), 4) if bad else None,
            "doubtful": len(doubtful),
            "doubtful_hard": sum(v == "hard" for v in doubtful),
        },
    }


def outputs_per_second(texts: list[str], size: int = 1200) -> float:
    """Scored a second of processor time, texts of ``size`` characters, each with a prompt; the best of three rounds."""
    sample = [t[:size] for t in texts if len(t) >= size][:2000] or [
        t * (size // max(1, len(t)) + 1) for t in texts[:200]
    ]
    prompt = "Please explain in a few sentences how this works and what to look at first. " * 4
    best = 0.0
    for _ in range(3):
        started = time.process_time()
        for text in sample:
            score_text(text, prompt=prompt, finish_reason="stop")
        best = max(best, len(sample) / (time.process_time() - started))
    return best


def measure(rows: list[Row], texts: list[str], n: int) -> dict[str, Any]:
    """All figures: see ``docs/text-rules.md``."""
    found = recall(texts, n)
    return {
        "outputs_per_second": round(outputs_per_second(texts)),
        **on_traces(rows),
        "recall": {name: round(hard, 4) for name, _, hard, _ in found},
        "recall_hard_or_soft": {name: round(seen, 4) for name, _, _, seen in found},
    }
