"""How fast a scrape's text becomes numbers, beside the official parser, in one run.

    python -m bench.parse [BODY.prom] [--rounds 200] [--moving 0.35]

Every round is another scrape of the same target: a share of the counts, sums and gauges has moved since the round before (fixed
seed). Printed are milliseconds per body (median) and ratios: the official parser; a first parse; a repeated scrape through the
remembered prefixes with every series kept, and with only those that a plan maps; and a scrape in which nothing moved.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from prometheus_client.parser import text_string_to_metric_families

from bench.bodies import load_pair
from collectors.dictionary import load_dictionary
from collectors.exposition import PrefixCache, parse
from collectors.mapping import plan
from core.classes import ClassRules
from core.frames import Target


def scrapes(text: str, n: int, moving: float, seed: int = 7) -> Iterator[bytes]:
    """``n`` successive bodies of one target, in each of which the share ``moving`` of the samples has grown."""
    rng = Random(seed)
    lines = text.rstrip("\n").split("\n")
    samples = [
        i for i, x in enumerate(lines) if x and not x.startswith("#") and "_created" not in x and " " in x
    ]
    for _ in range(n):
        for i in rng.sample(samples, int(len(samples) * moving)):
            head, _, value = lines[i].rpartition(" ")
            lines[i] = f"{head} {float(value) + rng.randrange(1, 9)}"
        yield ("\n".join(lines) + "\n").encode()


def median_ms(work: Callable[[bytes], object], bodies: list[bytes]) -> float:
    """Median CPU milliseconds of ``work`` over the bodies."""
    out = []
    for body in bodies:
        began = time.process_time()
        work(body)
        out.append(time.process_time() - began)
    return 1000 * statistics.median(out)


def measure(text: str, rounds: int = 200, moving: float = 0.35) -> dict[str, float]:
    """Milliseconds per body by way of reading, and the ratios of the official parser to each."""
    bodies = list(scrapes(text, rounds, moving))
    few = bodies[: max(rounds // 8, 5)]
    kept, mapped = PrefixCache(), PrefixCache()
    kept.scrape(bodies[0])
    found = mapped.scrape(bodies[0])
    decided = plan(found.series, load_dictionary(), ClassRules(), Target("bench"))
    mapped.keep(decided.used)
    mapped.scrape(bodies[0])
    ms = {
        "official": median_ms(
            lambda b: [s for f in text_string_to_metric_families(b.decode()) for s in f.samples], few
        ),
        "first parse": median_ms(parse, few),
        "repeated": median_ms(kept.scrape, bodies),
        "repeated, mapped only": median_ms(mapped.scrape, bodies),
        "repeated, mapped, to columns": median_ms(lambda b: decided.apply(mapped.scrape(b).values), bodies),
        "nothing moved": median_ms(kept.scrape, [bodies[-1]] * rounds),
    }
    return ms | {f"ratio: {k}": ms["official"] / v for k, v in ms.items() if k != "official"}


def main() -> None:
    """Print the table, or JSON with ``--json``."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "body", type=Path, nargs="?", help="default: a capture of a live vLLM, else a generated body"
    )
    arguments.add_argument("--rounds", type=int, default=200)
    arguments.add_argument("--moving", type=float, default=0.35)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    pair = load_pair()
    generated = (f"{one} {pair.later[one]!r}" if one in pair.later else one for one in pair.lines)
    text = given.body.read_text() if given.body else "\n".join(generated) + "\n"
    name = given.body.name if given.body else pair.origin
    result = measure(text, given.rounds, given.moving)
    if given.json:
        print(json.dumps(result))
        return
    samples = len(parse(text).series)
    print(f"{name}: {len(text):,} bytes, {samples:,} series, {given.moving:.0%} moving between scrapes")
    for name in (k for k in result if not k.startswith("ratio")):
        ratio = result.get(f"ratio: {name}")
        print(f"{name:30s} {result[name]:8.3f} ms" + (f"  {ratio:6.1f} times as fast" if ratio else ""))


if __name__ == "__main__":
    main()
