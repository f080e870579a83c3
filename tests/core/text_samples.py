"""Ordinary texts that are easily taken for broken ones, and broken ones made from them. Written for these tests."""

from __future__ import annotations

import random

PROSE = (
    "The scheduler admits a request when enough cache blocks are free, runs its prefill in chunks and then decodes one token "
    "a step together with all other running requests. When blocks run out it preempts the request that came last, frees what "
    "it held and puts it back to the front of the queue. A prompt that shares a prefix with an earlier one finds those blocks "
    "in the cache and skips their computation, which is why routing a session to the same replica pays off.\n\n"
    "There are three things to look at first: how many tokens of a prompt were found in the cache, how long requests waited, "
    "and how many of them were running at the same time. None of these alone says whether users were harmed."
)
GERMAN = (
    "Die Wärmepumpe entzieht der Außenluft Energie und hebt sie auf ein höheres Temperaturniveau. Größere Geräte müssen "
    "gewartet werden; die Kosten hängen vor allem von der Vorlauftemperatur ab. Übrigens: Ältere Häuser benötigen häufig "
    "größere Heizkörper, weshalb sich eine sorgfältige Prüfung lohnt."
)
JAPANESE = (
    "東京の天気は晴れで、気温は二十五度です。午後には少し雲が広がるかもしれませんが、雨の心配はありません。週末に出かける予定が"
    "あるなら、海の近くの公園がおすすめです。そこでは季節の花が咲き、家族連れで賑わっています。帰りには駅前の店で新鮮な魚を"
    "買うこともできます。"
)
CHINESE = (
    "人工智能正在改变我们的生活方式。许多公司开始使用大型语言模型来回答客户的问题、编写代码和分析数据。然而，这些系统的运行成本"
    "很高，需要大量的显存和算力，因此如何提高推理效率成为一个重要的研究方向。"
)
TABLE = (
    "| Name | Age | City |\n| ---- | --- | ---- |\n"
    + "".join(f"| {n} | {a} | {c} |\n" for n, a, c in [("Ann", 31, "Oslo"), ("Bob", 44, "Rome"), ("Cem", 27, "Izmir")] * 3)
    + "\n"
    + "-" * 300
    + "\n"
    + "=" * 300
    + "\n"
    + "| " + "--- | " * 60
)  # fmt: skip
ASCII_ART = "\n".join(
    [" " * (20 - i) + "/" + "_" * (2 * i) + "\\" for i in range(12)]
    + ["|" + " ." * 20 + " |"] * 12
    + ["#" * 60] * 8
)
MINIFIED = "!function(e,t){" + ";".join(
    f"var a{i}=t[{i}],b{i}=function(e){{return e&&e.c{i}?e.c{i}:null}};e.exports.d{i}=b{i}" for i in range(40)
) + "}(window,{});"  # fmt: skip
NAMES = "\n".join(
    f"{i}. {n}" for i, n in enumerate(
        ["Aino Virtanen", "Łukasz Wójcik", "Søren Østergård", "José Núñez", "王芳", "田中 太郎", "김민수", "Дмитрий Иванов",
         "Γιώργος Παπαδόπουλος", "أحمد حسن", "דוד לוי", "Nguyễn Thị Hằng", "Chukwuemeka Obi", "Priya शर्मा"], 1)
)  # fmt: skip
JSON = (
    "[\n"
    + ",\n".join(
        f'  {{"id": {i}, "name": "item {i}", "price": {i * 3}.5, "tags": ["a", "b"]}}' for i in range(40)
    )
    + "\n]"
)
LOG = "\n".join(
    f"2026-09-21T10:{i // 60:02d}:{i % 60:02d}Z INFO worker[17] heartbeat ok queue=0 lag=0ms"
    for i in range(40)
)
SAME_LOG = "2026-09-21T10:00:00Z WARN worker[17] connection refused, retrying in 5 s\n" * 30
CODE = '''Here is the class:

```python
class Counter:
    """Counts words."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, word: str) -> None:
        self.counts[word] = self.counts.get(word, 0) + 1

    def top(self, n: int) -> list[tuple[str, int]]:
        return sorted(self.counts.items(), key=lambda p: -p[1])[:n]
```

It keeps one entry a word and sorts when asked.'''
REPEATING_CODE = (
    "Use this fixture:\n\n```text\n"
    + "the quick brown fox jumps over the lazy dog\n" * 30
    + "```\n\nThat is all."
)
MATRIX = "The result is\n\n" + "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n" * 24 + "\nas expected."
GOOGOL = "A googol is 1" + "0" * 100 + ", that is ten to the hundredth power."
THIRD = "One third is 0." + "3" * 60 + "... and never ends."
NULL_HASH = (
    "The ref was created, so the old id is "
    + "0" * 40
    + " and the new one is "
    + "4b825dc642cb6eb9a060e54bf8d69288fbee4904."
)
MASKED_KEY = 'Put OPENAI_API_KEY="sk-' + "x" * 48 + '" into your environment and restart the shell.'
BASE64 = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    + "A" * 90
    + "DUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def dna(length: int = 3000, seed: int = 1) -> str:
    """A random DNA sequence in lines of 60 with one long poly-A stretch, as sequencers write it."""
    rng = random.Random(seed)
    bases = "".join(rng.choice("ACGT") for _ in range(length))
    bases = bases[:1500] + "A" * 60 + bases[1500:]
    return ">seq1\n" + "\n".join(bases[i : i + 60] for i in range(0, len(bases), 60))


def dna_one_line(seed: int = 1) -> str:
    """The same without line breaks."""
    return dna(seed=seed).split("\n", 1)[1].replace("\n", "")


ORDINARY = {
    "prose": PROSE,
    "german": GERMAN,
    "japanese": JAPANESE,
    "chinese": CHINESE,
    "markdown table": TABLE,
    "ascii art": ASCII_ART,
    "minified javascript": MINIFIED,
    "names in many scripts": NAMES,
    "json": JSON,
    "log": LOG,
    "identical log lines": SAME_LOG,
    "code": CODE,
    "repeating code block": REPEATING_CODE,
    "matrix": MATRIX,
    "googol": GOOGOL,
    "one third": THIRD,
    "null hash": NULL_HASH,
    "masked key": MASKED_KEY,
    "base64": BASE64,
    "dna": dna(),
    "dna without line breaks": dna_one_line(),
}


def soup(n: int, seed: int = 3) -> str:
    """``n`` letters of a dozen scripts, as a decoder with corrupt state emits them."""
    rng = random.Random(seed)
    alphabet = "жшщэюя" "αβγδε" "あいうえお" "가나다라" "กขคง" "ابتث" "अआइई" "אבגד"  # fmt: skip
    return "".join(rng.choice(alphabet) for _ in range(n))


def sprinkle(text: str, chars: str, n: int, seed: int = 5) -> str:
    """``text`` with ``n`` characters of ``chars`` put at random places inside words."""
    rng = random.Random(seed)
    out = list(text)
    inside = [i for i in range(1, len(text)) if text[i - 1].isalpha() and text[i].isalpha()]
    for i in sorted(rng.sample(inside, n), reverse=True):
        out.insert(i, rng.choice(chars))
    return "".join(out)
