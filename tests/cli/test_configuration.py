"""What the configuration fills in by itself, and refuses."""

import re
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
        (["--export.formats", "onxx"], "--export.formats onxx: unknown format 'onxx'"),
        (["--export.formats", ""], "unknown format ''"),
        (
            ["--export.formats", "int8", "--export.fail_if_slower", "true"],
            "is timed against onnx: add it",
        ),
        (["--export.max_drop", "-5"], "percents are 0 to 100"),
    ],
)
def test_what_no_export_can_do_is_told_before_training(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        configure(arguments)
    assert len(caught.value.problems) == 1
    configure([*arguments[:1], "fp32,onnx-int8"] if "formats" in arguments[0] else [])
