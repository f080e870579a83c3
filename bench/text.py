"""How often the text rules are right, and how fast they are.

    python -m bench.text [--shared DIR] [--texts 400] [--json] [--traces FILE.parquet]

Recall: ordinary texts broken in known doses (``bench/corrupt.py``). False positives: model outputs of the shared traces that
no label calls degenerate, outputs of the labelled histories whose acceptance length is normal, and files found on this machine
(Python, manual pages, documentation, JSON, JavaScript). Speed: processor milliseconds for 1.2 kB, one core, nothing remembered.
Without the shared folder the texts are Python's own help pages.

``--json`` prints one object: ``outputs_per_second`` (1,200 characters each, prompts known, one core),
``false_positives_per_10k`` (hard on rows labelled normal and not overruled by hand), ``hard_on_normal_per_10k`` (before
that), ``recall`` by kind of corruption, ``natural`` (of the outputs labelled by hand as degenerate). ``--traces`` names the
Parquet file: columns ``output``, ``auto_label`` (or ``label``), and ``prompt`` where there is one. Labels by hand are in
``bench/natural_degenerates.tsv``, as ids.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sysconfig
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from bench.corrupt import KINDS, applies
from core.text import score_text

CUT = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """One output of the traces: its heuristic label, and the label by hand (empty where nobody read it)."""

    output: str
    prompt: str | None
    normal: bool
    hand: str


def traces_path(shared: Path) -> Path:
    """Where the shared traces have their texts."""
    return shared / "traces" / "text" / "outputs_permissive.parquet"


def trace_rows(path: Path) -> list[Row]:
    """Every output of a Parquet file; none where there is no file."""
    if not path.is_file():
        return []
    import pandas as pd

    frame = pd.read_parquet(path)
    labels = frame["auto_label" if "auto_label" in frame else "label"]
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
    """Id → ``degenerate`` or ``doubtful``."""
    lines = (Path(__file__).parent / "natural_degenerates.tsv").read_text().splitlines()
    return dict(line.split("\t") for line in lines if line and line[0] != "#")  # type: ignore[misc]


def help_texts() -> list[str]:
    """Python's help pages, in pieces."""
    from pydoc_data.topics import topics

    return [t[i : i + CUT] for t in topics.values() for i in range(0, len(t), CUT) if len(t) - i > 400]


def history_texts(shared: Path) -> Iterator[tuple[str, float]]:
    """(output, acceptance length) of the labelled histories."""
    for path in sorted((shared / "scenarios").glob("*/requests.jsonl.zst")):
        with path.open("rb") as packed:
            raw = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(packed).read()
        for line in raw.splitlines():
            record = json.loads(line)
            if record["output_tokens"] >= 24:
                yield record["output"], record["accept_length"]


def local_files() -> dict[str, list[Path]]:
    """Files of this machine by kind, at most 600 a kind."""
    places = {
        "Python": (sysconfig.get_path("stdlib"), (".py",)),
        "headers": ("/usr/include", (".h",)),
        "JavaScript": ("/usr/share", (".js",)),
        "JSON": ("/usr/share", (".json",)),
        "manual pages": ("/usr/share/man", (".gz",)),
        "documentation": ("/usr/share/doc", (".gz", ".txt", ".md", ".html", "copyright")),
    }
    out: dict[str, list[Path]] = {}
    for kind, (root, ends) in places.items():
        found = sorted(Path(d) / f for d, _, files in os.walk(root) for f in files if f.endswith(ends))
        random.Random(1).shuffle(found)
        out[kind] = found[:600]
    return out


def pieces(path: Path) -> Iterator[str]:
    """A file in pieces of 2,000 characters, at most six; nothing if it is no UTF-8 text."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(60_000)
        text = raw.decode()
    except (OSError, EOFError, UnicodeDecodeError):
        return
    for i in range(0, min(len(text), 6 * CUT), CUT):
        if len(text) - i > 200:
            yield text[i : i + CUT]


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


def false_positives(texts: Iterable[str]) -> tuple[int, int, Counter[str]]:
    """Texts, hard ones, and how often each rule fired."""
    n, rules, hard = 0, Counter[str](), 0
    for text in texts:
        score = score_text(text)
        n += 1
        hard += score.verdict == "hard"
        rules.update(score.rules.keys())
    return n, hard, rules


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
        "false_positives_per_10k": round(1e4 * wrong / max(1, len(normal)), 2),
        "hard_on_normal_per_10k": round(1e4 * raw / max(1, len(normal)), 2),
        "overruled_by_hand": raw - wrong,
        "natural": {
            "degenerate": len(bad),
            "hard": round(sum(v == "hard" for v in bad) / max(1, len(bad)), 4),
            "hard_or_soft": round(sum(v != "clean" for v in bad) / max(1, len(bad)), 4),
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


def as_json(rows: list[Row], texts: list[str], n: int) -> dict[str, Any]:
    """The figures of ``--json``."""
    found = recall(texts, n)
    return {
        "outputs_per_second": round(outputs_per_second(texts)),
        **on_traces(rows),
        "recall": {name: round(hard, 4) for name, _, hard, _ in found},
        "recall_hard_or_soft": {name: round(seen, 4) for name, _, _, seen in found},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = os.environ.get("GUSTFRONT_SHARED") or Path(__file__).resolve().parent.parent.parent / "shared"
    parser.add_argument("--shared", type=Path, default=Path(default))
    parser.add_argument("--traces", type=Path, help="Parquet file of outputs")
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = trace_rows(options.traces or traces_path(options.shared))
    traces = [r.output for r in rows if r.normal]
    texts = [t for t in (traces or help_texts()) if len(t) >= 400]
    if options.json:
        print(json.dumps(as_json(rows, texts, options.texts), indent=1))
        return
    print(f"recall on {len(texts):,} texts")
    for name, n, hard, seen in recall(texts, options.texts):
        print(f"  {name:36} n {n:4}   hard {hard:6.1%}   hard or soft {seen:6.1%}")
    print("false positives")
    if traces:
        print(f"  traces: {on_traces(rows)}")
    report_histories(options.shared)
    for kind, files in local_files().items():
        n, hard_pieces, rules = false_positives(p for f in files for p in pieces(f))
        print(f"  {kind}: {hard_pieces} of {n:,} hard; {dict(rules.most_common(6))}")
    print(f"speed: {outputs_per_second(texts):,.0f} outputs of 1,200 characters a second")
    broken = "the same words again and again without any end " * 260
    started = time.process_time()
    for _ in range(20):
        score_text(broken)
    print(
        f"       {(time.process_time() - started) / 20 * 1e3:.2f} ms for a loop of {len(broken):,} characters"
    )


def report_histories(shared: Path) -> None:
    """Hard rules on the labelled histories, by acceptance length."""
    normal: set[str] = set()
    odd: set[str] = set()
    total = 0
    for output, accept in history_texts(shared):
        total += 1
        (odd if accept < 1.5 or accept > 3.8 else normal).add(output)
    if not total:
        return
    n, hard, rules = false_positives(normal)
    print(
        f"  histories, normal acceptance: {hard} of {n:,} texts ({total:,} outputs); {dict(rules.most_common())}"
    )
    n, hard, _ = false_positives(odd)
    print(f"  histories, odd acceptance: {hard} of {n:,} hard")


if __name__ == "__main__":
    main()
