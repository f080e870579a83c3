"""A real Alertmanager: it receives, groups and resolves; away for an hour it misses nothing and tells nothing twice.

Alertmanager posts its notifications to a receiver of this test, which counts them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from core.times import parse_time
from sql.store import Store
from tests.delivery.receiver import Receiver, receiver
from tests.delivery.world import World, config_of
from tests.servers import find_program, free_port, run_server

WAIT = 1.0
"""Alertmanager's group_wait and group_interval in this test, seconds."""


@pytest.fixture(scope="session")
def alertmanager_binary() -> str:
    """The path of Alertmanager; skips where it is not installed."""
    program = find_program("prometheus-alertmanager") or find_program("alertmanager")
    if program is None:
        pytest.skip("prometheus-alertmanager is not installed")
    return program


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """What is tested here does not depend on the kind of database: SQLite alone, it takes long enough."""
    with Store.open(f"sqlite:///{tmp_path / 'g.db'}") as opened:
        yield opened


@contextmanager
def alertmanager(program: str, folder: Path, port: int, hook: str, group_by: list[str]) -> Iterator[str]:
    """A real Alertmanager on a port, with its data in ``folder``, that notifies ``hook``."""
    folder.mkdir(exist_ok=True)
    config = folder / "alertmanager.yml"
    route = {
        "receiver": "hook",
        "group_by": group_by,
        "group_wait": f"{WAIT:g}s",
        "group_interval": f"{WAIT:g}s",
        "repeat_interval": "12h",
    }
    told = {"name": "hook", "webhook_configs": [{"url": hook, "send_resolved": True}]}
    config.write_text(yaml.safe_dump({"route": route, "receivers": [told]}))
    url = f"http://127.0.0.1:{port}"
    argv = [
        program,
        f"--config.file={config}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with run_server(argv, f"{url}/-/ready", folder / "alertmanager.log") as process:
        if process is None:
            raise RuntimeError((folder / "alertmanager.log").read_text()[-1000:])
        yield url


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def notices(hook: Receiver) -> Counter[tuple[str, str, str]]:
    """(incident, severity, status) → how often its alert was in a notification with that status for the first time."""
    out: Counter[tuple[str, str, str]] = Counter()
    for request in hook.taken:
        for alert in request.json["alerts"]:
            labels = alert["labels"]
            out[labels["incident"], labels["severity"], alert["status"]] += 1
    return out


def firing(url: str) -> dict[str, dict[str, Any]]:
    """Incident → its alert, as the API of Alertmanager tells."""
    found = httpx.get(f"{url}/api/v2/alerts", timeout=10).json()
    return {a["labels"]["incident"]: a for a in found if "incident" in a["labels"]}


class Live:
    """A world whose clock is the machine's: Alertmanager has no other. ``offset`` lets it stand still or run ahead."""

    def __init__(self, store: Store, url: str, **receiver: Any) -> None:
        spec = {"url": url, "resolve_after": f"{2 * WAIT + 1:g}s", "resend": "2s", **receiver}
        self.world = World(store, config_of([{"name": "am", "alertmanager": spec}]))
        self.world.time.now = time.time()
        self.world.start()
        self.world.step(0)

    def until(self, condition: Callable[[], bool], seconds: float = 40.0) -> None:
        """Ticks in real time until something holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            self.follow()
            time.sleep(0.1)

    def follow(self) -> None:
        """The world's clock goes to the machine's."""
        self.world.step(max(0.0, time.time() - self.world.time.now))

    def for_(self, seconds: float) -> None:
        """Ticks in real time."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end)


def test_alertmanager_receives_groups_and_resolves(
    store: Store, alertmanager_binary: str, tmp_path: Path
) -> None:
    port = free_port()
    with (
        receiver() as hook,
        alertmanager(alertmanager_binary, tmp_path / "am", port, hook.url, ["pool"]) as url,
    ):
        live = Live(store, url)
        world = live.world
        for n in range(3):
            world.open(f"a-{n}", pools=("pool-a",))
        world.open("b-0", pools=("pool-b",), severity="ticket")
        live.until(lambda: len(notices(hook)) == 4)
        groups = {g["labels"]["pool"]: g["alerts"] for g in httpx.get(f"{url}/api/v2/alerts/groups").json()}
        assert {k: len(v) for k, v in groups.items()} == {"pool-a": 3, "pool-b": 1}
        alert = firing(url)["a-0"]
        assert alert["labels"]["alertname"] == "GustfrontIncident"
        assert alert["labels"]["kind"] == "kv_eviction_storm"
        assert alert["annotations"]["summary"].startswith("KV eviction storm on coder-a")
        assert "Ruled out: Slow replica, Engine wedged" in alert["annotations"]["description"]
        assert alert["generatorURL"] == "http://127.0.0.1:8501/incident?id=a-0"
        live.for_(9.0)  # longer than an alert lives that is not sent again
        assert set(firing(url)) == {"a-0", "a-1", "a-2", "b-0"}
        world.change("b-0", severity="page")
        live.until(lambda: notices(hook)["b-0", "page", "firing"] == 1)
        assert firing(url)["b-0"]["labels"]["severity"] == "page"
        for n in range(3):
            world.end(f"a-{n}")
        live.until(lambda: all(notices(hook)[f"a-{n}", "page", "resolved"] for n in range(3)))
        assert set(firing(url)) == {"b-0"}
        assert notices(hook)["b-0", "page", "resolved"] == 0


def test_an_alertmanager_that_was_away_for_an_hour_misses_nothing_and_tells_nothing_twice(
    store: Store, alertmanager_binary: str, tmp_path: Path
) -> None:
    """While it is away 40 incidents open in a simulated hour; half of them change and half of them are over before it is back."""
    port = free_port()
    folder = tmp_path / "am"
    with receiver() as hook:
        with alertmanager(alertmanager_binary, folder, port, hook.url, ["incident", "severity"]) as url:
            live = Live(store, url)
            world = live.world
            world.open("before")
            live.until(lambda: notices(hook)["before", "page", "firing"] == 1)
        # An hour, simulated: the world's clock starts an hour ago and comes back to the machine's.
        world.time.jump(-3600.0)
        for n in range(40):
            world.open(f"i-{n:02d}", severity="ticket", pools=(f"pool-{n % 4}",))
            world.step(30.0)
            if n % 4 < 2:
                world.change(f"i-{n:02d}", severity="page")
            world.step(30.0)
            if n >= 10 and n % 2 == 0:
                world.end(f"i-{n - 10:02d}")
            world.step(30.0)
        for n in range(30, 40, 2):
            world.end(f"i-{n:02d}")
        world.end("before")
        world.step(0)
        pending = store.delivery_tallies()["am"].pending
        assert pending == 40 + 20 + 20 + 1
        with alertmanager(alertmanager_binary, folder, port, hook.url, ["incident", "severity"]) as url:
            live.until(lambda: store.delivery_tallies()["am"].pending == 0, 90.0)
            over = {f"i-{n:02d}" for n in range(0, 40, 2)} | {"before"}
            live.until(lambda: over <= {i for (i, _, s) in notices(hook) if s == "resolved"}, 60.0)
            live.for_(4 * WAIT)
            assert set(firing(url)) == {f"i-{n:02d}" for n in range(1, 40, 2)}
        seen = notices(hook)
        for n in range(40):
            last = "page" if n % 4 < 2 else "ticket"
            assert seen[f"i-{n:02d}", last, "firing"] == 1, f"i-{n:02d}"
            assert seen[f"i-{n:02d}", last, "resolved"] == (1 if n % 2 == 0 else 0), f"i-{n:02d}"
        assert (seen["before", "page", "firing"], seen["before", "page", "resolved"]) == (1, 1)
        assert max(seen.values()) == 1


def test_the_watchdog_fires_while_all_parts_live_and_ends_when_one_stops(
    store: Store, alertmanager_binary: str, tmp_path: Path
) -> None:
    from collectors.selfmetrics import HEARTBEAT
    from core.beats import DETECT

    port = free_port()
    with (
        receiver() as hook,
        alertmanager(alertmanager_binary, tmp_path / "am", port, hook.url, ["alertname"]) as url,
    ):

        def watchdog() -> bool:
            found = httpx.get(f"{url}/api/v2/alerts", timeout=10).json()
            (alert,) = [a for a in found if a["labels"]["alertname"] == "GustfrontWatchdog"] or [None]
            assert alert is None or parse_time(alert["startsAt"]) <= time.time()
            return alert is not None

        live = Live(store, url, heartbeat="1s")
        live.for_(2.0)
        assert not watchdog(), "nobody has been heard of yet"
        store.set_cursor(HEARTBEAT, repr(time.time()))
        store.set_cursor(DETECT, repr(time.time()))
        live.until(watchdog)
        live.for_(5.0)
        assert watchdog()
        store.set_cursor(DETECT, repr(time.time() - 600))
        live.until(lambda: not watchdog(), 15.0)
        live.until(lambda: any(r.json["status"] == "resolved" for r in hook.taken))


def test_alertmanager_that_is_away_is_seen_even_when_nothing_waits(
    store: Store, alertmanager_binary: str, tmp_path: Path
) -> None:
    port = free_port()
    with receiver() as hook:
        with alertmanager(alertmanager_binary, tmp_path / "am", port, hook.url, ["incident"]) as url:
            live = Live(store, url)
            live.world.open("i-1")
            live.until(lambda: notices(hook)["i-1", "page", "firing"] == 1)
        assert live.world.dispatcher is not None
        (channel,) = live.world.dispatcher.channels
        live.until(lambda: "cannot be reached" in channel.error)
        with alertmanager(alertmanager_binary, tmp_path / "am", port, hook.url, ["incident"]) as url:
            live.until(lambda: "i-1" in firing(url))
            assert channel.error == ""
