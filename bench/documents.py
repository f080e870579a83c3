"""Ordinary documents of this machine, in pieces: what a model might quote, and what the hard text rules must leave alone.

    python -m bench.documents [--each 3000] [--json] [--show FILE]

Manual pages by language, Debian's guides and LibreOffice's help as plain text, source code by language, JSON, tables, logs.
Install more of them for a wider test: ``manpages-*``, ``debian-handbook``, ``debian-reference-*``, ``libreoffice-help-*``.
``--show`` writes every piece that was hard, to be read. Pieces have 1,200 characters; at most ``--each`` a sort, chosen with
a fixed seed, so that figures can be repeated.
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import os
import random
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from core.text import score_text

SIZE = 1200
PER_FILE = 40
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]+>", re.DOTALL | re.IGNORECASE)


def sorts() -> dict[str, list[Path]]:
    """Sort → files."""
    man = Path("/usr/share/man")
    out: dict[str, list[Path]] = {"man en": _walk(man, (".gz",), lambda p: p.parent.parent == man)}
    for folder in sorted(man.iterdir()) if man.is_dir() else ():
        if folder.is_dir() and not folder.name.startswith("man"):
            out[f"man {folder.name}"] = _walk(folder, (".gz",))
    help_ = Path("/usr/share/libreoffice/help")
    for folder in sorted(help_.iterdir()) if help_.is_dir() else ():
        if folder.is_dir() and folder.name != "media":
            out[f"office help {folder.name}"] = _walk(folder, (".html",))
    doc = Path("/usr/share/doc")
    out["guides (HTML)"] = _walk(doc, (".html", ".html.gz")) + _walk(
        Path("/usr/share/debian-reference"), (".html",)
    )
    out["readme, changelog"] = _walk(
        doc, (".txt", ".md", ".rst", "README", "changelog.gz", "NEWS.gz", "README.gz", "copyright")
    )
    out["Python"] = _walk(Path(sysconfig.get_path("stdlib")), (".py",))
    out["C headers"] = _walk(Path("/usr/include"), (".h",))
    out["Perl"] = _walk(Path("/usr/share/perl"), (".pm", ".pl")) + _walk(Path("/usr/lib"), (".pm",))
    out["JavaScript"] = _walk(Path("/usr/share"), (".js",), lambda p: ".min." not in p.name)
    out["minified JavaScript"] = _walk(Path("/usr"), (".min.js",)) + _walk(
        Path(sysconfig.get_path("purelib")), (".js",)
    )
    out["JSON"] = _walk(Path("/usr"), (".json",)) + _walk(Path(sysconfig.get_path("purelib")), (".json",))
    out["tables"] = [
        p
        for root in ("/usr/share", "/usr/lib", sysconfig.get_path("purelib"))
        for p in _walk(Path(root), (".csv", ".tsv", ".tab"))
    ]
    out["logs"] = _walk(Path("/var/log"), (".log", ".log.gz", ".log.1"))
    out["SVG, XML"] = _walk(Path("/usr/share"), (".svg", ".xml"))
    out["shell"] = [p for p in _walk(Path("/usr/bin"), ("",)) if _starts(p, b"#!/bin/sh", b"#!/bin/bash")]
    out["SQL"] = _walk(Path("/usr/share"), (".sql",))
    return {name: files for name, files in out.items() if files}


def _walk(root: Path, ends: tuple[str, ...], wanted: object = None) -> list[Path]:
    found = (Path(d) / f for d, _, files in os.walk(root) for f in files if f.endswith(ends))
    return [p for p in found if wanted is None or (callable(wanted) and wanted(p))]


def _starts(path: Path, *heads: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16).startswith(heads)
    except OSError:
        return False


def text_of(path: Path) -> str:
    """A file as text, HTML without its tags; empty if it is none (or not UTF-8)."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(400_000)
        text = raw.decode("utf-8", "strict" if len(raw) < 400_000 else "ignore")
    except (OSError, EOFError, UnicodeDecodeError):
        return ""
    if path.name.endswith((".html", ".html.gz")):
        text = re.sub(r"\n\s*\n+", "\n\n", html.unescape(_TAG.sub("", text)))
    return text


def pieces(files: list[Path], most: int) -> Iterator[tuple[Path, int, str]]:
    """(file, offset, piece), files in random order, at most 40 pieces a file, each text once."""
    files = list(files)
    random.Random(7).shuffle(files)
    seen: set[int] = set()
    n = 0
    for path in files:
        text = text_of(path)
        starts = list(range(0, max(1, len(text) - SIZE // 3), SIZE))
        for at in (
            starts if len(starts) <= PER_FILE else sorted(random.Random(path.name).sample(starts, PER_FILE))
        ):
            piece = text[at : at + SIZE]
            if len(piece) < 300 or hash(piece) in seen:
                continue
            seen.add(hash(piece))
            yield path, at, piece
            n += 1
            if n >= most:
                return


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=3000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--show", type=Path)
    options = parser.parse_args()
    rows, total, hard_total = [], 0, 0
    soft: Counter[str] = Counter()
    shown = options.show.open("w") if options.show else None
    for name, files in sorts().items():
        n, hard = 0, Counter[str]()
        for path, at, piece in pieces(files, options.each):
            score = score_text(piece)
            n += 1
            soft.update(r for r in score.rules)
            if score.verdict == "hard":
                hard["pieces"] += 1
                hard.update(score.rules.keys())
                if shown:
                    print(f"=== {name} {path}:{at} {dict(score.rules)}\n{piece}\n", file=shown)
        if n:
            rows.append({"sort": name, "pieces": n, "hard": hard.pop("pieces", 0), "rules": dict(hard)})
            total, hard_total = total + n, hard_total + rows[-1]["hard"]  # type: ignore[operator]
            print(f"  {name:24} {n:6,} pieces, {rows[-1]['hard']} hard {dict(hard) or ''}", file=sys.stderr)
    summary = {
        "pieces": total,
        "hard": hard_total,
        "hard_per_10k": round(1e4 * hard_total / max(1, total), 2),
        "rules_per_10k": {k: round(1e4 * v / max(1, total), 1) for k, v in soft.most_common()},
        "sorts": rows,
    }
    if options.json:
        print(json.dumps(summary, indent=1))
    else:
        print(f"{hard_total} hard of {total:,} pieces: {summary['hard_per_10k']} per 10,000")


if __name__ == "__main__":
    main()
