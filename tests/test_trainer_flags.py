"""Each of Lightning's flags that the help lists, once through a small whole run."""

from pathlib import Path

import pytest
import torch

from cli.flags import all_flags
from train import main

pytestmark = pytest.mark.slow

# compatible flags share a run; the first line of each is what a run is named after
RUNS: list[list[str]] = [
    [
        *("--profiler", "pytorch", "--min_epochs", "1", "--min_steps", "2"),
        *("--max_time", "00:00:10:00", "--deterministic", "--detect_anomaly", "--seed", "3"),
        *("--gradient_clip_val", "0.5", "--gradient_clip_algorithm", "value"),
        *("--num_sanity_val_steps", "1", "--enable_model_summary", "true"),
        *("--accelerator", "cpu", "--devices", "1", "--num_nodes", "1", "--strategy", "auto"),
        *("--limit_test_batches", "1", "--limit_predict_batches", "1", "--limit_val_batches", "1"),
    ],
    [
        *("--profiler", "pytorch", "--max_steps", "9", "--ema.enabled", "true"),
        *("--benchmark", "true", "--inference_mode", "false", "--optimizer.lr", "auto"),
        *("--reload_dataloaders_every_n_epochs", "1", "--accumulate_grad_batches", "2"),
        *("--val_check_interval", "4", "--check_val_every_n_epoch", "null"),
        *("--logger", "tensorboard", "--enable_progress_bar", "false", "--sync_batchnorm"),
    ],
    ["--profiler", "advanced", "--val_check_interval", "00:00:00:01", "--precision", "64-true"],
    ["--profiler", "simple", "--overfit_batches", "2", "--deterministic", "warn"],
    ["--fast_dev_run", "2", "--profiler", "pytorch", "--limit_train_batches", "0.5"],
]
LIMITS = ["--max_epochs", "2", "--limit_train_batches", "6", "--export.enabled", "false"]
DATA = ["--data", "tests.tiny.TinyImages", "--data.num_train", "96", "--allow_external_code"]


def test_no_flag_of_the_trainer_is_left_out() -> None:
    used = {word.removeprefix("--") for run in [*RUNS, LIMITS] for word in run if word[:2] == "--"}
    assert {flag.name for flag in all_flags().values() if flag.trainer} - used == set()


@pytest.mark.parametrize("flags", RUNS, ids=lambda flags: " ".join(flags[:4]))
def test_the_run_ends_well_and_says_nothing_stray(tmp_path: Path, flags: list[str], capfd) -> None:
    arguments = [*LIMITS, *DATA, "--lr_finder.num_steps", "10", "--runs_dir", str(tmp_path)]
    try:
        assert main([*arguments, *flags]) == 0
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False
    assert capfd.readouterr().err == ""
    reports = [path.name for path in tmp_path.glob("*/*/*.txt")]
    is_profiled = "--fast_dev_run" not in flags
    assert sorted(reports) == (["fit-profile.txt", "test-profile.txt"] if is_profiled else [])
