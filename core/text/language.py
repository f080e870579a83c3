"""Which language a text is written in, told by its script and its commonest words; and ``wrong_language`` (soft).

Eighteen languages in Latin letters are told apart by the share of their function words among all words; others by script (kana:
Japanese; Han without kana: Chinese; Ukrainian by і, ї, є). A text under 30 words or without a clear winner has no language:
empty. ``wrong_language``: prompt and output both have a clear language, they differ, and the prompt neither names a language
nor asks for a translation nor is itself written in two scripts.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from core.text.scripts import ARABIC, ARMENIAN, CJK, CYRILLIC, GREEK, HANGUL, HEBREW, LATIN, THAI
from core.text.view import View

_WORDS = {
    "en": "the of and to is that for with you this are it not be have from or on as which can your was will if but they",
    "de": "der die und das nicht ist ein eine mit den von zu auf für sich auch dem werden wird oder sie als wenn nach kann",
    "fr": "le les des et est une dans pour pas que qui vous sur avec ce sont par au plus ou cette il être aux du nous",
    "es": "el los las una para que con del por se es como más pero sus este esta son lo al puede ser está también si",
    "pt": "os uma para não com do da em que por mais como são das dos você ser ao pode seu isso também está pela ou é",
    "it": "il che di non per una sono con della è del nel più gli questo anche alla come può dei si le da essere nella",
    "nl": "het een van en de niet voor met zijn op aan worden deze ook maar door naar wordt bij uit kan heeft dat je om",
    "sv": "och att det som är för inte med den av till på kan eller har om ett från du var vid när så ska",
    "da": "og det at er ikke som på til med af for den har kan en de fra et du vil eller der når skal være",
    "no": "og det er ikke som på til med av for den har kan en fra et du vil eller når skal være etter også hvis",
    "fi": "ja on ei että se myös ovat kun voi oli mutta tai joka sen jos niin ole olla tämä kuin mitä ovat voidaan",
    "pl": "nie się jest na do że to jak lub przez dla od może są oraz tego po być które który tym przy jeśli ze tylko",
    "cs": "se na je že nebo pro jako jsou není který které být ale podle při tak může jeho lze pokud také této aby už bylo",
    "ro": "și în nu este cu pentru care mai din sau sunt că la pe fi poate această prin dacă ale fost după lui sa",
    "hu": "és hogy nem az egy van meg ez vagy is csak mint már de ha kell lehet volt ezt azt minden után nincs",
    "tr": "ve bir bu için ile de da olarak daha gibi çok olan var ya değil her ne kadar sonra olduğu veya ama en",
    "id": "yang dan di dengan untuk tidak ini dari dalam adalah pada itu akan atau juga ke dapat oleh sebagai ada bisa anda",
    "vi": "và của là có không được các cho một trong với này những để khi người đã đó từ bạn cũng như về tôi",
}
_BY_WORD: dict[str, list[str]] = {}
for _language, _words in _WORDS.items():
    for _word in dict.fromkeys(_words.split()):
        _BY_WORD.setdefault(_word, []).append(_language)
MIN_WORDS, MIN_SHARE, CLEAR, MIN_LETTERS = 30, 0.10, 1.4, 40
_SAMPLE = 2000
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]+")
_SCRIPTS = {
    GREEK: "el", ARMENIAN: "hy", HEBREW: "he", THAI: "th", HANGUL: "ko",
    10: "hi", 11: "bn", 12: "pa", 13: "gu", 15: "ta", 16: "te", 17: "kn", 18: "ml", 20: "lo", 21: "bo",
    22: "my", 23: "ka", 24: "am",
}  # fmt: skip
_NAMED = re.compile(
    r"\b(?:translat\w*|übersetz\w*|tradu\w*|перевод\w*|перевед\w*|english|german|french|spanish|portuguese|italian|dutch|russian"
    r"|japanese|chinese|korean|arabic|hindi|polish|turkish|vietnamese|swedish|danish|norwegian|finnish|czech|romanian|hungarian"
    r"|indonesian|ukrainian|greek|hebrew|thai|latin|language|multilingual|deutsch\w*|englisch\w*|franz\w*|anglais\w*|allemand\w*"
    r"|fran[çc]ais\w*|espa[ñn]ol\w*|ingl[ée]s\w*|alem[áa]n\w*|inglese|italian[oa]|portugu[êe]s\w*|sprache\w*|langue|idioma|lingua"
    r"|по-\w+ски|английск\w*|язык\w*)\b|日本語|英語|中国語|中文|英文|翻訳|翻译|翻譯|한국어|영어|번역|韓国語|フランス語|ドイツ語|訳",
    re.IGNORECASE,
)


def language_of(text: str) -> str:
    """ISO 639-1 code, or empty where the text is too short or undecided; reasoning before ``</think>`` is left out. ``cyrl``
    and ``arab`` where only the script is clear."""
    if "</think>" in text:
        text = text[text.rfind("</think>") + len("</think>") :]
    if len(text) > _SAMPLE:
        text = text[: _SAMPLE // 2] + " " + text[-_SAMPLE // 2 :]
    if "`" in text or "://" in text:
        text = _CODE.sub(" ", text)
    if text.isascii():
        return _latin(text)
    view = View(text)
    counts = np.bincount(view.scripts, minlength=32)
    counts[0] = 0
    letters = int(counts.sum())
    if letters < MIN_LETTERS:
        return ""
    top = int(counts.argmax())
    if top == LATIN:
        return _latin(text) if counts[LATIN] > 0.6 * letters else _east(view, counts, letters)
    if top == CJK:
        return _east(view, counts, letters)
    if counts[top] < 0.6 * letters:
        return ""
    if top == CYRILLIC:
        return _cyrillic(text)
    if top == ARABIC:
        return "fa" if sum(text.count(c) for c in "پچژگ") > 0.005 * letters else "arab"
    return _SCRIPTS.get(top, "")


def _east(view: View, counts: np.ndarray[tuple[int], np.dtype[np.intp]], letters: int) -> str:
    """Japanese or Chinese, also with many Latin words between."""
    if counts[CJK] < 0.4 * letters or counts[CJK] < MIN_LETTERS:
        return ""
    kana = int(((view.codes >= 0x3041) & (view.codes <= 0x30FA)).sum())
    if kana >= 0.1 * counts[CJK]:
        return "ja"
    return "zh" if kana <= 0.02 * counts[CJK] else ""


def _cyrillic(text: str) -> str:
    ukrainian = sum(text.count(c) for c in "іїєґ")
    russian = sum(text.count(c) for c in "ыэё")
    if ukrainian > 3 and ukrainian > 3 * russian:
        return "uk"
    return "ru" if russian > 3 and russian > 3 * ukrainian else "cyrl"


def _latin(text: str) -> str:
    words = _WORD.findall(text.lower())
    if len(words) < MIN_WORDS:
        return ""
    votes: Counter[str] = Counter()
    for word, n in Counter(words).items():
        for language in _BY_WORD.get(word, ()):
            votes[language] += n
    ranked = votes.most_common(2)
    if not ranked or ranked[0][1] < MIN_SHARE * len(words):
        return ""
    if len(ranked) > 1 and ranked[0][1] < CLEAR * ranked[1][1]:
        return ""
    return ranked[0][0]


def wrong_language(output: str, prompt: str | None) -> bool:
    """Whether an output in language ``output`` answers a prompt that is clearly in another one and gives no reason for it."""
    if not output or not prompt:
        return False
    asked = prompt[-_SAMPLE:]
    if _NAMED.search(asked):
        return False
    language = language_of(asked)
    if (
        not language
        or language == output
        or {language, output} <= {"da", "no"}
        or "cyrl" in (language, output)
    ):
        return False
    if asked.isascii():
        return True
    counts = np.bincount(View(asked).scripts, minlength=32)
    counts[0] = 0
    return bool(counts.max() >= 0.9 * counts.sum()) or {language, output} <= set(_WORDS)
