"""The supervisor with real processes: nothing outlives it, crashes are repaired, a taken port is told before anything starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.supervisor import check_port
from core.errors import EnvironmentProblem

ROOT = Path(__file__).resolve().parents[2]


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie that nobody has waited for does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    return [int(p.stem.rsplit("-", 1)[1]) for p in folder.glob("*.pid") if p.read_text()]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a supervisor over children that behave as named; whatever is left is killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*kinds: str) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.app.supervise_children", str(tmp_path), *kinds],
                cwd=ROOT,
                stderr=subprocess.DEVNULL,
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
    for pid in pids(tmp_path):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("parent", ["parent", "busy"])
def test_children_and_their_children_die_with_a_killed_supervisor(
    parent: str, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """Even where a child computes without a pause, so that the one that watches for it comes late."""
    process = start("sleep", "stubborn", parent)
    wait_until(lambda: len(pids(tmp_path)) == 4)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(map(alive, pids(tmp_path))), 10.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_within_five_seconds_even_those_that_ignore_it(
    number: signal.Signals, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = start("sleep", "stubborn", "parent")
    wait_until(lambda: len(pids(tmp_path)) == 4)
    time.sleep(0.2)
    begin = time.monotonic()
    process.send_signal(number)
    assert process.wait(10) == 0
    assert time.monotonic() - begin < 5
    wait_until(lambda: not any(map(alive, pids(tmp_path))), 1.0)


def test_a_crashing_child_is_restarted_and_costs_the_others_nothing(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    start("crash", "sleep")
    wait_until(lambda: len(list(tmp_path.glob("crash-*.pid"))) >= 3)
    (other,) = tmp_path.glob("sleep-*.pid")
    assert alive(int(other.read_text()))


def test_a_killed_child_is_started_again(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    start("sleep")
    wait_until(lambda: len(pids(tmp_path)) == 1)
    os.kill(pids(tmp_path)[0], signal.SIGKILL)
    wait_until(lambda: sum(map(alive, pids(tmp_path))) == 1 and len(pids(tmp_path)) == 2)


def test_a_child_that_refuses_its_configuration_ends_everything_with_code_2(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = start("sleep", "refuse")
    assert process.wait(10) == 2
    assert not any(map(alive, pids(tmp_path)))


def test_a_taken_port_is_named_with_its_fix() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=rf"127\.0\.0\.1:{port} .*--port") as caught:
            check_port("127.0.0.1", port, patience=0.1)
    assert caught.value.exit_code == 3
    check_port("127.0.0.1", port)


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(EnvironmentProblem, match=r"192\.0\.2\.1"):
        check_port("192.0.2.1", 8501, patience=0.1)
