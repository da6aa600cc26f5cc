"""What stands in the lines that say what is trained and tested."""

from pathlib import Path

import pytest
import torch

from cli import provenance
from tests.lightning_modules.test_checkpoint import valid


@pytest.mark.parametrize(
    ("scores", "exports", "line"),
    [
        (
            {"val/accuracy": 0.96404},
            True,
            "tested and exported: best.ckpt, epoch 3, step 120, val/accuracy 0.9640",
        ),
        ({"val/loss": 0.1}, None, "tested: best.ckpt, epoch 3, step 120, without val/accuracy"),
        ({}, False, "tested: best.ckpt, epoch 3, step 120, without val/accuracy"),
    ],
)
def test_the_tested_checkpoint(
    tmp_path: Path, scores: dict[str, float], exports: bool | None, line: str
) -> None:
    content = valid()
    content["description"] |= {"epoch": 2, "global_step": 120, "scores": scores}
    torch.save(content, tmp_path / "best.ckpt")
    assert provenance.tested_line(tmp_path / "best.ckpt", "val/accuracy", exports, True) == line


def test_no_checkpoint() -> None:
    line = "tested: the weights as they are, there is no checkpoint"
    assert provenance.tested_line(None, None, None, True) == line


def test_what_was_left_out_is_not_claimed() -> None:
    rest = ": the weights as they are, there is no checkpoint"
    for exports, done in ((True, "exported"), (None, "neither tested nor exported")):
        assert provenance.tested_line(None, None, exports, False) == done + rest
