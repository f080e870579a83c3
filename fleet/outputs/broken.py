"""How answers break, by the names that the simulation marks requests with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from fleet.outputs.languages import GRAMMARS

SCRIPTS = (
    "жщэюяцфлы",
    "αβγδεζλμ",
    "あいうえおかき",
    "가나다라마바사",
    "กขคงจฉชซ",
    "ابتثجحخ",
    "अआइईउऊक",
    "אבגדהוז",
    "დევზთიკ",
)
FRAGMENTS = (
    "ing", "tion", "_id", "Ġthe", "});", "ello", "pre", "0x",
    "ational", "->", "ber", "sss", "ful", "ou", "::", "quo", "xml", "ized",
)  # fmt: skip
RARE = "龘靐鱺麤齾龗钃灪爩虋讟驫纞齉鼺麷齼鸜龖厵"
SPECIAL = ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|assistant|>", "</s>", "[/INST]")
Breaker = Callable[[str, Random], str]


def _cut(text: str, rng: Random, low: float = 0.1, high: float = 0.6) -> str:
    return text[: int(len(text) * rng.uniform(low, high))]


def loop(text: str, rng: Random) -> str:
    """The same few words, sentence or passage for ever; one in eight counts along."""
    words = text.split() if " " in text else list(text[:400])
    glue = " " if " " in text else ""
    size = min(max(1, len(words) - 1), rng.choice((1, 2, 3, 5, 8, 12, 20, 32)))
    at = rng.randrange(max(1, len(words) - size))
    unit = glue.join(words[at : at + size])
    times = max(6, int(rng.uniform(900, 2200) / max(1, len(unit))))
    if rng.random() < 0.125:
        return _cut(text, rng) + "\n" + "\n".join(f"{i}. {unit}" for i in range(1, times + 1))
    return _cut(text, rng) + glue + glue.join([unit] * times)


def garble(text: str, rng: Random) -> str:
    """Tokens of all scripts and of none, from some point on; one in five stays within ASCII."""
    ascii_only = rng.random() < 0.2
    parts = []
    for _ in range(rng.randrange(50, 260)):
        if ascii_only or rng.random() < 0.3:
            word = rng.choice(FRAGMENTS) + rng.choice(FRAGMENTS)
        else:
            word = "".join(rng.choice(rng.choice(SCRIPTS)) for _ in range(rng.randrange(1, 4)))
        parts.append(word + rng.choice(("", "", " ")))
    return _cut(text, rng, 0.0, 0.5) + "".join(parts)


def foreign(text: str, rng: Random) -> str:
    """The answer goes on in a language nobody asked for, or strange characters come in between."""
    if rng.random() < 0.45:
        out = list(text)
        for _ in range(rng.randrange(2, 7)):
            out.insert(rng.randrange(1, max(2, len(out))), rng.choice(RARE))
        return "".join(out)
    here = "zh" if any("\u4e00" <= c <= "\u9fff" for c in text[:200]) else "ru" if "и" in text[:300] else "en"
    other = rng.choice([k for k in ("zh", "ja", "ru") if k != here])
    return _cut(text, rng, 0.2, 0.6) + GRAMMARS[other].prose(rng, max(80, len(text) // 2))


def flood(text: str, rng: Random) -> str:
    """One character to the end."""
    return _cut(text, rng, 0.0, 0.5) + rng.choice("!!!!G0?。") * rng.randrange(64, 1500)


def mojibake(text: str, rng: Random) -> str:
    """Bytes read in the wrong code page, or replacement characters."""
    at = int(len(text) * rng.choice((0.0, 0.0, 0.5)))
    if rng.random() < 0.3 or text[at:].isascii():
        out = list(text)
        for _ in range(rng.randrange(2, 9)):
            out.insert(rng.randrange(1, max(2, len(out))), "\ufffd")
        return "".join(out)
    return text[:at] + text[at:].encode("utf-8", "replace").decode("latin-1")


def empty(text: str, rng: Random) -> str:
    """Nothing, or white space."""
    return rng.choice(("", "", " ", "\n\n"))


def truncated(text: str, rng: Random) -> str:
    """Broken off in the middle of a word."""
    return text[: max(3, len(text) // 4)]


def bad_tool_call(text: str, rng: Random) -> str:
    """A call that is no JSON any more, or whose arguments are wrong."""
    from fleet.outputs.machine import tool_call

    call = tool_call(rng)
    how = rng.randrange(4)
    if how == 0:
        return call[: rng.randrange(len(call) // 2, len(call) - 1)]
    if how == 1:
        return call + call[len(call) // 2 :]
    if how == 2:
        return call.replace('"', "'")
    return call.replace('"arguments"', '"argments"')


def leak(text: str, rng: Random) -> str:
    """The template's own tokens and what stands behind them."""
    who = rng.choice(("user", "system", "assistant"))
    return f"{_cut(text, rng, 0.3, 0.8)}{rng.choice(SPECIAL)}\n{who}\n{text[: len(text) // 3]}"


BREAKERS: Mapping[str, Breaker] = {
    "loop": loop,
    "garble": garble,
    "foreign": foreign,
    "flood": flood,
    "mojibake": mojibake,
    "empty": empty,
    "truncated": truncated,
    "bad_tool_call": bad_tool_call,
    "leak": leak,
}
