"""What the configuration fills in by itself, and refuses."""

from pathlib import Path

import pytest

from cli.configuration import configure
from cli.problems import UsageError

WEIGHTS = "ResNet18_Weights.IMAGENET1K_V1"
NETWORK = ["--model", "torchvision", "--model.architecture", "resnet18"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model.weights", WEIGHTS], WEIGHTS),
        (["--model.weights", WEIGHTS, "--data.weights", "null"], None),
        (["--model.weights", WEIGHTS, "--data.weights", "A_Weights.B"], "A_Weights.B"),
        ([], None),
    ],
)
def test_pretrained_weights_bring_their_preprocessing(
    tmp_path: Path, arguments: list[str], expected: str | None
) -> None:
    data = ["--data", "image_folder", "--data.root", str(tmp_path)]
    if expected == "A_Weights.B":
        with pytest.raises(Exception, match="A_Weights.B"):
            configure([*NETWORK, *data, *arguments])
        return
    assert configure([*NETWORK, *data, *arguments])["data"]["weights"] == expected


def test_a_file_of_weights_brings_none(tmp_path: Path) -> None:
    data = ["--data", "image_folder", "--data.root", str(tmp_path)]
    configuration = configure([*NETWORK, *data, "--model.weights", str(tmp_path / "own.pth")])
    assert configuration["data"]["weights"] is None


def test_data_without_such_a_setting_is_left_alone() -> None:
    assert "weights" not in configure([*NETWORK, "--model.weights", WEIGHTS])["data"]


def test_every_bad_value_is_told_at_once() -> None:
    bad = ["--checkpoint_every", "soon", "--early_stopping.patience", "0", "--optimizer.lr", "-1"]
    with pytest.raises(UsageError) as caught:
        configure(bad)
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max_epochs", "0"], "--max_epochs 0: nothing would be trained"),
        (["--max_steps", "0"], "--max_steps 0: nothing would be trained"),
        (["--limit_train_batches", "0"], "--limit_train_batches 0: nothing would be trained"),
        (["--limit_train_batches", "0.0"], "--limit_train_batches 0.0: nothing would be trained"),
        (["--max_time", "00:00:00:00"], "--max_time 00:00:00:00: nothing would be trained"),
        (
            ["--max_steps", "0", "--max_epochs", "0"],
            "--max_epochs 0 and --max_steps 0: nothing would be trained",
        ),
        (["--max_epochs", "2", "--min_epochs", "3"], "--min_epochs 3 is more than --max_epochs 2"),
        (["--max_steps", "9", "--min_steps", "10"], "--min_steps 10 is more than --max_steps 9"),
    ],
)
def test_a_run_that_trains_nothing_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        configure(arguments)
    (problem,) = refused.value.problems
    assert problem.startswith(message)


@pytest.mark.parametrize(
    "arguments",
    [["--max_epochs", "-1", "--max_steps", "3"], ["--min_epochs", "3", "--max_epochs", "3"],
     ["--limit_val_batches", "0"], ["--limit_test_batches", "0"], ["--max_time", "00:00:00:01"]],
)  # fmt: skip
def test_a_run_that_trains_little_is_not(arguments: list[str]) -> None:
    assert configure(arguments)
