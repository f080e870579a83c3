"""Import of sampled outputs: each is scored when it comes in; its text is dropped unless the configuration keeps it.

Fields of a line: ``id``, ``ts`` (finish) and ``output`` are what it takes; ``instance``, ``pool``, ``model``, ``workload``,
``session``, ``turn``, ``prompt_tokens``, ``output_tokens``, ``ttft_s``, ``e2e_s``, ``queue_s``, ``cached_tokens``,
``finish_reason``, ``accept_length``, ``release``, ``tenant`` and ``class`` are used where given. ``prompt`` (never stored),
``structured`` (true or a JSON schema), ``tool_calls`` and ``tools`` make the scores sharper. An id is imported once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from collectors.fields import BadRecord, count, instant, number, text
from collectors.imports import BadLines, ImportResult, Progress, batches, usable
from collectors.jsonlines import JsonLines
from collectors.labelling import Labelling
from collectors.pseudonyms import Pseudonyms
from core.classes import ClassRules
from core.config import Config
from core.records import OutputRecord, Problem
from core.roles import Roles
from core.text import TextScore, score_text

BATCH = 5000
_REMEMBERED = 8192
UNSCORED = "unscored"
"""Verdict of a record that came without text and without tool calls: neither good nor bad, not part of any rate."""


class OutputStore(Protocol):
    """What the import needs of the store."""

    def get_cursor(self, name: str) -> str | None:
        """The value of a cursor, None if it was never set."""

    def set_cursor(self, name: str, value: str) -> None:
        """Set a cursor."""

    def add_outputs(self, records: Sequence[OutputRecord], *, cursor: tuple[str, str] | None = None) -> int:
        """Insert records with new ids and set the cursor in one transaction; how many were new."""

    def add_problems(self, problems: Sequence[Problem]) -> None:
        """Note problems of the input."""


class OutputReader:
    """Turns the object of one line into a record; one instance an import."""

    def __init__(self, labelling: Labelling, names: Pseudonyms, config: Config) -> None:
        self._labelling, self._names = labelling, names
        self._cap = config.outputs.text_cap if config.outputs.store_text else None
        self._scores: dict[bytes, TextScore] = {}

    def read(self, data: Mapping[str, Any]) -> OutputRecord:
        """The record; ``BadRecord`` where something needed is missing or wrong."""
        id_ = text(data, "id")
        if not id_:
            raise BadRecord("no_id", "has no id", "give every output the id of its request")
        ts = instant(data)
        place = self._labelling.place(data)
        e2e, finish = number(data, "e2e_s"), text(data, "finish_reason")
        output = _content(data.get("output"))
        score = self._score(output, finish, data)
        kept = None if self._cap is None or output is None else output[: self._cap].replace("\x00", "\ufffd")
        return OutputRecord(
            id=id_,
            ts=ts,
            admitted=ts - (e2e or 0.0),
            workload_class=place.class_,
            pool=place.pool,
            replica=place.replica,
            model=place.model,
            release=place.release,
            tenant=place.tenant,
            session=self._names.session(text(data, "session")),
            turn=count(data, "turn"),
            prompt_tokens=count(data, "prompt_tokens"),
            output_tokens=count(data, "output_tokens"),
            cached_tokens=count(data, "cached_tokens"),
            ttft_s=number(data, "ttft_s"),
            e2e_s=e2e,
            queue_s=number(data, "queue_s"),
            accept_length=number(data, "accept_length"),
            finish_reason=finish,
            verdict=UNSCORED if score is None else score.verdict,
            rules={} if score is None else score.rules,
            features={} if score is None else score.features,
            text=kept,
        )

    def _score(self, output: str | None, finish: str, data: Mapping[str, Any]) -> TextScore | None:
        prompt = data.get("prompt")
        prompt = prompt if isinstance(prompt, str) else None
        structured, calls, tools = data.get("structured"), data.get("tool_calls"), _tools(data.get("tools"))
        if not isinstance(structured, bool | Mapping):
            structured = None
        if not isinstance(calls, list) or not calls:
            calls = None
        if output is None and calls is None:
            return None
        if prompt is not None or structured is not None or calls is not None:
            return score_text(
                output or "",
                prompt=prompt,
                finish_reason=finish,
                structured=structured,
                tool_calls=calls,
                tools=tools,
            )
        # canaries, health probes and retries repeat themselves: remembered by hash, never by text
        key = blake2b((output or "").encode("utf-8", "surrogatepass"), digest_size=16).digest()
        score = self._scores.get(key)
        if score is None:
            score = score_text(output or "", finish_reason=finish)
            if len(self._scores) >= _REMEMBERED:
                self._scores.clear()
            self._scores[key] = score
        return score


def import_outputs(
    store: OutputStore,
    path: str | Path,
    classes: ClassRules,
    roles: Roles,
    *,
    config: Config,
    progress: Progress | None = None,
) -> ImportResult:
    """Import a file of JSON lines (plain, .gz, .zst). Repeating it adds nothing; a file that grew goes on where it stopped.

    Lines that cannot be used are skipped and become problems; ``InputError`` if the file is missing or its compression is broken
    (what came before the break is kept).
    """
    file = JsonLines(path)
    result, bad = ImportResult(str(file.path)), BadLines(file.path, "outputs")
    names = Pseudonyms.of(store)
    reader = OutputReader(Labelling(classes, roles, config, names), names, config)
    cursor, start = file.resume(store, "outputs")
    result.resumed_at = start.line
    try:
        for batch in batches(file.lines(start), BATCH, file, progress, "outputs"):
            records: list[OutputRecord] = []
            after = None
            for line in batch:
                data = usable(line, bad, result)
                if data is not None:
                    try:
                        records.append(reader.read(data))
                    except BadRecord as error:
                        result.bad += 1
                        bad.add(line.number, error)
                if line.complete or data is not None:
                    after = line
            done = (cursor, after.position().to_json()) if after is not None and cursor else None
            inserted = store.add_outputs(records, cursor=done)
            result.imported += inserted
            result.known += len(records) - inserted
            for r in records:
                result.saw(r.ts)
                result.verdicts[r.verdict] = result.verdicts.get(r.verdict, 0) + 1
    finally:
        result.problems = bad.problems(time.time())
        if result.problems:
            store.add_problems(result.problems)
    return result


def _content(value: Any) -> str | None:
    """The text of an output: a string, or the text parts of a list as chat APIs write it. None if there is none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [p.get("text") if isinstance(p, Mapping) else p for p in value]
        return "".join(p for p in parts if isinstance(p, str))
    raise BadRecord("bad_value", "output is no text", "write output as text")


def _tools(value: Any) -> Mapping[str, Any] | None:
    """Name → schema of the arguments, from a mapping or from a list as chat APIs write it."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list):
        return None
    out: dict[str, Any] = {}
    for tool in value:
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            out[inner["name"]] = inner.get("parameters") or {}
    return out or None
