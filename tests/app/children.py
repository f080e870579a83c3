"""Small programs that the supervisor's tests run as children: ``python -m tests.app.children HOW FOLDER``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Note the process id in FOLDER, then behave as HOW says."""
    how, folder = sys.argv[1], Path(sys.argv[2])
    (folder / f"{how}-{os.getpid()}.pid").write_text(str(os.getpid()))
    if how == "crash":
        sys.exit(1)
    if how == "refuse":
        sys.exit(2)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if how in ("parent", "busy"):
        inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (folder / f"inner-{inner.pid}.pid").write_text(str(inner.pid))
    while how == "busy":  # never gives another thread the processor of its own will
        pass
    time.sleep(600)


if __name__ == "__main__":
    main()
