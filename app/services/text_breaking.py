"""Ordinary texts broken in known ways and doses, with a fixed seed: what the recall of the text rules is measured on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

SCRIPTS = ("жщэюяц", "αβγδεζ", "あいうえお", "가나다라마", "กขคงจ", "ابتثج", "अआइईउ", "אבגדה", "დევზთ")
RARE_POOL = "龘靐鱺麤齾龗钃灪爩虋讟驫纞齉鼺麷齼鸜龖厵"
COMMON_CJK = "的一是在不了有和人这中大为上个国我以要他"

Breaker = Callable[[str, random.Random], str]


def loop(tokens: int, total: int) -> Breaker:
    """After a third of the text, ``tokens`` of its words again and again until ``total`` words."""

    def make(text: str, rng: random.Random) -> str:
        words = text.split()
        at = rng.randrange(max(1, len(words) - tokens))
        unit = words[at : at + tokens]
        return text[: len(text) // 3] + " ".join((unit * (total // max(1, len(unit)) + 1))[:total])

    return make


def counting(tokens: int, repeats: int) -> Breaker:
    """After a third of the text, a numbered list whose items are all the same."""

    def make(text: str, rng: random.Random) -> str:
        words = [w for w in text.split() if not any(c.isdigit() for c in w)]
        at = rng.randrange(max(1, len(words) - tokens))
        unit = " ".join(words[at : at + tokens])
        return text[: len(text) // 3] + " ".join(f"{i}. {unit}" for i in range(1, repeats + 1))

    return make


def run(length: int) -> Breaker:
    """After a third of the text, one character to the end."""
    return lambda text, rng: text[: len(text) // 3] + rng.choice("!G0?a。\ufffd") * length


def insert(alphabet: str, n: int) -> Breaker:
    """``n`` characters of an alphabet at random places."""

    def make(text: str, rng: random.Random) -> str:
        out = list(text)
        for _ in range(n):
            out.insert(rng.randrange(1, len(out)), rng.choice(alphabet))
        return "".join(out)

    return make


def soup(tokens: int) -> Breaker:
    """After a third of the text, short words of random scripts, some glued together."""

    def make(text: str, rng: random.Random) -> str:
        parts = [
            "".join(rng.choice(s) for _ in range(rng.randint(1, 3))) + rng.choice(("", "", " "))
            for s in rng.choices(SCRIPTS, k=tokens)
        ]
        return text[: len(text) // 3] + "".join(parts)

    return make


def mojibake(share: float) -> Breaker:
    """The last ``share`` of the text as UTF-8 read as Latin-1."""

    def make(text: str, rng: random.Random) -> str:
        at = int(len(text) * (1 - share))
        return text[:at] + text[at:].encode("utf-8", "replace").decode("latin-1")

    return make


def quotes(text: str, rng: random.Random) -> str:
    """Curly quotes and dashes read in the wrong code page."""
    for plain, curly in (('"', "“"), ("'", "’"), (" - ", " – ")):
        text = text.replace(plain, curly)
    return text.encode("utf-8", "replace").decode("cp1252", "replace")


def drift(text: str, rng: random.Random) -> str:
    """After a third of the text, one sentence again and again with a word and a number of it changed each time."""
    words = [w for w in text.split() if w.isalpha()] or ["word"]
    unit = (words * 14)[:14]
    out = []
    for i in range(30):
        unit[rng.randrange(len(unit))] = rng.choice(words)
        out.append(f"{' '.join(unit)} {i * 7 % 31}.")
    return text[: len(text) // 3] + " ".join(out)


def fluctuating(text: str, rng: random.Random) -> str:
    """After a third of the text, one phrase for ever, with one word of four changed from repeat to repeat."""
    words = [w for w in text.split() if w.isalpha() and len(w) > 3] or ["word"]
    a = " ".join((words * 9)[:9])
    return text[: len(text) // 3] + " ".join(f"{a} {rng.choice(words)}," for _ in range(40))


def spaces(text: str, rng: random.Random) -> str:
    """After a third of the text, white space to the end."""
    third = text[: len(text) // 3]
    return third + "".join(rng.choice(" \n\t ") for _ in range(2 * len(third) + 64))


def empty(text: str, rng: random.Random) -> str:
    """Nothing, or a line break."""
    return rng.choice(("", "\n", "  "))


def token(text: str, rng: random.Random) -> str:
    """A mark of a chat template somewhere."""
    mark = rng.choice(
        (
            "<|im_end|>",
            "</s>",
            "<|eot_id|>",
            "<end_of_turn>",
            "[/INST]",
            "<|endoftext|>",
            "<pad>",
            "<\uff5cend\u2581of\u2581sentence\uff5c>",
        )
    )
    at = rng.randrange(1, len(text))
    return text[:at] + mark + text[at:]


def switched(text: str, rng: random.Random) -> str:
    """The second half in another script."""
    return text[: len(text) // 2] + "".join(
        rng.choice("ошибка сервер данные модель ответ работает ") for _ in range(len(text) // 2)
    )


KINDS: Mapping[str, tuple[str, Breaker]] = {
    "loop, 2 words, 512 in all": ("latin", loop(2, 512)),
    "loop, 12 words, 512": ("latin", loop(12, 512)),
    "loop, 50 words, 512": ("latin", loop(50, 512)),
    "loop, 50 words, 200": ("latin", loop(50, 200)),
    "loop, 20 words, 80": ("latin", loop(20, 80)),
    "counting loop, 10 words, 20 times": ("latin", counting(10, 20)),
    "drifting loop, a word changes": ("latin", drift),
    "drifting loop, one slot changes": ("latin", fluctuating),
    "white space to the end": ("any", spaces),
    "empty": ("any", empty),
    "leaked special token": ("any", token),
    "second half in another script": ("latin", switched),
    "one character, 64 times": ("any", run(64)),
    "U+FFFD, 2": ("any", insert("\ufffd", 2)),
    "mojibake, all": ("accents", mojibake(1.0)),
    "mojibake, half": ("accents", mojibake(0.5)),
    "mojibake, quotes": ("quotes", quotes),
    "scripts mixed, 10 words": ("latin", soup(10)),
    "scripts mixed, 20 words": ("latin", soup(20)),
    "scripts mixed, 50 words": ("any", soup(50)),
    "rare Han in Latin, 1": ("latin", insert(RARE_POOL, 1)),
    "rare Han in Latin, 3": ("latin", insert(RARE_POOL, 3)),
    "rare Han in Latin, 5": ("latin", insert(RARE_POOL, 5)),
    "rare Han in Japanese, 5": ("japanese", insert(RARE_POOL, 5)),
    "rare Han in Japanese, 10": ("japanese", insert(RARE_POOL, 10)),
    "common Han in Latin, 2": ("latin", insert(COMMON_CJK, 2)),
}
"""Name → (which texts it applies to, how it breaks them)."""


def applies(kind: str, text: str) -> bool:
    """Whether a text is of the sort a corruption is defined for."""
    if kind == "any":
        return True
    kana = sum("\u3041" <= c <= "\u30fa" for c in text)
    if kind == "japanese":
        return kana > 0.2 * len(text)
    if kind == "accents":
        return sum(0xC0 <= ord(c) <= 0x17F for c in text) >= 4
    if kind == "quotes":
        return text.isascii() and text.count('"') + text.count("'") >= 4
    return sum(c.isascii() and c.isalpha() for c in text) > 0.6 * len(text)
