"""``gustfront deliver`` and ``deliveries`` as processes: killed without warning, started again, stopped by a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.supervisor import children_of
from core.config import load_config
from sql.store import Store
from tests.delivery.receiver import Answer, Receiver
from tests.delivery.world import config_of, incident

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path, hook: Receiver) -> Path:
    (tmp_path / "gustfront.yaml").write_text(
        f"""
database: sqlite:///./g.db
receivers:
  - name: hook
    webhook: {{url: "{hook.url}/a-secret-path"}}
routes:
  - {{receivers: hook, group_wait: 0s}}
"""
    )
    Store.open(f"sqlite:///{tmp_path / 'g.db'}").close()
    return tmp_path


def argv(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "app.cli", "--config", str(folder / "gustfront.yaml"), *words]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv(folder, *words), cwd=ROOT, capture_output=True, text=True, timeout=120)


@contextmanager
def delivering(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    log = (folder / "deliver.log").open("ab")
    with log, subprocess.Popen(argv(folder, "deliver"), cwd=ROOT, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def eventually(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def told(hook: Receiver) -> Counter[tuple[str, str]]:
    return Counter((i["subject"], i["action"]) for i in hook.items())


def test_a_dispatcher_killed_again_and_again_loses_nothing_and_says_the_same_twice_at_most(
    folder: Path, hook: Receiver
) -> None:
    """The receiver is slow, so that each kill hits a request on its way."""

    def slow(_: object) -> Answer:
        time.sleep(0.15)
        return Answer()

    hook.answer = slow
    with Store.open(f"sqlite:///{folder / 'g.db'}") as store:
        for n in range(12):
            store.save_incident(incident(f"i-{n:02d}", time.time(), pools=(f"pool-{n}",)))
        for _ in range(3):
            before = len(hook.taken)
            with delivering(folder) as process:
                eventually(lambda: len(hook.taken) >= before + 2)  # noqa: B023
                process.send_signal(signal.SIGKILL)
                process.wait()
            # The next one would wait for the lease of the dead one: 30 s.
            held = store.lease("deliver")
            assert held is not None
            store.release_lease("deliver", held.holder)
        for n in range(12):
            one = store.incident(f"i-{n:02d}")
            assert one is not None
            now = time.time()
            store.save_incident(replace(one, state="resolved", ended_at=now, updated_at=now))
        with delivering(folder):
            eventually(lambda: len(told(hook)) == 24)
            eventually(lambda: store.delivery_tallies()["hook"].pending == 0)
    counts = told(hook)
    assert set(counts) == {(f"i-{n:02d}", a) for n in range(12) for a in ("open", "resolve")}
    assert sum(counts.values()) <= 24 + 3, "at most the one that was on its way at each death"
    keys: dict[tuple[str, str], set[str]] = {}
    for item in hook.items():
        keys.setdefault((item["subject"], item["action"]), set()).add(item["delivery"])
    assert all(len(k) == 1 for k in keys.values()), "what comes twice has the same id"


def test_a_signal_ends_it_at_once_and_its_lease_is_free(folder: Path) -> None:
    with Store.open(f"sqlite:///{folder / 'g.db'}") as store, delivering(folder) as process:
        eventually(lambda: store.lease("deliver") is not None)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - begin < 4
        assert store.lease("deliver") is None
    assert (folder / "deliver.log").read_text() == ""


def test_the_list_shows_receivers_and_deliveries_and_its_exit_code_says_whether_all_is_well(
    folder: Path, hook: Receiver
) -> None:
    done = run(folder, "deliveries", "test", "hook")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "hook has taken the test message\n"
    done = run(folder, "deliveries", "list", "--json")
    assert done.returncode == 1
    listed = json.loads(done.stdout)
    assert listed["stopped"].startswith("delivery is not running (it never ran)")
    assert (listed["receivers"][0]["state"], listed["deliveries"][0]["action"]) == ("ok", "test")
    hook.answer = lambda _: Answer(403, "forbidden")
    with Store.open(f"sqlite:///{folder / 'g.db'}") as store:
        store.save_incident(incident("i-1", time.time(), title="[red]storm[/red] \x1b[31m"))
        with delivering(folder):
            eventually(lambda: store.delivery_tallies()["hook"].parked == 1)
            done = run(folder, "deliveries")
            assert done.returncode == 1
            assert "1 refused" in done.stdout
            assert "not running" not in done.stderr
            assert "[red]storm[/red]" in done.stdout
            assert "\x1b" not in done.stdout
            assert "a-secret-path" not in done.stdout
            hook.answer = lambda _: Answer()
            (row,) = store.deliveries_of("i-1")
            done = run(folder, "deliveries", "retry", row.id[:10], "--json")
            assert json.loads(done.stdout)[0]["state"] in ("pending", "parked")
            eventually(lambda: told(hook)[("i-1", "open")] == 1)
    for words, text in (
        (("retry", "zzz"), "no such delivery"),
        (("retry",), "give either a delivery or a receiver"),
        (("retry", row.id), "it has been sent already"),
        (("test", "nobody"), "use one of hook"),
        (("list", "--state", "lost"), "use one of pending, sent, parked"),
    ):
        done = run(folder, "deliveries", *words)
        assert done.returncode == 2
        assert text in done.stderr


def test_run_starts_delivery_where_somebody_is_to_be_told(folder: Path) -> None:
    names = [c.name for c in children_of(load_config(folder / "gustfront.yaml"), host="127.0.0.1", port=1)]
    assert names == ["collect", "detect", "deliver", "serve"]
    assert "deliver" not in [c.name for c in children_of(config_of([]), host="127.0.0.1", port=1)]


def test_delivery_waits_for_a_database_that_is_away_and_says_so_once(tmp_path: Path, hook: Receiver) -> None:
    file = tmp_path / "locked" / "g.db"
    (tmp_path / "gustfront.yaml").write_text(
        f'database: sqlite:///{file}\nreceivers: [{{name: hook, webhook: {{url: "{hook.url}"}}}}]\n'
    )
    with delivering(tmp_path) as process:
        eventually(lambda: "delivery waits for the database" in (tmp_path / "deliver.log").read_text())
        file.parent.mkdir()
        eventually(file.exists)
        eventually(lambda: _leads(str(file)))
        assert process.poll() is None
    text = (tmp_path / "deliver.log").read_text()
    assert text.count("delivery waits for the database") == 1
    assert "Traceback" not in text


def _leads(file: str) -> bool:
    with Store.open(f"sqlite:///{file}") as store:
        return store.lease("deliver") is not None
