"""Scores of one record's answer, with what its request says; used by the intake and, where texts must not leave, at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from collectors.fields import BadRecord, number, text
from collectors.messages import tools as read_tools
from core.text import RULES, TextScore, score_text, verdict_of
from core.text.foreign import MIN_SHARED, Prompts

SUSPICIOUS = frozenset(
    {"loop", "loop_drift", "echo", "empty", "whitespace", "mojibake", "cjk_leak", "script_flip", "wrong_language", "foreign_text",
     "token_leak", "rare_han_no_prompt", "repetitive_tail", "tool_json", "tool_name", "logprob_low", "logprob_nan"}
)  # fmt: skip
"""Soft rules for which an output outside the random part is kept, too: somebody will want to read it."""
_REMEMBERED = 8192
_MAX_FEATURES = 64


class Scorer:
    """Scores records; remembers hashes of recent texts and prompts, never a text. Not thread-safe."""

    def __init__(self) -> None:
        self._scores: dict[bytes, TextScore] = {}
        self._prompts = Prompts()

    def score(
        self, output: str | None, finish: str, data: Mapping[str, Any], owner: str, ts: float
    ) -> TextScore | None:
        """The score; None where there is neither text nor tool call nor a score made elsewhere. ``BadRecord``.

        ``owner`` names the session (the request where there is none), for texts that belong to others.
        """
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


def suspicious(score: TextScore | None) -> bool:
    """Whether an output is worth keeping for itself."""
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
