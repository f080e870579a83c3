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
from hashlib import blake2b
from typing import Any

from collectors.fields import BadRecord, count, instant, number, text
from collectors.labelling import Labelling, Place
from collectors.messages import tools as read_tools
from collectors.pseudonyms import Pseudonyms
from core.classes import parse_matchers
from core.config import Config
from core.records import OutputRecord
from core.redact import Redaction
from core.sampling import fraction
from core.text import RULES, TextScore, score_text, verdict_of
from core.text.ending import ABORTED
from core.text.foreign import MIN_SHARED, Prompts

UNSCORED = "unscored"
"""Verdict of a record that came without text and without tool calls: neither good nor bad, not part of any rate."""
SUSPICIOUS = frozenset(
    {"loop", "loop_drift", "echo", "empty", "whitespace", "mojibake", "cjk_leak", "script_flip", "wrong_language",
    "foreign_text",
     "token_leak", "rare_han_no_prompt", "repetitive_tail", "tool_json", "tool_name", "logprob_low", "logprob_nan"}
)  # fmt: skip
"""Soft rules for which an output outside the random part is kept, too: somebody will want to read it."""
_REMEMBERED = 8192
_MAX_FEATURES = 64


class OutputReader:
    """Turns records into what is stored; one instance an intake. Not thread-safe."""

    def __init__(self, labelling: Labelling, names: Pseudonyms, config: Config, source: str = "file") -> None:
        self._labelling, self._names, self._source = labelling, names, source
        options = config.outputs
        self._cap = options.text_cap if options.store_text else None
        self._redact = Redaction(options.redact) if options.store_text else None
        self._never = [parse_matchers(m) for m in options.never]
        self._share = options.random_share
        self._scores: dict[bytes, TextScore] = {}
        self._prompts = Prompts()

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
        score = self._score(output, finish, data, session or id_, ts)
        chosen, weight = self._sampled(id_, data)
        if not chosen and self._share < 1 and not _suspicious(score):
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

    def _score(
        self, output: str | None, finish: str, data: Mapping[str, Any], owner: str, ts: float
    ) -> TextScore | None:
        prompt = data.get("prompt")
        prompt = prompt if isinstance(prompt, str) else None
        structured, calls, tools = (
            data.get("structured"),
            data.get("tool_calls"),
            read_tools(data.get("tools")),
        )
        logprobs = data.get("logprobs")
        if not isinstance(structured, bool | Mapping):
            structured = None
        if not isinstance(calls, list) or not calls:
            calls = None
        if not (isinstance(logprobs, list) and all(v is None or type(v) in (int, float) for v in logprobs)):
            logprobs = None
        if output is None and calls is None:
            return _scored_elsewhere(data)
        if prompt is None and structured is None and calls is None and not logprobs:
            return self._remembered(output or "", finish)
        score = score_text(
            output or "",
            prompt=prompt,
            finish_reason=finish,
            structured=structured,
            tool_calls=calls,
            tools=tools,
            logprobs=logprobs,
        )
        if prompt and output and (n := self._prompts.shared(output, prompt, owner, ts)) >= MIN_SHARED:
            rules = {**score.rules, "foreign_text": float(n)}
            score = TextScore(verdict_of(rules), rules, score.features, score.language)
        return score

    def _remembered(self, output: str, finish: str) -> TextScore:
        """Canaries, health probes and retries repeat themselves: remembered by hash, never by text."""
        raw = f"{finish}\0{output}".encode("utf-8", "surrogatepass")
        key = blake2b(raw, digest_size=16).digest()
        score = self._scores.get(key)
        if score is None:
            score = score_text(output, finish_reason=finish)
            if len(self._scores) >= _REMEMBERED:
                self._scores.clear()
            self._scores[key] = score
        return score


class _Fields(dict[str, str]):
    """A record's fields as labels for matchers: text and numbers as text, anything else as absent."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__({k: str(v) for k, v in data.items() if isinstance(v, str | int | float)})


def _suspicious(score: TextScore | None) -> bool:
    return score is not None and (score.verdict == "hard" or not SUSPICIOUS.isdisjoint(score.rules))


def _scored_elsewhere(data: Mapping[str, Any]) -> TextScore | None:
    """Scores made by ``gustfront score`` at the edge; None where there are none. The verdict is worked out here, not
    believed."""
    rules, features = data.get("rules"), data.get("features")
    if not isinstance(rules, Mapping):
        return None
    if unknown := [name for name in rules if name not in RULES]:
        raise BadRecord(
            "bad_value",
            f"rules names {len(unknown)} unknown rules",
            "score with the same release of Gustfront as the one that stores",
        )
    clean = {name: number(rules, name) for name in rules}
    numbers = {
        k: float(v)
        for k, v in (features.items() if isinstance(features, Mapping) else ())
        if isinstance(k, str)
        and len(k) <= 64
        and isinstance(v, int | float)
        and not isinstance(v, bool)
        and v == v
    }
    kept = {k: 1.0 if v is None else v for k, v in clean.items()}
    return TextScore(
        verdict_of(kept), kept, dict(list(numbers.items())[:_MAX_FEATURES]), text(data, "language")[:8]
    )


def content(value: Any) -> str | None:
    """The text of an output: a string, or the text parts of a list as chat APIs write it. None if there is none."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [p.get("text") if isinstance(p, Mapping) else p for p in value]
        return "".join(p for p in parts if isinstance(p, str))
    raise BadRecord("bad_value", "output is no text", "write output as text")
