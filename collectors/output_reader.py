"""One sampled output, from the fields of its record to what is stored: placed, scored, its text dropped or struck through and
cut.

``id``, ``ts`` (finish) and ``output`` are what it takes; ``instance``, ``pool``, ``model``, ``workload``, ``session``,
``turn``, ``prompt_tokens``, ``output_tokens``, ``ttft_s``, ``e2e_s``, ``queue_s``, ``cached_tokens``, ``finish_reason``,
``accept_length``, ``accept_rate``, ``release``, ``tenant``, ``class`` and ``cache_source`` are used where given. ``prompt``
(never stored), ``structured`` (true or a JSON schema), ``tool_calls``, ``tools``, ``logprobs`` and ``max_tokens`` make the
scores sharper. ``aborted`` marks what had been written when the client left. ``random`` (false: kept for being suspicious)
and ``weight`` say how it was sampled. ``rules`` and ``features`` instead of ``output`` are scores made elsewhere by
``gustfront score``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collectors.fields import BadRecord, count, instant, number, text
from collectors.labelling import Labelling, Place
from collectors.pseudonyms import Pseudonyms
from collectors.scoring import Scorer, suspicious
from core.classes import parse_matchers
from core.config import Config
from core.records import OutputRecord
from core.redact import Redaction
from core.sampling import fraction
from core.text import TextScore
from core.text.ending import ABORTED

UNSCORED = "unscored"
"""Verdict of a record that came without text and without tool calls: neither good nor bad, not part of any rate."""


class OutputReader:
    """Turns records into what is stored; one instance an intake. Not thread-safe."""

    def __init__(self, labelling: Labelling, names: Pseudonyms, config: Config, source: str = "file") -> None:
        self._labelling, self._names, self._source = labelling, names, source
        options = config.outputs
        self._cap = options.text_cap if options.store_text else None
        self._redact = Redaction(options.redact) if options.store_text else None
        self._never = [parse_matchers(m) for m in options.never]
        self._share = options.random_share
        self._scorer = Scorer()

    def read(self, data: Mapping[str, Any]) -> OutputRecord | None:
        """The record; None where the configuration does not want it; ``BadRecord`` where something is missing or wrong."""
        if self._unwanted(data):
            return None
        id_ = text(data, "id")
        if not id_:
            raise BadRecord("no_id", "has no id", "give every output the id of its request")
        ts = instant(data)
        place = self._labelling.place(data)
        finish = "abort" if data.get("aborted") is True else text(data, "finish_reason")
        output = content(data.get("output"))
        session = self._names.session(text(data, "session"))
        score = self._scorer.score(output, finish, data, session or id_, ts)
        chosen, weight = self._sampled(id_, data)
        if not chosen and self._share < 1 and not suspicious(score):
            return None
        return self._record(data, id_, ts, place, session, finish, score, self._kept(output), chosen, weight)

    def _record(
        self,
        data: Mapping[str, Any],
        id_: str,
        ts: float,
        place: Place,
        session: str,
        finish: str,
        score: TextScore | None,
        kept: str | None,
        chosen: bool,
        weight: float,
    ) -> OutputRecord:
        e2e = number(data, "e2e_s")
        features = {} if score is None else dict(score.features)
        for name in ("accept_rate", "max_tokens"):
            if (value := number(data, name)) is not None:
                features[name] = value
        if finish.lower() in ABORTED:
            features["partial"] = 1.0
        structured = data.get("structured")
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
            session=session,
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
            features=features,
            text=kept,
            random=chosen,
            weight=weight,
            structured=True if data.get("tool_calls") else None if structured is None else bool(structured),
            language="" if score is None else score.language,
            cache_source=text(data, "cache_source"),
            source=text(data, "source") or self._source,
        )

    def _unwanted(self, data: Mapping[str, Any]) -> bool:
        return any(all(m.matches(_Fields(data)) for m in rule) for rule in self._never)

    def _sampled(self, id_: str, data: Mapping[str, Any]) -> tuple[bool, float]:
        """Whether it is part of the random sample, and for how many requests it stands."""
        random, weight = data.get("random", True), number(data, "weight")
        if not isinstance(random, bool):
            raise BadRecord("bad_value", "random is neither true nor false", "write random as true or false")
        if weight is not None and weight < 1:
            raise BadRecord("bad_value", "weight is below 1", "write for how many requests this one stands")
        if not random or fraction(id_) >= self._share:
            return False, 1.0
        return True, (weight or 1.0) / self._share

    def _kept(self, output: str | None) -> str | None:
        if self._cap is None or self._redact is None or output is None:
            return None
        # a secret that the cap would cut in two is struck out first; what is far beyond the cap need not be looked at
        return self._redact(output[: self._cap + 10_000])[: self._cap].replace("\x00", "\ufffd")


class _Fields(dict[str, str]):
    """A record's fields as labels for matchers: text and numbers as text, anything else as absent."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__({k: str(v) for k, v in data.items() if isinstance(v, str | int | float)})


def content(value: Any) -> str | None:
    """The text of an output: a string, or the text parts of a list as chat APIs write it. None if there is none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [p.get("text") if isinstance(p, Mapping) else p for p in value]
        return "".join(p for p in parts if isinstance(p, str))
    raise BadRecord("bad_value", "output is no text", "write output as text")
