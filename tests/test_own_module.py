"""A LightningModule of the user's own trains, checkpoints, resumes exactly and is exported.

The modules stand in own_modules.py: what is written there is all that a forker writes.
"""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fresh_process import ROOT, run_script
from tests.same_bits import assert_equal

pytestmark = pytest.mark.slow

PERMISSION = ["--allow_external_code", "true"]
TWO = ["--module", "tests.own_modules.TwoOptimizers"]
SHORT = ["--limit_train_batches", "10", "--data.batch_size", "32", "--max_epochs", "3"]
ASIDE = """\
no export, TwoOptimizers has no deployed and description
lr finder: no sweep, TwoOptimizers has no compute_loss
gradient check: no finite differences, TwoOptimizers has no compute_loss
checkpoint: no best one, only the last, TwoOptimizers logs no val/accuracy (--checkpoint.monitor \
NAME; logged: val/cross_entropy, val/hits)
early stopping: off, TwoOptimizers logs no val/loss (--early_stopping.monitor NAME; logged: \
train/loss, val/cross_entropy, val/hits)
test report: TwoOptimizers has no reports; it logged test/cross_entropy # test/hits #
"""


def train(folder: Path, *arguments: object, code: int = 0) -> str:
    """What train.py prints."""
    words = [*arguments, *PERMISSION, "--runs_dir", folder]
    done = run_script("train.py", *words, environment=SINGLE)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


SINGLE = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def run_of(folder: Path) -> Path:
    (found,) = folder.glob("*/*")
    return found


def last(folder: Path) -> dict[str, Any]:
    return torch.load(run_of(folder) / "checkpoints" / "last.ckpt", weights_only=True)


# ---- two optimizers -----------------------------------------------------------------------


def test_two_optimizers_with_everything_on(tmp_path: Path) -> None:
    """Every callback of ours either works or says in one line why not."""
    everything = ["--ema.enabled", "true", "--gradient_check.every_n_steps", "7"]
    printed = train(tmp_path, *TWO, *SHORT, *everything, "--logger", "tensorboard")
    lines = [re.sub(r" 0\.\d{4} *", " # ", line).rstrip() for line in printed.splitlines()]
    assert [line for line in lines if "TwoOptimizers" in line] == ASIDE.splitlines()
    assert "training ended: all 3 epochs are done (epoch 3, step 30)" in printed
    assert re.search(
        r"epoch 3/3  train/loss \S+  val/cross_entropy \S+  val/hits 0\.[5-9]", printed
    )
    run, checkpoint = run_of(tmp_path), last(tmp_path)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [
        "last.ckpt",
        "previous.ckpt",
    ]
    assert len(checkpoint["optimizer_states"]) == 2
    assert checkpoint["description"]["global_step"] == 30
    assert checkpoint["description"]["config"]["module"]["name"] == TWO[1]
    with (run / "gradients.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole = [(row["step"], row["layer"]) for row in rows if "(all)" in row["layer"]]
    steps = [str(step) for step in range(0, 30, 7)]
    assert whole == [(s, f"(all) of optimizer {index}") for s in steps for index in (0, 1)]
    names = {row["layer"] for row in rows}
    assert {"attacker.0", "attacker.1", "attacker.2", "classifier.network.head"} <= names
    assert (run / "learning_curves.png").is_file()
    assert (run / "test.json").is_file()


@pytest.mark.parametrize("batch", [4, 13, 20])
def test_killed_anywhere_it_goes_on_with_the_same_bits(tmp_path: Path, batch: int) -> None:
    """Weights, both optimizers, and metrics.csv with means of `self.log`; in mid-epoch, too."""
    arguments = [*TWO, *SHORT, "--callbacks", "tests.own_modules.KillOnce"]
    arguments += ["--model.dropout", "0.3", "--val_check_interval", "5", "--ema.enabled", "true"]
    train(tmp_path / "whole", *arguments, "--kill_once.batch", 999)
    stopped = train(tmp_path / "parts", *arguments, "--kill_once.batch", batch, code=143)
    assert "stopped by SIGTERM" in stopped
    saved = last(tmp_path / "parts")
    assert saved["exact_resume"]["position"] == batch % 10
    assert saved["global_step"] == 2 * batch  # of Lightning
    train(tmp_path / "parts", "--resume", run_of(tmp_path / "parts") / "checkpoints" / "last.ckpt")
    tables = [(run_of(tmp_path / name) / "metrics.csv").read_text() for name in ("whole", "parts")]
    assert tables[0] == tables[1]
    one, other = last(tmp_path / "whole"), last(tmp_path / "parts")
    for key in ("state_dict", "optimizer_states", "loops", "global_step", "exact_resume"):
        assert_equal(one[key], other[key], key)


def test_a_checkpoint_every_n_batches(tmp_path: Path) -> None:
    """Counted in batches, of which each has a step of two optimizers."""
    notes = ["--callbacks", "tests.own_modules.KillOnce", "--kill_once.batch", "9"]
    hard = ["--kill_once.at_once", "true", "--checkpoint_every", "4"]
    words = [*TWO, *SHORT, *notes, *hard, *PERMISSION, "--runs_dir", tmp_path]
    done = run_script("train.py", *words, environment=SINGLE)
    assert done.returncode == 77
    saved = last(tmp_path)
    assert saved["exact_resume"]["position"] == 8
    assert saved["global_step"] == 16


def test_max_steps_counts_each_optimizers_step(tmp_path: Path) -> None:
    printed = train(tmp_path, *TWO, *SHORT, "--max_steps", 10)
    assert "--max_steps counts each optimizer's step, all other steps are batches\n" in printed
    assert re.search(r"ended: all 10 optimizer steps are done \(epoch \d, step 5\)", printed)
    assert last(tmp_path)["global_step"] == 10


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--accumulate_grad_batches", "4", "--gradient_clip_val", "1"],
            2,
            "TwoOptimizers optimizes by itself (automatic_optimization = False): leave "
            "--accumulate_grad_batches 4 and --gradient_clip_val 1.0 out, and do that in its "
            "training_step",
        ),
        (
            ["--checkpoint.monitor", "val/hit", "--optimizer.lr", "0.1"],
            1,
            "--checkpoint.monitor val/hit: TwoOptimizers has not logged that name by the end of "
            "its first validation; did you mean val/hits? (logged: val/cross_entropy, val/hits)",
        ),
        (
            ["--early_stopping.monitor", "val/los"],
            1,
            "--early_stopping.monitor val/los: TwoOptimizers has not logged that name by the end "
            "of its first validation; did you mean val/hits? (logged: train/loss, "
            "val/cross_entropy, val/hits)",
        ),
    ],
)
def test_what_cannot_work_is_one_message(
    tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    printed = train(tmp_path, *TWO, *SHORT, *arguments, code=code)
    assert printed.count("error: ") == 1
    assert f"error: {message}\n" in printed


def test_values_that_are_not_finite_stop_it(tmp_path: Path) -> None:
    printed = train(tmp_path, *TWO, *SHORT, "--module.rate", "1e30", code=1)
    found = r"^error: a loss, a gradient or a weight became NaN or infinite in epoch 0, between"
    assert re.search(rf"{found} steps 0 and 10; ", printed, re.MULTILINE)
    assert "replay" not in printed


def test_a_monitor_of_its_own_makes_a_best_checkpoint(tmp_path: Path) -> None:
    monitors = ["--checkpoint.monitor", "val/hits", "--early_stopping.monitor", "val/cross_entropy"]
    printed = train(tmp_path, *TWO, *SHORT, *monitors)
    assert "checkpoint: by val/hits, larger is better\n" in printed
    assert "early stopping: by val/cross_entropy, smaller is better\n" in printed
    assert re.search(r"tested: best\.ckpt, epoch 3, step 30, val/hits 0\.\d{4}\n", printed)
    assert "early stopping: off" not in printed


def test_without_a_test_step_there_is_no_test(tmp_path: Path) -> None:
    own = ["--module", "tests.own_modules.Untested", *SHORT, "--max_epochs", "1"]
    lines = train(tmp_path, *own, "--optimizer.lr", "0.1").splitlines()
    named = "without effect, as Untested does not ask for it: --optimizer.lr"
    assert lines.index(named) < lines.index("no test, Untested has no test_step")
    assert lines[-2].startswith("neither tested nor exported: last.ckpt, epoch 1, step 10")
    assert not (run_of(tmp_path) / "test.json").exists()


def test_the_module_cannot_be_changed_on_resume(tmp_path: Path) -> None:
    train(tmp_path, *TWO, *SHORT, "--max_epochs", "1")
    path = run_of(tmp_path) / "checkpoints" / "last.ckpt"
    printed = train(tmp_path, "--resume", path, "--module", "classifier", code=2)
    assert f"error: --module classifier: {path} is of --module {TWO[1]}, which cannot" in printed


# ---- distillation -------------------------------------------------------------------------


def test_distillation_by_overriding_compute_loss(tmp_path: Path) -> None:
    """One method changes the loss of training, rate finder and gradient check; it is exported."""
    data = ["--data.batch_size", "64", "--optimizer.lr", "0.01"]
    quick = ["--max_epochs", "2", "--export.enabled", "false"]
    train(tmp_path / "teacher", *data, *quick)
    teacher = run_of(tmp_path / "teacher") / "checkpoints" / "best.ckpt"
    arguments = ["--module", "tests.own_modules.Distilled", "--module.teacher", teacher]
    arguments += ["--module.temperature", "3", "--model.width", "8", "--data.batch_size", "64"]
    arguments += ["--max_epochs", "2", "--export.formats", "onnx", "--export.skip_timing", "true"]
    printed = train(tmp_path / "student", *arguments)
    assert "lr finder: found " in printed
    assert "gradient check" not in printed  # not of the teacher's layers, which are frozen, either
    assert re.search(r"^onnx +model\.onnx .* passed *$", printed, re.MULTILINE)
    best = torch.load(run_of(tmp_path / "student") / "checkpoints/best.ckpt", weights_only=True)
    assert best["description"]["config"]["module"]["temperature"] == 3.0
    before = torch.load(teacher, weights_only=True)["state_dict"]
    for name, value in before.items():
        assert torch.equal(best["state_dict"][name.replace("model.", "teacher.", 1)], value)
