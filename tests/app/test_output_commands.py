"""``gustfront score``, ``erase`` and ``import-outputs --format`` as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.sampling import fraction
from sql.store import Store
from tests.collectors import payloads as p

ROOT = Path(__file__).resolve().parents[2]
T0 = 1_789_999_200.0
WORDS = "the secret recipe of the northern bakery"


def gustfront(folder: Path, *words: str, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", *words],
        cwd=folder,
        input=stdin,
        capture_output=True,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "/usr/bin:/bin",
            "GUSTFRONT_DATABASE": f"sqlite:///{folder / 'g.db'}",
        },
        check=False,
    )
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def line(i: int, **more: Any) -> dict[str, Any]:
    record = {"id": f"r{i}", "ts": T0 + i, "output": f"This is {WORDS}.", "prompt": WORDS, "workload": "chat"}
    return record | {"session": f"s{i % 3}", "tenant": "acme"} | more


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


def test_scores_leave_and_texts_stay(tmp_path: Path) -> None:
    given = [
        line(0),
        line(1, output="!" * 300),
        line(2, tool_calls=[{"name": "f", "arguments": json.dumps({"a": WORDS})}]),
    ]
    given[0]["extra"] = WORDS
    out, err = gustfront(tmp_path, "score", stdin=lines(*given))
    assert WORDS not in out
    assert "!!!!" not in out
    found = [json.loads(x) for x in out.splitlines()]
    assert [r["id"] for r in found] == ["r0", "r1", "r2"]
    assert [set(r["rules"]) for r in found] == [set(), {"char_run"}, set()]
    assert all(r["random"] for r in found)
    assert "3 outputs scored, 3 written" in err
    (tmp_path / "scored.jsonl").write_text(out)
    gustfront(tmp_path, "import-outputs", "scored.jsonl")
    with Store.open(f"sqlite:///{tmp_path / 'g.db'}", read_only=True) as store:
        rows = {r.id: r for r in store.outputs(0, 4e9)}
    assert [rows[f"r{i}"].verdict for i in range(3)] == ["clean", "hard", "clean"]
    assert rows["r2"].structured is True


def test_a_share_is_random_and_suspicious_ones_come_besides(tmp_path: Path) -> None:
    given = [line(i, output="!" * 300 if i % 10 == 0 else WORDS) for i in range(200)]
    out, _ = gustfront(tmp_path, "score", "--share", "0.2", stdin=lines(*given))
    found = {r["id"]: r for r in map(json.loads, out.splitlines())}
    assert {k for k, r in found.items() if r["random"]} == {
        f"r{i}" for i in range(200) if fraction(f"r{i}") < 0.2
    }
    assert {f"r{i}" for i in range(0, 200, 10)} <= set(found)
    assert {r["weight"] for r in found.values()} == {1.0, 5.0}


def test_a_reservoir_keeps_a_number_a_window(tmp_path: Path) -> None:
    given = [line(i) for i in range(240)]
    out, _ = gustfront(tmp_path, "score", "--reservoir", "10", "--window", "60s", stdin=lines(*given))
    found = [json.loads(x) for x in out.splitlines()]
    assert len(found) == 40
    assert {r["weight"] for r in found} == {6.0}


def test_records_of_other_tools_are_scored_and_imported(tmp_path: Path) -> None:
    out, _ = gustfront(tmp_path, "score", "--format", "litellm", stdin=lines(p.LITELLM))
    assert json.loads(out)["prompt_tokens"] == 24
    assert p.ANSWER not in out
    (tmp_path / "export.json").write_text(
        json.dumps([p.LANGFUSE, {**p.LANGFUSE, "id": "x", "type": "SPAN"}], indent=1)
    )
    out, _ = gustfront(tmp_path, "import-outputs", "export.json", "--format", "langfuse", "--json")
    found = json.loads(out)
    assert (found["imported"], found["skipped"], found["bad"]) == (1, 1, 0)
    out, _ = gustfront(tmp_path, "import-outputs", "export.json", "--json")
    assert json.loads(out)["already_there"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("score", "--share", "0"),
        ("score", "--format", "x"),
        ("score", "--reservoir", "0"),
        ("erase",),
        ("score", "absent"),
    ],
)
def test_a_wrong_use_is_explained(tmp_path: Path, words: tuple[str, ...]) -> None:
    _, err = gustfront(tmp_path, *words, code=2)
    assert "Fix:" in err
    assert "Traceback" not in err


def test_lines_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    out, err = gustfront(tmp_path, "score", stdin=b"{\n[]\n" + lines(line(1), {"id": "no time"}))
    assert len(out.splitlines()) == 1
    assert "3 could not be used" in err
    gustfront(tmp_path, "score", stdin=b"nothing\n", code=2)


def test_what_belongs_to_a_tenant_or_a_session_can_be_erased_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        lines(*[line(i) for i in range(6)], line(6, tenant="other", session="z"))
    )
    gustfront(tmp_path, "import-outputs", "a.jsonl")
    assert json.loads(gustfront(tmp_path, "erase", "--session", "s1", "--json")[0]) == {
        "outputs": 2,
        "outcomes": 0,
    }
    assert json.loads(gustfront(tmp_path, "erase", "--request", "r0", "--json")[0]) == {
        "outputs": 1,
        "outcomes": 0,
    }
    assert json.loads(gustfront(tmp_path, "erase", "--tenant", "acme", "--json")[0]) == {
        "outputs": 3,
        "outcomes": 0,
    }
    with Store.open(f"sqlite:///{tmp_path / 'g.db'}", read_only=True) as store:
        assert [r.id for r in store.outputs(0, 4e9)] == ["r6"]
        assert [e.kind for e in store.events()] == ["erased"] * 3
        assert not any("acme" in e.text or "s1" in e.text for e in store.events())
