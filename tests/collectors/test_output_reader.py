"""One record at a time: what is wanted, what is kept of it, how it was sampled, what its request says about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectors.fields import BadRecord
from collectors.outputs import OutputReader, output_reader
from core.errors import ConfigError
from core.sampling import fraction
from sql.store import Store
from tests.collectors.intake import configured
from tests.core.test_text_more import SECRET
from tests.core.text_samples import GERMAN, PROSE

T0 = 1_789_999_200.0


def record(id_: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": id_, "ts": T0, "output": PROSE, "workload": "chat"} | more


def reader(tmp_path: Path, extra: str = "") -> OutputReader:
    config, classes, roles = configured(tmp_path, extra)
    with Store.open(f"sqlite:///{tmp_path}/g.db") as store:
        return output_reader(store, classes, roles, config, "file")


def test_what_the_configuration_never_wants_is_left_out(tmp_path: Path) -> None:
    read = reader(tmp_path, 'outputs: {never: [\'tenant="bank"\', \'pool=~"secret-.*",model="m"\']}\n').read
    assert read(record(tenant="bank")) is None
    assert read(record(pool="secret-1", model="m")) is None
    assert read(record(pool="secret-1", model="other")) is not None
    assert read(record(tenant="shop")) is not None


@pytest.mark.parametrize(
    "extra", ["outputs: {never: ['tenant=']}\n", "outputs: {redact: ['(']}\n", "outputs: {random_share: 0}\n"]
)
def test_a_wrong_rule_is_named(tmp_path: Path, extra: str) -> None:
    with pytest.raises(ConfigError, match="outputs"):
        configured(tmp_path, extra)


def test_a_kept_text_is_struck_through_before_it_is_cut(tmp_path: Path) -> None:
    read = reader(tmp_path, "outputs: {store_text: true, text_cap: 40, redact: ['KD-[0-9]+']}\n").read
    key = "sk-abcdEFGH1234567890abcdEFGH1234567890"
    kept = read(record(output=f"Customer KD-77 wrote: use {key} now, it is {key}"))
    assert kept is not None
    assert kept.text == "Customer [redacted] wrote: use [key] now, it is [key]"[:40]


def test_a_share_of_the_ids_is_random_and_suspicious_outputs_come_besides(tmp_path: Path) -> None:
    read = reader(tmp_path, "outputs: {random_share: 0.25}\n").read
    inside = next(f"i{i}" for i in range(99) if fraction(f"i{i}") < 0.25)
    outside = next(f"o{i}" for i in range(99) if fraction(f"o{i}") >= 0.25)
    kept = read(record(inside, weight=2))
    assert kept is not None
    assert (kept.random, kept.weight) == (True, 8.0)
    assert read(record(outside)) is None
    bad = read(record(outside, output="!" * 200))
    assert bad is not None
    assert (bad.random, bad.weight, bad.verdict) == (False, 1.0, "hard")


def test_what_was_kept_for_being_suspicious_is_not_random(tmp_path: Path) -> None:
    read = reader(tmp_path).read
    kept = read(record(random=False))
    assert kept is not None
    assert not kept.random
    for wrong in ({"random": "yes"}, {"weight": 0.5}):
        with pytest.raises(BadRecord):
            read(record(**wrong))


def test_an_aborted_output_is_partial_and_not_blamed_for_its_end(tmp_path: Path) -> None:
    kept = reader(tmp_path).read(record(output="Here it is:\n```python\nx = 1", aborted=True))
    assert kept is not None
    assert (kept.finish_reason, kept.features["partial"], kept.rules) == ("abort", 1.0, {})


def test_schema_and_tools_of_the_request_are_used(tmp_path: Path) -> None:
    read = reader(tmp_path).read
    schema = {
        "type": "object",
        "required": ["a"],
        "additionalProperties": False,
        "properties": {"a": {"type": "string"}},
    }
    kept = read(record(output='{"b": 1}', structured=schema))
    assert kept is not None
    assert (kept.rules, kept.structured) == ({"json_schema": 2.0}, True)
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    calls = [{"function": {"name": "f", "arguments": '{"a": 1}'}}]
    kept = read(record("b", output="", tool_calls=calls, tools=tools))
    assert kept is not None
    assert (kept.rules, kept.structured) == ({"tool_schema": 1.0}, True)
    kept = read(record("c", structured=False))
    assert kept is not None
    assert kept.structured is False


def test_acceptance_log_probabilities_and_language_are_kept_as_numbers(tmp_path: Path) -> None:
    kept = reader(tmp_path).read(
        record(
            output=GERMAN,
            logprobs=[-0.5] * 40,
            accept_rate=0.62,
            accept_length=2.4,
            cache_source="cpu",
            max_tokens=64,
        )
    )
    assert kept is not None
    assert (kept.language, kept.cache_source, kept.accept_length) == ("de", "cpu", 2.4)
    assert kept.features["logprob_mean"] == -0.5
    assert (kept.features["accept_rate"], kept.features["max_tokens"]) == (0.62, 64.0)


def test_text_of_somebody_elses_prompt_is_noticed_across_records(tmp_path: Path) -> None:
    read = reader(tmp_path).read
    read(record("a", session="one", prompt=SECRET, output="Dear insurer, we disagree."))
    leaked = read(
        record("b", ts=T0 + 60, session="two", prompt="How do I boil an egg? " * 6, output="Sure. " + SECRET)
    )
    own = read(
        record("c", ts=T0 + 70, session="one", prompt="Shorter please. " * 8, output="Sure. " + SECRET)
    )
    assert leaked is not None
    assert own is not None
    assert "foreign_text" in leaked.rules
    assert "foreign_text" not in own.rules


def test_scores_made_elsewhere_are_checked_and_their_verdict_is_worked_out_here(tmp_path: Path) -> None:
    read = reader(tmp_path).read
    bare = {"id": "a", "ts": T0, "workload": "chat"}
    kept = read(
        bare
        | {
            "rules": {"char_run": 80},
            "features": {"chars": 90, "x": "text"},
            "verdict": "clean",
            "language": "en",
        }
    )
    assert kept is not None
    assert (kept.verdict, kept.features, kept.language) == ("hard", {"chars": 90.0}, "en")
    clean = read(bare | {"rules": {}})
    assert clean is not None
    assert clean.verdict == "clean"
    with pytest.raises(BadRecord, match="unknown rules"):
        read(bare | {"rules": {"made_up": 1}})
