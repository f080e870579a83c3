"""The verdict on one output: ``hard`` (degraded), ``soft`` (counts only as a rate) or ``clean``.

``hard`` is a strict union of rules, each of which is wrong about fewer than 1 in 10,000 ordinary outputs (docs/text-rules.md has
formulas and measurements). Everything else is a rate to be held against the deployment's own normal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from core.text.calltext import call_text_rules
from core.text.counting import counting_rules
from core.text.drift import drift_rules
from core.text.encoding import encoding_rules
from core.text.ending import ending_rules
from core.text.guards import (
    asks_for_repetition,
    blob_around,
    hardly_language,
    machine_made,
    repeats_in_prompt,
)
from core.text.language import language_of, wrong_language
from core.text.logprobs import logprob_rules
from core.text.loops import (
    LONG_REPEATS,
    LONG_TOTAL,
    TAIL_SLACK,
    TAIL_TOTAL,
    Grams,
    Loop,
    find_echo,
    find_loop,
    unit_of,
)
from core.text.rarehan import rare_han_rules
from core.text.repetition import tail_rules
from core.text.runs import run_rules
from core.text.scripts import script_rules
from core.text.toolcalls import call_rules, parse_json, schema_faults, strings
from core.text.view import View

Verdict = Literal["clean", "soft", "hard"]

HARD_RULES = frozenset(
    {
        "loop_long",
        "loop_tail",
        "loop_counting",
        "char_run",
        "broken_encoding",
        "script_soup",
        "rare_han",
        "rare_han_glued",
        "rare_han_kana",
    }
)
"""Each of these alone makes an output degraded."""
SOFT_RULES = frozenset(
    {
        "loop",
        "loop_asked",
        "loop_machine",
        "loop_code",
        "loop_drift",
        "echo",
        "list_counting",
        "char_run_plain",
        "char_run_asked",
        "replacement_single",
        "mojibake",
        "cjk_leak",
        "script_flip",
        "rare_han_no_prompt",
        "rare_han_prompted",
        "rare_han_in_han",
        "repetitive_tail",
        "empty",
        "whitespace",
        "cut_off",
        "fence_open",
        "reasoning_open",
        "wrong_language",
        "foreign_text",
        "logprob_low",
        "logprob_flat",
        "logprob_nan",
        "token_leak",
        "not_json",
        "json_schema",
        "tool_json",
        "tool_name",
        "tool_schema",
        "call_text",
    }
)
"""These count only as rates."""
NOTED_RULES = frozenset({"truncated"})
"""These are counted and change no verdict: with a low limit every answer ends there."""
RULES = HARD_RULES | SOFT_RULES | NOTED_RULES

_SPECIAL = re.compile(
    r"<\|(?:im_|end|eot|eom|start|assistant|user|system|channel|message|return|call|fim_|reserved_special|python_tag|tool_|observation)"
    r"|<\uff5c|\u2581of\u2581|\[/?INST\]|<</?SYS>>|</?s>(?!\w)|<(?:unk|pad|eos|bos|mask)>|<(?:start|end)_of_turn>|\[(?:UNK|PAD|EOS)\]"
    r"|<\u0120|\u0120\w+\u0120|<0x[0-9A-F]{2}><0x"
)
"""Marks of chat templates and tokenisers that no reader should see."""
MACHINE_REPEATS = 10
"""A loop of syntax that the text breaks off in needs this many repeats to be hard."""
SIGN_REPEATS = 30
_SPACE_SHARE, _SPACE_MIN, _SPACE_RUN = 0.5, 64, 400
_SPACES = re.compile(r"\s{400,}")


@dataclass(frozen=True, slots=True)
class TextScore:
    """Verdict, the rules that fired with their measure, and features for the analyst (never any of the text)."""

    verdict: Verdict
    rules: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    language: str = ""


def score_text(
    text: str,
    *,
    prompt: str | None = None,
    finish_reason: str = "",
    structured: bool | Mapping[str, Any] | None = None,
    tool_calls: Sequence[Any] | None = None,
    tools: Mapping[str, Any] | None = None,
    logprobs: Sequence[float | None] | None = None,
) -> TextScore:
    """Score one output.

    ``prompt``: the request's text, where known; it excuses loops that were asked for and rare Chinese characters.
    ``structured``: true, or a JSON schema, where the output has to be JSON. ``tool_calls``: calls beside the text; ``tools`` maps
    a name to the JSON schema of its arguments. ``logprobs``: of the output's tokens. Never raises on any string; takes a
    quarter of a millisecond per kilobyte.
    """
    language = ""
    rules: dict[str, float] = {}
    features: dict[str, float] = {"chars": float(len(text))}
    if not text.strip():
        if not tool_calls:
            rules["empty"] = 1.0
            if len(text) >= _SPACE_MIN:
                rules["whitespace"] = float(len(text))
    else:
        view = View.of(text)
        _text_rules(view, prompt, rules, features)
        if not tool_calls:
            rules.update(ending_rules(view, finish_reason))
        if structured is None and not tool_calls:
            found, about = call_text_rules(view.text)
            rules.update(found)
            features.update(about)
        if not structured:
            language = language_of(view.text)
            if wrong_language(language, prompt):
                rules["wrong_language"] = 1.0
    if logprobs:
        found, about = logprob_rules(logprobs)
        rules.update(found)
        features.update(about)
    if structured is not None and structured is not False and text.strip():
        _structured_rules(text, structured, finish_reason, prompt, rules)
    if tool_calls:
        features["calls"] = float(len(tool_calls))
        rules.update(call_rules(tool_calls, tools))
        for call in tool_calls:
            inner = call.get("function", call) if isinstance(call, Mapping) else call
            _inside(inner, prompt, rules)
    return TextScore(verdict_of(rules), rules, features, language)


def verdict_of(rules: Mapping[str, float]) -> Verdict:
    """``hard`` if a hard rule fired, ``soft`` if any did that is more than noted, else ``clean``."""
    if not rules:
        return "clean"
    if any(name in HARD_RULES for name in rules):
        return "hard"
    return "soft" if any(name not in NOTED_RULES for name in rules) else "clean"


def _text_rules(view: View, prompt: str | None, rules: dict[str, float], features: dict[str, float]) -> None:
    grams = Grams(view.text, view.codes)
    _loop_rules(view, grams, prompt, rules, features)
    run, about = run_rules(view)
    if "char_run" in run and asks_for_repetition(prompt):
        run["char_run_asked"] = run.pop("char_run")
    rules.update(run)
    features.update(about)
    for found, more in (
        tail_rules(view, grams.repeated),
        encoding_rules(view),
        script_rules(view),
        rare_han_rules(view, prompt),
    ):
        rules.update(found)
        features.update(more)
    text = view.text
    spaces = len(text) - len(text.rstrip())
    if spaces >= _SPACE_MIN and spaces > _SPACE_SHARE * len(text):
        rules["whitespace"] = float(spaces)
    elif len(text) >= _SPACE_RUN and (gap := _SPACES.search(text)) and not view.in_closed_fence(*gap.span()):
        rules["whitespace"] = float(len(gap.group()))
    if (leaks := len(_SPECIAL.findall(text))) and not (prompt is not None and _SPECIAL.search(prompt)):
        rules["token_leak"] = float(leaks)


def _loop_rules(
    view: View, grams: Grams, prompt: str | None, rules: dict[str, float], features: dict[str, float]
) -> None:
    loop = find_loop(grams)
    if loop is None:
        _loose_loops(view, grams, prompt, rules)
        if not rules and not asks_for_repetition(prompt):
            rules.update(drift_rules(view, grams))
        return
    unit = unit_of(view, loop)
    if sum(c.isalnum() for c in unit) < 0.25 * len(unit):
        # signs and blanks: tables and drawings, or a decoder that ends in "(...)" for ever
        if unit.strip() and loop.repeats >= SIGN_REPEATS and len(view.text) - loop.end <= loop.period:
            rules["loop_machine"] = round(loop.repeats, 2)
        return
    features["loop_period"], features["loop_repeats"] = float(loop.period), round(loop.repeats, 2)
    features["loop_share"] = round(loop.total / len(view.text), 3)
    rules[_loop_name(view, loop, unit, prompt)] = round(loop.repeats, 2)


def _loose_loops(view: View, grams: Grams, prompt: str | None, rules: dict[str, float]) -> None:
    """Loops that count, and texts that end in a second copy of themselves."""
    found = counting_rules(view)
    if "loop_counting" in found and asks_for_repetition(prompt):
        found = {"loop_asked": found["loop_counting"]}
    if not found and (echo := find_echo(grams)) and not view.in_closed_fence(echo.start, echo.end):
        found = {"echo": round(echo.repeats, 2)}
    rules.update(found)


def _loop_name(view: View, loop: Loop, unit: str, prompt: str | None) -> str:
    if asks_for_repetition(prompt) or repeats_in_prompt(unit, prompt):
        return "loop_asked"
    if view.in_closed_fence(loop.start, loop.end):
        return "loop_code"
    long = loop.total >= LONG_TOTAL and loop.repeats >= LONG_REPEATS
    at_end = len(view.text) - loop.end <= TAIL_SLACK
    if not any(c.isspace() for c in unit) and blob_around(
        view.text[max(0, loop.start - 96) : loop.start], view.text[loop.end : loop.end + 96]
    ):
        return "loop_machine"
    if machine_made(unit):
        broken_off = at_end and long and loop.repeats >= MACHINE_REPEATS and not hardly_language(unit)
        return "loop_long" if broken_off else "loop_machine"
    if long:
        return "loop_long"
    return "loop_tail" if at_end and loop.total >= TAIL_TOTAL else "loop"


def _structured_rules(
    text: str,
    structured: bool | Mapping[str, Any],
    finish_reason: str,
    prompt: str | None,
    rules: dict[str, float],
) -> None:
    """JSON was demanded: does it parse, does it fit. A cut by the length limit is told apart by the finish reason."""
    ok, value = parse_json(text)
    if not ok:
        rules["not_json"] = 2.0 if finish_reason == "length" else 1.0
        return
    if isinstance(structured, Mapping) and (faults := schema_faults(value, structured)):
        rules["json_schema"] = float(faults)
    _inside(value, prompt, rules)


def _inside(value: Any, prompt: str | None, rules: dict[str, float]) -> None:
    """Text rules on every string inside a JSON value (arguments given as a string are opened first)."""
    for string in strings(value):
        ok, inner = parse_json(string) if string[:1] in ("{", "[") else (False, None)
        for part in strings(inner) if ok else (string,):
            if len(part) > 1 and part.strip():
                found: dict[str, float] = {}
                _text_rules(View.of(part), prompt, found, {})
                for name, measure in found.items():
                    rules[name] = max(measure, rules.get(name, 0.0))
