"""What makes an output hard: each kind of corruption, at the doses the rules promise."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.text import HARD_RULES, NOTED_RULES, RULES, SOFT_RULES, score_text, verdict_of
from core.text.loops import Grams, find_loop
from core.text.view import View
from tests.core.text_samples import GERMAN, JAPANESE, PROSE, soup, sprinkle

RARE = "龘靐鱺麤齾龗钃灪爩虋讟驫纞"


def test_an_exact_loop_of_five_repeats_and_five_hundred_characters_is_hard() -> None:
    unit = "and then the request waits for the cache again, because nothing was freed "
    score = score_text(PROSE[:200] + unit * 9)
    assert score.verdict == "hard"
    assert score.rules["loop_long"] == pytest.approx(9, abs=0.5)
    assert score.features["loop_period"] == len(unit)


def test_a_loop_that_the_text_ends_in_is_hard_from_three_repeats() -> None:
    unit = (
        "In summary, the approach balances cost and latency well, and it should be reviewed "
        "whenever the traffic changes, as described in the section above. "
    )
    text = PROSE + unit * 3 + unit[:40]
    assert "loop_tail" in score_text(text).rules
    assert score_text(text).verdict == "hard"


def test_a_short_loop_in_the_middle_counts_only_as_a_rate() -> None:
    unit = "The answer stays the same in this case as well, as shown above. "
    score = score_text(PROSE + unit * 4 + PROSE)
    assert set(score.rules) & {"loop"}
    assert score.verdict == "soft"


@given(
    st.text(st.characters(categories=["Ll"], max_codepoint=0x17F), min_size=3, max_size=120),
    st.integers(5, 12),
    st.integers(0, 300),
)
@settings(max_examples=150, deadline=None)
def test_every_exact_loop_is_found_with_its_period_or_a_divisor(unit: str, repeats: int, lead: int) -> None:
    text = PROSE[:lead] + "|" + unit * repeats
    loop = find_loop(Grams(text, View.of(text).codes))
    if len(unit) * repeats >= 240 and len(set(unit)) > 1:
        assert loop is not None
        assert len(unit) % loop.period == 0
        assert loop.end == len(text)
        assert loop.total >= len(unit) * repeats
    if loop is not None:
        cut = text[loop.start : loop.end]
        assert cut[loop.period :] == cut[: -loop.period]


@pytest.mark.parametrize("char", ["!", "G", "0", "?", "。", "\ufffd", "\u200b", "ど"])
def test_a_run_of_one_character_to_the_end_is_hard(char: str) -> None:
    assert score_text(PROSE[:180] + char * 64).verdict == "hard"


@pytest.mark.parametrize("char", ["-", "=", "_", ".", "*", " ", "─", "#"])
def test_rulers_are_never_hard(char: str) -> None:
    assert score_text(PROSE + "\n" + char * 400 + "\n").verdict != "hard"


def test_replacement_characters_at_two_places_are_hard_and_one_is_a_rate() -> None:
    assert score_text(PROSE + " caf\ufffd").rules == {"replacement_single": 1.0}
    assert score_text(PROSE + " caf\ufffd").verdict == "soft"
    assert score_text(PROSE + " caf\ufffd and \ufffd").verdict == "hard"


def test_a_character_cut_in_two_is_one_place() -> None:
    assert score_text(JAPANESE + "宇\ufffd\ufffd", finish_reason="length").rules == {
        "replacement_single": 1.0,
        "truncated": 1.0,
    }
    assert score_text(JAPANESE + "\ufffd" * 4).verdict == "hard"


def test_utf8_read_as_latin1_or_cp1252_is_hard() -> None:
    assert score_text(GERMAN.encode().decode("latin-1")).verdict == "hard"
    quoted = PROSE.replace("one", "“one”").replace("it", "it’s")
    assert score_text(quoted.encode().decode("cp1252", "replace")).verdict == "hard"


def test_letters_of_many_scripts_glued_together_are_hard() -> None:
    score = score_text(PROSE[:300] + soup(50))
    assert score.verdict == "hard"
    assert "script_soup" in score.rules


def test_rare_characters_inside_latin_words_are_hard_without_a_prompt() -> None:
    score = score_text(sprinkle(PROSE, RARE, 4))
    assert score.rules["rare_han_glued"] == 4.0
    assert score.verdict == "hard"


def test_rare_characters_inside_japanese_are_hard_only_if_three_different_ones_are_unknown_there() -> None:
    assert score_text(sprinkle(JAPANESE, RARE, 10)).verdict == "hard"
    assert score_text(sprinkle(JAPANESE, "龗", 6)).verdict == "soft"


def test_one_rare_character_needs_the_prompt_to_be_hard() -> None:
    text = PROSE + " The sign was 靐 today."
    assert score_text(text).rules == {"rare_han_no_prompt": 1.0}
    assert score_text(text).verdict == "soft"
    assert score_text(text, prompt="How does a scheduler work?").verdict == "hard"
    assert score_text(text, prompt="Explain rare kanji to me").verdict == "soft"
    assert score_text(text, prompt="What does 靐 mean?").verdict == "soft"


def test_a_loop_that_counts_is_hard_where_only_the_counter_changes() -> None:
    looping = PROSE[:100] + "".join(
        f"{i}. Check the logs of the scheduler and restart it. " for i in range(1, 20)
    )
    assert "loop_counting" in score_text(looping).rules
    assert score_text(looping).verdict == "hard"
    dice = "".join(
        f"{i}. Rolling a {i % 6} on one die and a {i % 5} on the other gives {i}. " for i in range(1, 20)
    )
    assert score_text(dice).verdict != "hard"


def test_a_looping_tool_call_written_as_text_is_hard() -> None:
    call = json.dumps(
        [{"function": {"name": "search", "arguments": '{"date": "2024-05-19"}'}, "type": "function"}]
    )
    assert score_text((call + " ") * 12).verdict == "hard"


def test_rules_are_either_hard_or_soft_and_decide_the_verdict() -> None:
    assert not HARD_RULES & SOFT_RULES
    assert not (HARD_RULES | SOFT_RULES) & NOTED_RULES
    assert RULES == HARD_RULES | SOFT_RULES | NOTED_RULES
    assert verdict_of(dict.fromkeys(NOTED_RULES, 1.0)) == "clean"
    assert verdict_of({}) == "clean"
    assert verdict_of({"loop": 3.0}) == "soft"
    assert verdict_of({"loop": 3.0, "char_run": 64.0}) == "hard"


@given(
    st.text(st.characters(codec=None), max_size=400)
    | st.binary(max_size=400).map(lambda b: b.decode("utf-8", "surrogateescape"))
)
@settings(max_examples=300, deadline=None)
def test_any_string_is_scored_and_only_known_rules_fire(text: str) -> None:
    score = score_text(text, prompt=text[:20])
    assert set(score.rules) <= RULES
    assert score.verdict == verdict_of(score.rules)
    assert score.features["chars"] == len(text)
    assert score == score_text(text, prompt=text[:20])


def test_a_very_long_output_is_scored_by_its_beginning_and_its_end() -> None:
    words = " ".join(f"word{i * 7919 % 100_003}" for i in range(200_000))
    assert score_text(words).verdict == "clean"
    assert score_text(words + "!" * 500).verdict == "hard"
    assert score_text("!" * 500 + words).verdict == "hard"
