"""One of several processes fails while the other waits: both end at once, with one message."""

from pathlib import Path

import pytest

from tests.fresh_process import run_script

BROKEN = """
import os

from datamodules.digits import Digits


class Broken(Digits):
    def __init__(self, rank: int, batch_size: int = 64, seed: int = 0) -> None:
        super().__init__(batch_size=batch_size, seed=seed)
        self.rank, self.seen = rank, 0

    def on_after_batch_transfer(self, batch, index):
        self.seen += self.trainer is not None and self.trainer.training
        if self.seen == 3 and int(os.environ["LOCAL_RANK"]) == self.rank:
            raise ValueError("row 7 is broken")
        return super().on_after_batch_transfer(batch, index)
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_on_one_rank_ends_all_with_one_message(tmp_path: Path, rank: int) -> None:
    (tmp_path / "broken_parts.py").write_text(BROKEN)
    arguments = ["--data", "broken_parts.Broken", "--data.rank", rank, "--allow_external_code"]
    arguments += ["--devices", 2, "--accelerator", "cpu", "--optimizer.lr", 0.01]
    arguments += ["--gradient_check.enabled", "false", "--runs_dir", tmp_path / "runs"]
    done = run_script("train.py", *arguments, environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr.count("row 7 is broken") == 2  # the statement in the trace, and the error
    assert done.stderr.count("Traceback") == 1
    assert ("on rank 1:\n" in done.stderr) is (rank == 1)
    assert "c10d" not in done.stderr
    assert "epoch 1" not in done.stdout
