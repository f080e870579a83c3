"""Commands about sampled outputs: scoring them where they are, erasing them, replaying canaries."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import orjson
import typer

from app.commands.context import command, note_act, open_store, plain, print_json, settings, stderr, warn
from core.errors import ConfigError, InputError
from core.records import Event

if TYPE_CHECKING:
    from collectors.canary import CanaryResult

JsonOption = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout.")]
STDIN = "-"


@command
def score(
    file: Annotated[
        str, typer.Argument(help="JSON lines (.gz and .zst are read as they are); - reads from a pipe.")
    ] = STDIN,
    format_name: Annotated[
        str, typer.Option("--format", help="gustfront, litellm, langfuse, phoenix, openai, otel, or auto.")
    ] = "auto",
    share: Annotated[float, typer.Option(help="Share of the outputs that is the random part, 0 to 1.")] = 1.0,
    reservoir: Annotated[
        int | None, typer.Option(help="Instead of a share: so many random outputs a window and class.")
    ] = None,
    window: Annotated[str, typer.Option(help="Length of a window of the reservoir.")] = "60s",
) -> None:
    """Score outputs where they are: JSON lines in, JSON lines with scores and without any text out, for import-outputs or the
    API."""
    from collectors.edge import Edge, in_windows
    from collectors.fields import BadRecord
    from collectors.translate import Translator, check_format
    from core.times import parse_duration

    if not 0 < share <= 1:
        raise ConfigError("--share", "is not between 0 and 1", "write 0.1 for every tenth output", share)
    if reservoir is not None and reservoir < 1:
        raise ConfigError(
            "--reservoir", "is below 1", "write how many random outputs to keep a window", reservoir
        )
    seconds = parse_duration(window, "--window")
    edge, translate = Edge(share), Translator(check_format(format_name))
    seen = bad = good = 0
    why = ""

    def refuse(reason: str) -> None:
        nonlocal bad, why
        bad, why = bad + 1, why or reason

    def records() -> Iterator[dict[str, Any]]:
        nonlocal seen
        for raw in _lines(file):
            try:
                data = orjson.loads(raw)
            except orjson.JSONDecodeError:
                data = None
            if not isinstance(data, dict):
                refuse("is no JSON object")
                continue
            for item in translate(data):
                seen += 1
                yield dict(item)

    def tried(one: Any) -> Iterator[Any]:
        nonlocal good
        for item in records():
            try:
                found = one(item)
            except BadRecord as error:
                refuse(error.what)
            else:
                good += 1
                if found is not None:
                    yield found

    made = tried(edge) if reservoir is None else in_windows(tried(edge.scored), reservoir, seconds)
    written = 0
    for out in made:
        sys.stdout.buffer.write(orjson.dumps(out) + b"\n")
        written += 1
        if reservoir is not None or file == STDIN:
            sys.stdout.buffer.flush()
    sys.stdout.buffer.flush()
    stderr.print(
        plain(f"{seen:,} outputs scored, {written:,} written, {bad:,} could not be used"),
        soft_wrap=True,
    )
    if bad:
        warn(f"the first of these {why}")
        if not good:
            raise InputError(file, "not one record could be used", why)


def _lines(file: str) -> Iterator[bytes]:
    """Lines of a file or of a pipe, blank ones left out."""
    if file == STDIN:
        source: BinaryIO = sys.stdin.buffer
        yield from (line for line in source if line.strip())
        return
    from collectors.jsonlines import JsonLines

    for line in JsonLines(Path(file)).lines():
        yield line.data if line.data is not None else b"too long"


@command
def erase(
    tenant: Annotated[str, typer.Option(help="Everything of this tenant, by its name.")] = "",
    session: Annotated[str, typer.Option(help="Everything of this session, by its name.")] = "",
    request: Annotated[list[str] | None, typer.Option(help="These requests, by id; may be repeated.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Erase sampled outputs and outcomes of a tenant, a session or requests. That it was done is recorded, not whose they
    were."""
    from collectors.pseudonyms import Pseudonyms

    if not tenant and not session and not request:
        raise ConfigError("erase", "does not say whose", "give --tenant, --session or --request")
    config = settings.load()
    with open_store(config) as store:
        names = Pseudonyms.of(store)
        outputs = outcomes = 0
        # both forms: a person may copy the pseudonym from a screen
        for kind, name, hidden in (
            ("tenant", tenant, names.tenant(tenant)),
            ("session", session, names.session(session)),
        ):
            for value in dict.fromkeys((name, hidden)) if name else ():
                done = store.erase(**{kind: value})
                outputs, outcomes = outputs + done[0], outcomes + done[1]
        if request:
            done = store.erase(ids=request)
            outputs, outcomes = outputs + done[0], outcomes + done[1]
        note_act(store, "erase", outputs=outputs, outcomes=outcomes)  # not whose they were
        store.add_events(
            [
                Event(
                    ts=time.time(),
                    kind="erased",
                    text=f"{outputs} outputs and {outcomes} outcomes were erased on request",
                )
            ]
        )
    if as_json:
        print_json({"outputs": outputs, "outcomes": outcomes})
    else:
        stderr.print(plain(f"{outputs:,} outputs and {outcomes:,} outcomes erased"), soft_wrap=True)


@command
def canary(
    url: Annotated[str, typer.Argument(help="OpenAI-compatible endpoint, with or without /v1.")],
    model: Annotated[str, typer.Option(help="Model to ask.")],
    prompts: Annotated[
        Path | None,
        typer.Option(help="JSON lines {id, prompt, expect?}; else a built-in set whose answers are known."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="Times that each prompt is asked, under each load.")
    ] = 3,
    high: Annotated[
        int, typer.Option(min=2, max=64, help="Canaries at once under high load; low load is one at a time.")
    ] = 8,
    rate: Annotated[float, typer.Option(help="At most so many canaries a second.")] = 2.0,
    max_tokens: Annotated[int, typer.Option(min=1, max=4096, help="Length limit of an answer.")] = 64,
    key: Annotated[
        str, typer.Option(envvar="GUSTFRONT_CANARY_KEY", help="Bearer token of the endpoint.")
    ] = "",
    pool: Annotated[str, typer.Option(help="Pool that the answers are filed under.")] = "canary",
    store_results: Annotated[
        bool, typer.Option("--store/--no-store", help="Keep the results in the database.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Replay prompts at low and at high load, temperature 0: are the answers still right, and still the same? Exit code 1 if
    not."""
    import asyncio

    from collectors.canary import CanaryPlan, built_in, read_prompts, replay, stored

    if not 0 < rate <= 100:
        raise ConfigError("--rate", "is not between 0 and 100 a second", "write 2 for two a second", rate)
    plan = CanaryPlan(
        url=url,
        model=model,
        prompts=built_in() if prompts is None else read_prompts(prompts),
        rounds=rounds,
        high=high,
        rate=rate,
        max_tokens=max_tokens,
        key=key,
    )
    result = asyncio.run(replay(plan, on_progress=None if as_json else _say))
    if store_results:
        from core.classes import ClassRules
        from core.roles import Roles

        config = settings.load()
        with open_store(config) as store:
            stored(
                store,
                result,
                ClassRules.from_config(config.classes),
                Roles.from_config(config.roles),
                config,
                pool,
            )
    if as_json:
        print_json(result.as_json())
    else:
        _show(result)
    if result.worse:
        raise typer.Exit(1)


def _say(text: str) -> None:
    stderr.print(plain(text), soft_wrap=True)


def _show(result: CanaryResult) -> None:
    for line in result.words():
        stderr.print(plain(line), soft_wrap=True)
