"""Rules about language, endings, log-probabilities, drifting loops and other people's prompts."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.services.text_bench import Row, on_traces, trace_rows
from bench.text import traces_path
from core.text import score_text
from core.text.foreign import MIN_SHARED, Prompts
from core.text.language import language_of, wrong_language
from core.text.logprobs import logprob_rules
from tests.core.text_samples import CHINESE, CODE, GERMAN, JAPANESE, PROSE, TABLE

FRENCH = (
    "Le serveur répond lentement quand la mémoire est pleine. Nous avons mesuré le temps de réponse pendant une semaine, "
    "et les résultats sont clairs : plus il y a de requêtes en attente, plus la première réponse est longue pour tous."
)
SPANISH = (
    "El servidor responde con lentitud cuando la memoria está llena. Hemos medido el tiempo de respuesta durante una "
    "semana y los resultados son claros: cuantas más peticiones hay en espera, más tarda la primera respuesta."
)
RUSSIAN = (
    "Сервер отвечает медленно, когда память заполнена. Мы измеряли время ответа в течение недели, и результаты ясны: "
    "чем больше запросов ожидает, тем дольше первый ответ для всех пользователей. Это было видно на каждом из графиков."
)
ITALIAN = (
    "Il server risponde lentamente quando la memoria è piena. Abbiamo misurato il tempo di risposta per una settimana "
    "e i risultati sono chiari: più richieste sono in attesa, più la prima risposta è lenta per tutti gli utenti."
)


@pytest.mark.parametrize(
    ("text", "language"),
    [(PROSE, "en"), (GERMAN, "de"), (FRENCH, "fr"), (SPANISH, "es"), (ITALIAN, "it"), (RUSSIAN, "ru"), (JAPANESE, "ja"),
     (CHINESE, "zh"), (TABLE, ""), ("yes", ""), ("", ""), ("12 + 30 = 42 " * 20, "")],
)  # fmt: skip
def test_a_language_is_told_by_its_commonest_words_or_not_at_all(text: str, language: str) -> None:
    assert language_of(text) == language


def test_code_and_reasoning_do_not_count_for_the_language() -> None:
    assert language_of(f"<think>{PROSE}</think>{GERMAN}") == "de"
    assert language_of(GERMAN + f"\n```\n{PROSE}\n```\n") == "de"


def test_an_answer_in_another_language_than_the_question_is_a_rate() -> None:
    assert score_text(PROSE, prompt=GERMAN).rules == {"wrong_language": 1.0}
    assert score_text(GERMAN, prompt=GERMAN).rules == {}
    assert score_text(GERMAN, prompt="Übersetze ins Deutsche: " + PROSE).rules == {}
    assert score_text(JAPANESE, prompt="Please answer in Japanese. " + PROSE).rules == {}
    assert not wrong_language("en", "Was ist das?")
    assert not wrong_language("", GERMAN)


def test_the_end_of_an_answer_is_judged_only_where_the_engine_says_it_stopped() -> None:
    assert score_text(PROSE, finish_reason="length").rules == {"truncated": 1.0}
    assert score_text(PROSE, finish_reason="length").verdict == "clean"
    cut = (SECRET + " " + PROSE).replace("\n\n", " ").rsplit(" ", 6)[0]
    open_code = CODE[: CODE.rindex("```")].rstrip()
    assert score_text(cut, finish_reason="stop").rules == {"cut_off": 1.0}
    assert score_text(open_code, finish_reason="stop").rules == {"fence_open": 1.0}
    assert score_text("<think>" + PROSE, finish_reason="stop").rules == {"reasoning_open": 1.0}
    for text in (PROSE, CODE, GERMAN, JAPANESE):
        assert score_text(text, finish_reason="stop").rules == {}
    for text in (open_code, cut):
        assert score_text(text, finish_reason="abort").rules == {}


def test_log_probabilities_tell_noise_loops_and_missing_numbers() -> None:
    rng = random.Random(1)
    ordinary = [-rng.expovariate(2.0) for _ in range(400)]
    assert logprob_rules(ordinary)[0] == {}
    assert "logprob_low" in logprob_rules([-11.5 + rng.gauss(0, 1) for _ in range(64)])[0]
    assert "logprob_flat" in logprob_rules(ordinary[:50] + [-1e-6] * 200)[0]
    assert logprob_rules([None] * 8 + [-0.5] * 8)[0] == {"logprob_nan": 0.5}
    assert logprob_rules([math.nan] * 20)[0] == {"logprob_nan": 1.0}
    assert logprob_rules([-0.1, -9999.0] * 50)[0] == {"logprob_nan": 0.5}
    assert logprob_rules([]) == ({}, {})
    found = score_text(PROSE, logprobs=[-12.0] * 50)
    assert (found.verdict, found.features["logprob_mean"]) == ("soft", -12.0)


def test_a_loop_that_drifts_is_a_rate() -> None:
    rng = random.Random(2)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    text = PROSE + " ".join(
        f"The number of the unit called {rng.choice(words)} is the value of the field {rng.choice(words)} of the record."
        for _ in range(30)
    )
    assert "loop_drift" in score_text(text).rules
    assert score_text(text).verdict == "soft"
    assert "loop_drift" not in score_text(PROSE * 2).rules


def test_special_tokens_that_the_prompt_names_are_no_leak() -> None:
    text = "The template ends a turn with <|im_end|> and starts one with <|im_start|>."
    assert "token_leak" in score_text(text).rules
    assert "token_leak" not in score_text(text, prompt="What does <|im_end|> mean?").rules


SECRET = (
    "Our quarterly report says that the northern warehouse lost forty-one pallets of ceramic tiles in March, and that "
    "the insurer refuses to pay because the night watchman had left the gate open. Draft a letter to the insurer that "
    "disputes this."
)


def test_an_output_that_repeats_somebody_elses_prompt_is_noticed() -> None:
    prompts = Prompts()
    assert prompts.shared("Dear insurer ...", SECRET, "session-a", 1000.0) == 0
    leaked = "Sure! " + SECRET + " Is there anything else?"
    assert prompts.shared(leaked, "How do I boil an egg?" * 5, "session-b", 1100.0) >= MIN_SHARED
    # its own session may quote it, long after nobody else's does, and what two sessions asked is nobody's secret
    assert prompts.shared(leaked, "And shorter, please?" * 5, "session-a", 1200.0) == 0
    assert prompts.shared(leaked, "How do I boil an egg?" * 5, "session-b", 3000.0) == 0
    common = Prompts()
    for owner in ("a", "b"):
        common.shared("", SECRET, owner, 1000.0)
    assert common.shared(leaked, "x" * 70, "c", 1001.0) == 0


def test_remembered_prompts_stay_bounded() -> None:
    prompts = Prompts(limit=500)
    rng = random.Random(5)
    for i in range(200):
        prompts.shared("", " ".join(str(rng.random()) for _ in range(40)), f"s{i}", 1000.0 + i)
    assert len(prompts._owners) <= 500


@given(st.text(max_size=600), st.text(max_size=600))
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_the_rules_about_prompts(output: str, prompt: str) -> None:
    Prompts().shared(output, prompt, "a", 0.0)
    language_of(output)
    wrong_language("en", prompt)


@pytest.mark.shared
def test_natural_outputs_labelled_by_hand_are_judged_as_measured(shared: Path) -> None:
    rows: list[Row] = [r for r in trace_rows(traces_path(shared)) if r.hand]
    if not rows:
        pytest.skip("the traces are not here")
    found = on_traces(rows)
    assert found["natural"]["degenerate"] == 153
    assert found["natural"]["hard"] >= 0.77
    assert found["natural"]["hard_or_soft"] >= 0.99
    assert found["natural"]["doubtful_hard"] == 0
    assert found["false_positives_per_10k"] == 0
