"""Real engines on the CPU. Not part of CI: `make test-live` prepares them (several GB) and runs these tests."""
