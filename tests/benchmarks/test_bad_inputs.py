"""A sample of the bad inputs, seeded; the command tries its judge on planted faults first."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_sample_of_bad_inputs_is_handled() -> None:
    kinds = "tables,texts,archives,flags,configs"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bad_inputs", "--kinds", kinds, "--sample", "24"],
        cwd=ROOT, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].split()[:3] == ["all", "24", "24"]
