"""What agents write: code, patches, tool calls, tables, shell sessions."""

from __future__ import annotations

import json
from random import Random

NOUNS = (
    "order", "user", "token", "batch", "frame", "ledger", "index", "packet", "shard", "ticket", "vector", "parcel", "sensor",
    "route", "cursor", "window", "bucket", "quota", "digest", "replica", "handler", "schema", "report", "session",
)  # fmt: skip
VERBS = (
    "load", "merge", "parse", "flush", "rotate", "assign", "encode", "fetch", "resolve", "trim", "publish", "collect", "verify",
    "split", "render", "schedule", "normalise", "cache", "release", "append",
)  # fmt: skip
FILES = ("src", "lib", "core", "api", "jobs", "tests", "tools")
TYPES = ("int", "str", "float", "bytes", "dict[str, int]", "list[str]", "bool")


def name(rng: Random) -> str:
    """An identifier."""
    return f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"


def path(rng: Random) -> str:
    """A file of a project."""
    return f"{rng.choice(FILES)}/{rng.choice(NOUNS)}_{rng.choice(NOUNS)}.py"


def code(rng: Random, chars: int) -> str:
    """Python functions that differ from each other."""
    out: list[str] = []
    size = 0
    while size < chars:
        block = _function(rng)
        out.append(block)
        size += len(block)
    return f"```python\n{''.join(out).rstrip()}\n```"


def _function(rng: Random) -> str:
    a, b, kind = rng.choice(NOUNS), rng.choice(NOUNS), rng.choice(TYPES)
    limit, call = rng.randrange(2, 4096), name(rng)
    bodies: tuple[tuple[str, ...], ...] = (
        (f"found = [x for x in {b}s if x.size > {limit}]", f"return len(found) - {rng.randrange(9)}"),
        (
            f"if {b} is None:",
            f"    raise ValueError('no {b}')",
            f"{a} = {call}({b}, limit={limit})",
            f"return {a}",
        ),
        (
            f"total = {rng.randrange(100)}",
            f"for step in range({limit}):",
            f"    total += {call}({b}, step)",
            "return total",
        ),
        (f"with open({b}) as file:", f"    return {call}(file.read({limit}))"),
        (
            "try:",
            f"    return {call}({b})",
            "except KeyError as error:",
            f"    log.warning('{a} {limit}: %s', error)",
            "    return None",
        ),
    )
    lines = [
        f"def {name(rng)}({b}: {kind}) -> {rng.choice(TYPES)}:",
        f'    """{rng.choice(VERBS).title()} the {a} of a {b}."""',
        *(f"    {line}" for line in rng.choice(bodies)),
    ]
    return "\n".join(lines) + "\n\n"


def patch(rng: Random, chars: int) -> str:
    """A unified diff."""
    file = path(rng)
    lines = [f"--- a/{file}", f"+++ b/{file}"]
    size, at = 0, 1
    while size < chars:
        at += rng.randrange(3, 90)
        hunk = [
            f"@@ -{at},4 +{at},5 @@ def {name(rng)}({rng.choice(NOUNS)}):",
            f"     {rng.choice(NOUNS)} = {name(rng)}({rng.randrange(1000)})",
            f"-    return {name(rng)}({rng.choice(NOUNS)})",
            f"+    {rng.choice(NOUNS)} = {name(rng)}({rng.choice(NOUNS)}, {rng.randrange(100)})",
            f"+    return {rng.choice(NOUNS)}",
        ]
        lines += hunk
        size += sum(map(len, hunk))
    return "```diff\n" + "\n".join(lines) + "\n```"


def tool_call(rng: Random) -> str:
    """One call, as the engine's parser would get it."""
    test = f"pytest -q tests/test_{rng.choice(NOUNS)}.py -k {name(rng)}"
    calls: tuple[tuple[str, dict[str, object]], ...] = (
        ("read_file", {"path": path(rng), "offset": rng.randrange(900), "limit": rng.randrange(20, 400)}),
        ("search", {"query": f"{name(rng)} {rng.choice(NOUNS)}", "glob": f"{rng.choice(FILES)}/**/*.py"}),
        ("run", {"command": test, "timeout": rng.randrange(10, 600)}),
        (
            "edit_file",
            {"path": path(rng), "old": f"{name(rng)}()", "new": f"{name(rng)}({rng.randrange(100)})"},
        ),
        ("list_files", {"directory": rng.choice(FILES), "recursive": rng.random() < 0.5}),
    )
    tool, arguments = rng.choice(calls)
    return json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False)


def table(rng: Random, rows: int) -> str:
    """A Markdown table."""
    lines = (
        f"| {rng.choice(NOUNS)} {rng.choice(NOUNS)} | {rng.randrange(10_000)} | {rng.random():.3f} | {name(rng)} |"
        for _ in range(rows)
    )
    return "\n".join(["| item | count | share | note |", "|---|---|---|---|", *lines])


def records(rng: Random, count: int) -> str:
    """JSON as extraction jobs return it."""
    rows = [
        {"id": rng.randrange(10**6), "label": rng.choice(NOUNS), "score": round(rng.random(), 3), "tags": rng.sample(VERBS, 2)}
        for _ in range(count)
    ]  # fmt: skip
    return json.dumps(rows, ensure_ascii=False)
