"""A supervisor over test children: ``python -m tests.app.supervise_children FOLDER HOW...``; tests kill it."""

from __future__ import annotations

import sys

from app.supervisor import Child, Supervisor

if __name__ == "__main__":
    folder, *kinds = sys.argv[1:]
    sys.exit(
        Supervisor(
            [Child(how, "tests.app.children", (how, folder)) for how in kinds],
            backoff_max=0.5,
            backoff_min=0.2,
        ).run()
    )
