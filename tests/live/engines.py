"""Start the real engines of ``tests.live.prepare`` on free ports and wait until they answer."""

from __future__ import annotations

import json
import os
import random
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.live.prepare import HOME, python
from tests.servers import free_port, run_server

READY_S = 240.0


@dataclass(frozen=True)
class Engine:
    """A running deployment: ``url`` takes requests for ``model``; ``metrics`` are host:port of what it exports."""

    url: str
    model: str
    metrics: tuple[str, ...]


def _low_port() -> int:
    """A free port under 32,768: Dynamo reads its system port as a signed 16-bit number."""
    for port in random.sample(range(21_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port under 32,768")


@contextmanager
def _environment(**extra: str) -> Iterator[None]:
    """Set variables for the processes started inside, and put back what was there."""
    before = dict(os.environ)
    os.environ.update(extra)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _started(stack: ExitStack, argv: list[str], ready: str, log: Path) -> None:
    process = stack.enter_context(run_server(argv, ready, log, timeout=READY_S))
    if process is None:
        raise RuntimeError(f"{argv[2]} ended before it was ready:\n{log.read_text()[-3000:]}")


def _wait_for_model(url: str, model: str) -> None:
    """The frontend answers before it has found its workers: wait until it answers a completion."""
    body = json.dumps({"model": model, "prompt": "hello", "max_tokens": 1}).encode()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{url} does not serve {model}")


@contextmanager
def vllm(folder: Path) -> Iterator[Engine]:
    """vLLM on the CPU serving SmolLM2-135M-Instruct: 8 slots, a KV cache of 256 blocks of 32 tokens."""
    port = free_port()
    argv = [
        str(python("vllm")), "-m", "vllm.entrypoints.openai.api_server", "--model", str(HOME / "models" / "smollm2"),
        "--served-model-name", "smollm2", "--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "8",
        "--enforce-eager", "--host", "127.0.0.1", "--port", str(port), "--num-gpu-blocks-override", "256", "--block-size", "32",
    ]  # fmt: skip
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCHDYNAMO_DISABLE": "1",
    }  # fmt: skip
    with _environment(**settings), ExitStack() as stack:
        url = f"http://127.0.0.1:{port}"
        _started(stack, argv, f"{url}/health", folder / "vllm.log")
        yield Engine(url, "smollm2", (f"127.0.0.1:{port}",))


@contextmanager
def dynamo(folder: Path) -> Iterator[Engine]:
    """Dynamo's frontend with two mocker workers, found through files: no etcd, no NATS."""
    model = str(HOME / "models" / "tiny")
    front = free_port()
    shared = {
        "DYN_FILE_KV": str(folder / "kv"), "DYN_DISCOVERY_BACKEND": "file", "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    with ExitStack() as stack:
        workers = []
        for number in range(2):
            port = _low_port()
            argv = [
                str(python("dynamo")), "-m", "dynamo.mocker", "--model-path", model, "--model-name", "tiny",
                "--num-gpu-blocks-override", "400", "--block-size", "16", "--max-num-seqs", "16",
                "--max-num-batched-tokens", "2048", "--speedup-ratio", "2",
            ]  # fmt: skip
            with _environment(DYN_SYSTEM_PORT=str(port), **shared):
                # A worker's /health says "notready" while it serves; its /metrics is what matters here.
                _started(stack, argv, f"http://127.0.0.1:{port}/metrics", folder / f"worker{number}.log")
            workers.append(f"127.0.0.1:{port}")
        argv = [
            str(python("dynamo")),
            "-m",
            "dynamo.frontend",
            "--http-port",
            str(front),
            "--router-mode",
            "kv",
        ]
        with _environment(**shared):
            _started(stack, argv, f"http://127.0.0.1:{front}/v1/models", folder / "frontend.log")
        _wait_for_model(f"http://127.0.0.1:{front}", "tiny")
        yield Engine(f"http://127.0.0.1:{front}", "tiny", (f"127.0.0.1:{front}", *workers))
