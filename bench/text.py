"""How often the text rules are right, and how fast they are.

    python -m bench.text [--shared DIR] [--texts 400] [--json] [--traces FILE.parquet]

Recall: ordinary texts broken in known doses (``app/services/text_breaking.py``). False positives: model outputs of the
shared traces that no label calls degenerate, outputs of the labelled histories whose acceptance length is
normal, and files found on this machine
(Python, manual pages, documentation, JSON, JavaScript). Speed: processor milliseconds for 1.2 kB, one core, nothing remembered.
Without the shared folder the texts are Python's own help pages.

``--json`` prints one object: ``outputs_per_second`` (1,200 characters each, prompts known, one core),
``false_positives_per_10k`` (hard on rows labelled normal and not overruled by hand), ``hard_on_normal_per_10k`` (before
that), ``recall`` by kind of corruption, ``natural`` (of the outputs labelled by hand as degenerate). ``--traces`` names the
Parquet file: columns ``output``, ``auto_label`` (or ``label``), and ``prompt`` where there is one. Labels by hand are in
``app/services/natural_degenerates.tsv``, as ids. ``gustfront bench text`` prints the same figures without this checkout.
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

from app.services.text_bench import (
    CUT,
    help_texts,
    measure,
    on_traces,
    outputs_per_second,
    recall,
    soft_rates,
    trace_rows,
)
from core.text import score_text


def traces_path(shared: Path) -> Path:
    """Where the shared traces have their texts."""
    return shared / "traces" / "text" / "outputs_permissive.parquet"


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
    parser.add_argument("--traces", type=Path, help="Parquet file of outputs")
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path = options.traces or traces_path(options.shared)
    rows = trace_rows(path) if path.is_file() else []
    traces = [r.output for r in rows if r.normal]
    texts = [t for t in (traces or help_texts()) if len(t) >= 400]
    if options.json:
        print(json.dumps(measure(rows, texts, options.texts), indent=1))
        return
    print(f"recall on {len(texts):,} texts")
    for name, n, hard, seen in recall(texts, options.texts):
        print(f"  {name:36} n {n:4}   hard {hard:6.1%}   hard or soft {seen:6.1%}")
    print("false positives")
    if traces:
        print(f"  traces: {on_traces(rows)}")
        print(f"  each rule, (fired, rows): {soft_rates(rows)}")
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
