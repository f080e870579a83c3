"""How often the text rules are right, and how fast they are.

    python bench/text.py [--shared DIR] [--texts 400]

Recall: ordinary texts broken in known doses (``bench/corrupt.py``). False positives: model outputs of the shared traces that
no label calls degenerate, outputs of the labelled histories whose acceptance length is normal, and files found on this machine
(Python, manual pages, documentation, JSON, JavaScript). Speed: processor milliseconds for 1.2 kB, one core, nothing remembered.
Without the shared folder the texts are Python's own help pages.
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
from pathlib import Path

import zstandard

from bench.corrupt import KINDS, applies
from core.text import score_text

CUT = 2000


def trace_texts(shared: Path) -> list[str]:
    """Outputs of the shared traces that are labelled normal and long enough to be broken."""
    path = shared / "traces" / "text" / "outputs_permissive.parquet"
    if not path.is_file():
        return []
    import pandas as pd

    frame = pd.read_parquet(path, columns=["output", "auto_label"])
    return [str(t) for t in frame.output[frame.auto_label == "normal"]]


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
        fitting = [
            t[:CUT] for t in texts if applies(sort, t[:CUT]) and score_text(t[:CUT]).verdict == "clean"
        ]
        rng.shuffle(fitting)
        scores = [score_text(breaker(t, rng)) for t in fitting[:n]]
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = os.environ.get("GUSTFRONT_SHARED") or Path(__file__).resolve().parent.parent.parent / "shared"
    parser.add_argument("--shared", type=Path, default=Path(default))
    parser.add_argument("--texts", type=int, default=400)
    options = parser.parse_args()
    traces = trace_texts(options.shared)
    texts = [t for t in (traces or help_texts()) if len(t) >= 400]
    print(f"recall on {len(texts):,} texts")
    for name, n, hard, seen in recall(texts, options.texts):
        print(f"  {name:36} n {n:4}   hard {hard:6.1%}   hard or soft {seen:6.1%}")
    print("false positives")
    if traces:
        n, hard, rules = false_positives(traces)
        print(f"  traces labelled normal: {hard} of {n:,} hard; {dict(rules.most_common())}")
    normal: set[str] = set()
    odd: set[str] = set()
    total = 0
    for output, accept in history_texts(options.shared):
        total += 1
        (odd if accept < 1.5 or accept > 3.8 else normal).add(output)
    if total:
        n, hard, rules = false_positives(normal)
        print(
            f"  histories, normal acceptance: {hard} of {n:,} texts ({total:,} outputs); {dict(rules.most_common())}"
        )
        n, hard, _ = false_positives(odd)
        print(f"  histories, odd acceptance: {hard} of {n:,} hard")
    for kind, files in local_files().items():
        n, hard, rules = false_positives(p for f in files for p in pieces(f))
        print(f"  {kind}: {hard} of {n:,} hard; {dict(rules.most_common(6))}")
    sample = texts[:3000]
    started = time.process_time()
    for text in sample:
        score_text(text)
    spent = time.process_time() - started
    print(f"speed: {spent / sum(map(len, sample)) * 1200 * 1e3:.2f} ms for 1,200 characters")
    broken = "the same words again and again without any end " * 260
    started = time.process_time()
    for _ in range(20):
        score_text(broken)
    print(
        f"       {(time.process_time() - started) / 20 * 1e3:.2f} ms for a loop of {len(broken):,} characters"
    )


if __name__ == "__main__":
    main()
