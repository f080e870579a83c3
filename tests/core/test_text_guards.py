"""Ordinary texts that must not be hard, and requests that excuse what would be."""

from __future__ import annotations

import random

import pytest

from core.text import score_text
from core.text.guards import asks_for_repetition
from core.text.rarehan import names_east_asia
from core.text.view import View
from tests.core.text_samples import CODE, NAMES, ORDINARY, PROSE


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_text_is_never_hard(name: str) -> None:
    assert score_text(ORDINARY[name]).verdict != "hard"


@pytest.mark.parametrize("name", ["prose", "german", "japanese", "chinese", "code"])
def test_everyday_text_is_clean(name: str) -> None:
    assert score_text(ORDINARY[name]).verdict == "clean"


@pytest.mark.parametrize("name", [n for n in ORDINARY if n != "repeating code block"])
def test_ordinary_text_cut_anywhere_is_never_hard(name: str) -> None:
    text = ORDINARY[name]
    for end in range(len(text) // 3, len(text), max(7, len(text) // 40)):
        assert score_text(text[:end], finish_reason="length").verdict != "hard", end


LINE = "I will not be late for the meeting with the whole team again. "


@pytest.mark.parametrize(
    "prompt",
    [
        "Write 'I will not be late for the meeting' 100 times",
        "Please repeat the sentence over and over",
        "Wiederhole den Satz zehn Mal",
        "Écris-le, répète la phrase 50 fois",
        "次の文を20回繰り返してください",
        "把这句话重复二十遍",
    ],
)
def test_a_loop_that_was_asked_for_is_not_hard(prompt: str) -> None:
    assert score_text(LINE * 20).verdict == "hard"
    score = score_text(LINE * 20, prompt=prompt)
    assert set(score.rules) & {"loop_asked"}
    assert score.verdict == "soft"


def test_a_loop_whose_unit_stands_twice_in_the_prompt_is_not_hard() -> None:
    assert score_text(LINE * 20, prompt=f"Continue the poem: {LINE}{LINE}").verdict == "soft"
    assert score_text(LINE * 20, prompt="Continue the poem.").verdict == "hard"


def test_a_run_that_was_asked_for_is_not_hard() -> None:
    assert score_text("A" * 80, prompt="Print the letter A eighty times").rules.keys() == {"char_run"}
    assert score_text("A" * 80, prompt="Print the letter A 80 times").verdict == "soft"


@pytest.mark.parametrize(
    "prompt", ["How tall is the tower?", "Explain times tables", "The endlessness of space"]
)
def test_other_prompts_ask_for_no_repetition(prompt: str) -> None:
    assert not asks_for_repetition(prompt)
    assert not asks_for_repetition(None)


def test_east_asia_is_named_by_words_or_by_characters() -> None:
    assert names_east_asia("Translate to Japanese")
    assert names_east_asia("was heißt 你好?")
    assert not names_east_asia("Translate to French, café")


def test_closed_code_blocks_excuse_and_open_ones_do_not() -> None:
    body = "the same line once more and again\n" * 30
    assert "loop_code" in score_text(f"See:\n```text\n{body}```\nDone.").rules
    assert score_text(f"See:\n```text\n{body}```\nDone.").verdict == "soft"
    assert score_text(f"See:\n```text\n{body}").verdict == "hard"
    assert View.of(CODE).fences[0][2] is True
    assert View.of("```\nabc").fences == ((0, 7, False),)
    assert View.of("no fence here").fences == ()


def test_half_of_a_stretch_inside_a_block_is_enough() -> None:
    view = View.of("ab\n```\ncode\n```\nend")
    start, end, _ = view.fences[0]
    assert view.in_closed_fence(start, end)
    assert not view.in_closed_fence(end, end + 4)
    assert not view.in_closed_fence(start, start)


@pytest.mark.parametrize(
    "text",
    [
        "name = '" + "a" * 64 + "'",
        "x = looooooooooooooooooooooooooooooooooooooooooooooooooong",
        "0x" + "f" * 64,
        "sum is 0." + "9" * 50 + " which is one",
        '<p class="break">' + "m" * 100 + "</p>",
    ],
)
def test_runs_with_an_everyday_reason_count_only_as_a_rate(text: str) -> None:
    score = score_text(PROSE + "\n" + text + "\nThat is all.")
    assert score.rules.keys() == {"char_run_plain"}


def test_lists_that_count_and_markup_are_not_loops() -> None:
    registers = "".join(f'<reg name="f{i}" bitsize="64" type="ieee_double"/>\n  ' for i in range(32))
    assert score_text(registers).verdict != "hard"
    slides = "".join(f"Slide {i}: {t}\n" for i, t in enumerate(PROSE.split(". ")))
    assert score_text(slides).verdict == "clean"


def test_test_data_and_banners_in_code_are_no_floods() -> None:
    assert (
        score_text('eq(s, "' + "0" * 200 + '")\n\n    def test_de(self):\n        pass\n').verdict != "hard"
    )
    banner = "#define A 1\n\n/*-\n * " + "!" * 64 + "\n * ! the type has to be at least 32 bits\n */\n"
    assert score_text(banner).verdict != "hard"
    assert score_text(PROSE + " " + "!" * 64).verdict == "hard"


def test_dna_names_and_tables_of_any_length_are_not_degenerate() -> None:
    rng = random.Random(3)
    dna = "\n".join("".join(rng.choice("ACGT") for _ in range(60)) for _ in range(60))
    names = "\n".join(f"- {rng.choice(NAMES.splitlines())[4:]}" for _ in range(120))
    ruler = "| Name | Age |\n|" + "-" * 900 + "|" + "-" * 600 + "|\n| Ann | 31 |\n"
    for text in (dna, names, ruler, "| --- " * 400 + "|\n"):
        assert score_text(text).verdict != "hard"
