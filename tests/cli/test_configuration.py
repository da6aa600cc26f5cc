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
