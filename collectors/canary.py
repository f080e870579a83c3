"""Canaries: the same prompts at low and at high load, temperature 0. Are the answers still right, and still the same?

Low load is one canary at a time, high load is ``high`` of them at once; blocks of both alternate, so that a slow drift of the
fleet hits both alike. The long-run rate is bounded: a burst is followed by a pause. The judgement is in :mod:`core.canaries`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import orjson

from collectors.fields import BadRecord
from collectors.messages import answer
from collectors.outputs import OutputStore, output_reader
from core.canaries import HIGH, LOW, Asked, Judgement, Prompt, judge
from core.classes import ClassRules
from core.config import Config
from core.errors import InputError, SourceError
from core.records import Outcome, OutputRecord
from core.roles import Roles

MAX_ANSWER = 1 << 20
TIMEOUT_SECONDS = 120.0
CLASS = "canary"


class CanaryStore(OutputStore, Protocol):
    """What storing the results needs of the store."""

    def add_outcomes(self, records: Sequence[Outcome]) -> int:
        """Insert outcomes with new ids; how many were new."""


@dataclass(frozen=True, slots=True)
class CanaryPlan:
    """What is asked where: ``rounds`` times each prompt under each load, at most ``rate`` a second in the long run."""

    url: str
    model: str
    prompts: Sequence[Prompt]
    rounds: int = 3
    high: int = 8
    rate: float = 2.0
    max_tokens: int = 64
    key: str = field(default="", repr=False)

    @property
    def endpoint(self) -> str:
        """Where chat completions are asked for."""
        base = self.url.rstrip("/").removesuffix("/chat/completions")
        return f"{base}/chat/completions" if base.endswith("/v1") else f"{base}/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """Every answer and the judgement on them."""

    plan: CanaryPlan
    run: str
    asked: Sequence[Asked]
    judgement: Judgement

    @property
    def worse(self) -> bool:
        """Whether load changes the answers for the worse, beyond chance."""
        return self.judgement.worse

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "run": self.run,
            "model": self.plan.model,
            "prompts": len(self.plan.prompts),
            **self.judgement.as_json(),
        }

    def words(self) -> list[str]:
        """For people."""
        return self.judgement.words()


def built_in() -> list[Prompt]:
    """Short questions whose answers are known: sums, copies, orders, facts."""
    sums = [(17, 25), (48, 36), (123, 88), (250, 375), (64, 64), (91, 19)]
    out = [
        Prompt(f"sum-{a}-{b}", f"What is {a} + {b}? Reply with the number alone.", str(a + b))
        for a, b in sums
    ]
    out += [
        Prompt(f"copy-{word}", f"Repeat this word exactly, and nothing else: {word}", word)
        for word in ("harbour", "quantile", "zeppelin", "marmalade")
    ]
    for town, land in (
        ("Paris", "France"),
        ("Rome", "Italy"),
        ("Tokyo", "Japan"),
        ("Cairo", "Egypt"),
        ("Oslo", "Norway"),
    ):
        out.append(Prompt(f"capital-{town.lower()}", f"Which city is the capital of {land}? One word.", town))
    for letters in ("dbca", "zxyw", "hgfe"):
        asked = f"Sort these letters alphabetically and write them without spaces: {' '.join(letters)}"
        out.append(Prompt(f"sort-{letters}", asked, "".join(sorted(letters))))
    out.append(
        Prompt(
            "json",
            'Reply with this JSON and nothing else: {"status": "ok", "count": 3}',
            '{"status": "ok", "count": 3}',
        )
    )
    out.append(Prompt("story", "Write three sentences about a lighthouse in winter."))
    return out


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts from JSON lines ``{id, prompt, expect?}``; ``InputError`` names the line that is wrong."""
    out: list[Prompt] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read: {error.strerror}", "name a file of JSON lines"
        ) from None
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = orjson.loads(line)
            expect = data.get("expect")
            out.append(Prompt(str(data["id"]), str(data["prompt"]), None if expect is None else str(expect)))
        except (orjson.JSONDecodeError, KeyError, AttributeError, TypeError):
            raise InputError(
                f"{path} line {i}", "is no prompt", 'write {"id": ..., "prompt": ..., "expect": ...}'
            ) from None
    if len({p.id for p in out}) != len(out) or not out:
        raise InputError(str(path), "has no prompts, or one id twice", "give every prompt an id of its own")
    return out


async def replay(plan: CanaryPlan, *, on_progress: Callable[[str], None] | None = None) -> CanaryResult:
    """Ask everything. ``SourceError`` where the endpoint answers nothing at all."""
    begun = time.time()
    run = hashlib.blake2b(f"{begun}{plan.endpoint}{plan.model}".encode(), digest_size=6).hexdigest()
    asked: list[Asked] = []
    headers = {"Authorization": f"Bearer {plan.key}"} if plan.key else {}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, raise_for_status=False) as session:
        for number in range(plan.rounds):
            for load in (LOW, HIGH) if number % 2 == 0 else (HIGH, LOW):
                asked += await _block(session, plan, load, number)
                if on_progress is not None:
                    failed = sum(a.error != "" for a in asked)
                    on_progress(
                        f"round {number + 1} of {plan.rounds}, {load} load: {len(asked)} asked, {failed} failed"
                    )
                if all(a.error for a in asked):
                    raise SourceError(
                        plan.endpoint, "no_answer", f"answers none of {len(asked)} canaries: {asked[0].error}"
                    )
    return CanaryResult(plan, run, asked, judge(asked))


async def _block(session: aiohttp.ClientSession, plan: CanaryPlan, load: str, number: int) -> list[Asked]:
    """Every prompt once, one at a time or in bursts."""
    size = 1 if load == LOW else plan.high
    out: list[Asked] = []
    for i in range(0, len(plan.prompts), size):
        burst = list(plan.prompts[i : i + size])
        # a burst is always full: the last one is filled with prompts whose answers are not counted
        filling = [p for p in plan.prompts if p not in burst][: size - len(burst)]
        due = time.monotonic() + (len(burst) + len(filling)) / plan.rate
        answers = await asyncio.gather(*(_ask(session, plan, p, load, number) for p in (*burst, *filling)))
        out += answers[: len(burst)]
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    return out


async def _ask(
    session: aiohttp.ClientSession, plan: CanaryPlan, prompt: Prompt, load: str, number: int
) -> Asked:
    body = {
        "model": plan.model,
        "messages": [{"role": "user", "content": prompt.text}],
        "temperature": 0,
        "seed": 0,
        "max_tokens": plan.max_tokens,
        "stream": False,
    }
    begun = time.time()
    clock = time.monotonic()
    text, error, finish, tokens = None, "", "", None
    try:
        async with session.post(plan.endpoint, json=body) as response:
            raw = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                raw += chunk
                if len(raw) > MAX_ANSWER:
                    error = "too_long"
                    break
            if response.status != 200:
                error = f"http_{response.status}"
            elif not error:
                data = orjson.loads(bytes(raw))
                found = answer(data)
                text, finish = found.text, found.finish_reason
                usage = data.get("usage") if isinstance(data, dict) else None
                tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
                error = "" if text is not None else "no_text"
    except TimeoutError:
        error = "timeout"
    except orjson.JSONDecodeError:
        error = "not_json"
    except aiohttp.ClientError as problem:
        error = type(problem).__name__
    seconds = time.monotonic() - clock
    return Asked(
        prompt,
        load,
        number,
        begun + seconds,
        seconds,
        text,
        finish,
        tokens if isinstance(tokens, int) else None,
        error,
    )


def stored(
    store: CanaryStore, result: CanaryResult, classes: ClassRules, roles: Roles, config: Config, pool: str
) -> int:
    """Keep answers as outputs outside every rate (``random`` false), and right and same as outcomes; how many outputs were
    new."""
    reader = output_reader(store, classes, roles, config, CLASS)
    outputs: list[OutputRecord] = []
    outcomes: list[Outcome] = []
    same = result.judgement.same_as_reference
    for a in result.asked:
        if a.text is None:
            continue
        key = f"canary-{result.run}-{a.prompt.id}-{a.load}-{a.number}"
        data = {
            "id": key,
            "ts": a.ts,
            "class": CLASS,
            "workload": CLASS,
            "pool": pool,
            "model": result.plan.model,
            "session": f"canary-{result.run}-{a.load}",
            "output": a.text,
            "prompt": a.prompt.text,
            "e2e_s": a.seconds,
            "finish_reason": a.finish_reason,
            "output_tokens": a.tokens,
            "random": False,
        }
        try:
            record = reader.read(data)
        except BadRecord:  # a clock that is a day ahead: nothing of this can be filed
            continue
        if record is not None:
            outputs.append(record)
        if a.prompt.expect is not None:
            outcomes.append(
                Outcome(f"{key}-right", a.ts, "canary_correct", a.right, request=key, source=CLASS)
            )
        if a.prompt.id in same:
            outcomes.append(
                Outcome(
                    f"{key}-same", a.ts, "canary_same", a.text == same[a.prompt.id], request=key, source=CLASS
                )
            )
    store.add_outcomes(outcomes)
    return store.add_outputs(outputs)
