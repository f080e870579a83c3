"""Answers of the simulated models: ordinary ones look ordinary, broken ones are broken as marked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from core.text import score_text
from fleet.model import Attempt, Finish
from fleet.outputs.broken import BREAKERS
from fleet.outputs.files import Rolling, Sampler, answer, attempt, line
from fleet.outputs.languages import GRAMMARS
from fleet.outputs.writer import Writer
from tests.conftest import shared_folder
from tests.fleet.replicas import finish, pool, replica

WORK = ("chat", "chat", "coding-agent", "batch")


def texts(n: int, corrupt: str = "", tokens: int = 0) -> list[str]:
    rng, writer = Random(corrupt or "clean"), Writer(5)
    return [writer.text(request(rng, i, corrupt, tokens)) for i in range(n)]


def request(rng: Random, i: int, corrupt: str, tokens: int) -> Finish:
    length = tokens or int(min(4000, rng.lognormvariate(5.1, 0.9))) + 1
    return finish(i, workload=rng.choice(WORK), output_tokens=length, corrupt=corrupt, session=f"s{i // 3}")


def verdicts(many: list[str]) -> Counter[str]:
    return Counter(score_text(t).verdict for t in many)


def test_ordinary_answers_are_not_called_broken() -> None:
    """0 of 4,000: at one in a thousand that would happen once in 55 tries."""
    found = verdicts(texts(4000))
    assert found["hard"] == 0
    assert found["soft"] <= 20


@pytest.mark.parametrize(
    ("kind", "hard"), [("loop", 0.85), ("flood", 0.99), ("mojibake", 0.9), ("garble", 0.65), ("foreign", 0.2)]
)
def test_broken_answers_are_found_as_often_as_the_rules_can(kind: str, hard: float) -> None:
    """Garbage within ASCII and flips to another language are beyond rules without a model."""
    found = verdicts(texts(200, kind, 700 if kind in ("loop", "flood") else 250))
    assert found["hard"] / 200 >= hard


def test_softer_breaks_show_as_rates() -> None:
    assert verdicts(texts(60, "empty"))["soft"] == 60
    assert verdicts(texts(60, "leak", 300))["soft"] + verdicts(texts(60, "leak", 300))["hard"] >= 55


def test_every_kind_that_the_simulation_marks_can_be_written() -> None:
    from fleet.corruption import BAD

    assert set(BREAKERS) == set(BAD)
    for kind in BREAKERS:
        assert texts(3, kind, 200) != texts(3, "", 200)


def test_a_broken_tool_call_is_no_valid_call() -> None:
    def valid(text: str) -> bool:
        try:
            return set(json.loads(text)) == {"name", "arguments"}
        except ValueError:
            return False

    assert not any(valid(t) for t in texts(60, "bad_tool_call"))


def test_texts_are_a_function_of_the_request() -> None:
    a, b = Writer(1), Writer(1)
    f, g = finish(1, output_tokens=300), finish(2, output_tokens=300)
    assert a.text(f) == b.text(f) != a.text(g)
    assert Writer(2).text(f) != a.text(f)


def script(text: str) -> str:
    """What most letters are; kana betray Japanese among Chinese characters."""
    counts: Counter[str] = Counter()
    for c in text:
        if c.isalpha():
            kinds = {
                "han": "\u4e00" <= c <= "\u9fff",
                "kana": "\u3041" <= c <= "\u30ff",
                "cyr": "а" <= c <= "я",
            }
            counts[next((k for k, is_it in kinds.items() if is_it), "lat")] += 1
    return "kana" if counts["kana"] > 0.2 * counts.total() else counts.most_common(1)[0][0]


def test_many_languages_are_written() -> None:
    writer = Writer(9)
    seen: Counter[str] = Counter()
    for session in range(150):
        for i in range(2):
            one = finish(i, id=f"{session}-{i}", session=f"q{session}", output_tokens=200)
            seen[script(writer.text(one))] += 1
    assert set(seen) == {"lat", "han", "kana", "cyr"}
    assert len(GRAMMARS) == 7


# ----------------------------------------------------------------------------------------------------------- logs


def an_attempt() -> Attempt:
    return Attempt(7.0, "chat", "acme", "p", "p-0:8000", 499, None, 2.5, 100, 0, "s", 0, 0, "a")


def test_lines_have_exactly_the_fields_of_the_labelled_histories() -> None:
    folder = shared_folder()
    if folder is None:
        pytest.skip("the labelled histories are not here")
    import zstandard

    def first(name: str) -> list[str]:
        with (folder / "scenarios" / "calm-11" / name).open("rb") as raw:
            reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(raw)
            return list(json.loads(reader.read(20_000).split(b"\n")[0]))

    state = replica(pool())
    assert list(answer(state, finish(), "text")) == first("requests.jsonl.zst")
    assert list(attempt(an_attempt())) == first("gateway.jsonl.zst")


def test_the_sample_is_random_and_leaves_out_prefill_workers_and_failures() -> None:
    state = replica(pool())
    sampler = Sampler(3, 0.25)
    lines = sampler.lines((state, finish(i)) for i in range(4000))
    assert 850 <= len(lines) <= 1150
    assert lines == Sampler(3, 0.25).lines((state, finish(i)) for i in range(4000))
    everything = Sampler(3, 1.0)
    assert everything.lines([(replica(pool(role="prefill"), "prefill"), finish())]) == []
    assert everything.lines([(state, finish(finish_reason="error"))]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        Sampler(1, 1.5)


def test_a_log_that_grew_too_large_is_begun_again(tmp_path: Path) -> None:
    log = Rolling(tmp_path / "a.jsonl", limit=2000)
    for i in range(100):
        log.write([line({"i": i, "x": "y" * 30})])
    log.close()
    now, before = tmp_path / "a.jsonl", tmp_path / "a.jsonl.1"
    assert now.stat().st_size <= 2000
    assert before.exists()
    assert json.loads((now.read_text() or before.read_text()).splitlines()[-1])["i"] == 99
