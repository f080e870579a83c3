"""Start a module so that it cannot outlive the process that started it: ``python -m app.lifeline MODULE ARGUMENT...``.

On Linux the kernel signals this process when its parent dies (PR_SET_PDEATHSIG), even when the parent was
killed with ``kill -9``. Everywhere a thread also waits on the read end of a pipe whose write end only the
parent holds: its end of file means the same. Either takes along whatever this process has started, which
is why the kernel must not kill this process outright: its own children would be left behind. Without
``GUSTFRONT_LIFELINE`` in the environment the module just runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys
import threading

VARIABLE = "GUSTFRONT_LIFELINE"
"""``<file descriptor of the pipe>:<process id of the parent>``."""
_PR_SET_PDEATHSIG = 1


def _signal() -> int:
    """A signal that nobody else uses; its default is to end the process."""
    return int(signal.SIGRTMIN) + 7


def _die() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def hold(fd: int, parent: int) -> None:
    """Tie this process to ``parent``, which holds the other end of the pipe ``fd``."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            signal.signal(_signal(), lambda *_: _die())
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _signal(), 0, 0, 0)
    if os.getppid() != parent:  # it died before the tie was made
        _die()
    os.set_inheritable(fd, False)

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(fd, 1)
        _die()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def main() -> None:
    """Entry point of ``python -m app.lifeline``."""
    tie = os.environ.pop(VARIABLE, "")
    if tie:
        fd, _, parent = tie.partition(":")
        hold(int(fd), int(parent))
    module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
