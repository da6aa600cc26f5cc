"""What the configuration fills in by itself, and refuses."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from cli import configuration
from cli.problems import UsageError
from lightning_modules.checkpoint import DESCRIPTION_FORMAT
from tests.parts import needs
from train import CALLBACKS


def configure(arguments: list[str]) -> dict[str, Any]:
    return configuration.configure(arguments, CALLBACKS)


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
    tmp_path: Path,
    arguments: list[str],
    expected: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ["--data", "image_folder", "--data.root", str(tmp_path)]
    if expected == "A_Weights.B":
        with pytest.raises(Exception, match="A_Weights.B"):
            configure([*NETWORK, *data, *arguments])
        return
    assert configure([*NETWORK, *data, *arguments])["data"]["weights"] == expected
    said = f"data.weights {WEIGHTS}, as --model torchvision asks\n" if expected else ""
    assert capsys.readouterr().out == said


def test_a_file_of_weights_brings_none(tmp_path: Path) -> None:
    data = ["--data", "image_folder", "--data.root", str(tmp_path)]
    configuration = configure([*NETWORK, *data, "--model.weights", str(tmp_path / "own.pth")])
    assert configuration["data"]["weights"] is None


def test_what_data_does_not_take_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "weights" not in configure([*NETWORK, "--model.weights", WEIGHTS])["data"]
    assert capsys.readouterr().out == (
        f"not taken, as --data digits has no such setting: data.weights {WEIGHTS}, which --model "
        "torchvision asks for\n"
    )


def test_every_bad_value_is_told_at_once() -> None:
    bad = ["--checkpoint_every", "soon", "--early_stopping.patience", "0", "--optimizer.lr", "-1"]
    with pytest.raises(UsageError) as caught:
        configure(bad)
    assert len(caught.value.problems) == 3


def test_later_files_win_over_earlier_ones_and_flags_over_all(tmp_path: Path) -> None:
    for name, text in (
        ("a", "max_epochs: 3\nseed: 1\nmodel.width: 4\noptimizer: sgd"),
        ("b", "seed: 2\nschedule: step\noptimizer:\n  lr: 0.5"),
        ("c", "schedule.name: constant"),
    ):
        (tmp_path / f"{name}.yaml").write_text(text)
    files = [word for name in "abc" for word in ("--config", str(tmp_path / f"{name}.yaml"))]
    configuration = configure([*files[:2], "--model.width", "5", *files[2:]])
    assert configuration["max_epochs"] == 3
    assert configuration["seed"] == 2
    assert configuration["model"]["width"] == 5
    assert configuration["schedule"]["name"] == "constant"
    assert configuration["optimizer"]["name"] == "sgd"
    assert configuration["optimizer"]["lr"] == 0.5


def test_what_is_wrong_in_several_files_comes_in_one_answer(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("seed: 1\nseed: 2")
    (tmp_path / "b.yaml").write_text("- 1")
    (tmp_path / "c.yaml").write_text("model: small_cnn")
    with pytest.raises(UsageError) as caught:
        configure([f"--config={tmp_path / name}.yaml" for name in "abcd"])
    assert [line.partition(".yaml: ")[2] for line in caught.value.problems] == [
        "seed stands in lines 1 and 2",
        "expected 'name: value' lines",
        "No such file or directory",
    ]


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        ("--gradient_clip_val -1", ["--gradient_clip_val must be a number >= 0 "]),
        ("--max_epochs -1", ["the schedule needs an end"]),
        ("--max_epochs 3 --min_epochs 4", ["--min_epochs 4 is more than --max_epochs 3"]),
        ("--max_steps 3 --min_steps 4", ["--min_steps 4 is more than --max_steps 3"]),
        ("--gradient_clip_algorithm norm", ["does nothing without --gradient_clip_val"]),
        ("--max_time 1", ["--max_time must be a time as DD:HH:MM:SS, got '1'"]),
        ("--val_check_interval x:y", ["--val_check_interval must be a time as DD:HH:MM:SS"]),
        ("--resume a --test_only b", ["--test_only and --resume exclude each other"]),
        (
            "--seed -1 --num_nodes 0 --strategy dpp --checkpoint_every soon --model.dropout 1",
            ["--seed must", "--num_nodes must", "--model.dropout must", "--strategy dpp",
             "--checkpoint_every must"],
        ),
        pytest.param(
            "--lr_finder.min_lr 2 --unfreeze.epoch 0 --ema.decay 1 --max_time x",
            ["--unfreeze.epoch must", "--ema.decay must", "--lr_finder needs", "--max_time must"],
            marks=needs("lr_finder", "unfreeze", "ema"),
        ),
        ("--loss.class_weights [1,-1]", ["--loss.class_weights must be balanced or list of "]),
    ],
)  # fmt: skip
def test_each_number_has_its_range_and_all_are_told(line: str, messages: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        configure(line.split())
    problems = sorted(caught.value.problems)
    assert len(problems) == len(messages), problems
    assert all(any(text in problem for problem in problems) for text in messages), problems


def checkpoint_in(folder: Path, **config: object) -> str:
    """Only what the configuration reads of one."""
    path = folder / "runs" / "digits-small_cnn" / "run" / "checkpoints" / "last.ckpt"
    path.parent.mkdir(parents=True)
    stored = configure(["--model.stages", "3"])
    names = ("resume", "test_only", "replay", "config", "print_config", "allow_changes", "debug")
    plain = {n: v for n, v in stored.items() if n not in (*names, "allow_external_code")}
    description = {
        "format": DESCRIPTION_FORMAT, "network": {"name": "", "arguments": {}},
        "class_names": [], "input_spec": {"inputs": []}, "preprocessing": {"kind": "image"},
        "files": {}, "normalisation": {}, "config": plain | config,
    }  # fmt: skip
    torch.save({"state_dict": {}, "description": description}, path)
    (path.parent.parent / "config.yaml").write_text("seed: 0\n")
    return str(path)


@pytest.mark.parametrize("how", ["--resume", "--test_only", "--replay"])
def test_a_checkpoints_network_data_and_optimizer_stay(tmp_path: Path, how: str) -> None:
    path = checkpoint_in(tmp_path)
    others = ["--model", "cifar_resnet", "--data", "mnist", "--optimizer", "sgd"]
    with pytest.raises(UsageError) as caught:
        configure([how, path, *others])
    assert [line.partition(", which cannot")[0] for line in caught.value.problems] == [
        f"--model cifar_resnet: {path} is of --model small_cnn",
        f"--data mnist: {path} is of --data digits",
        f"--optimizer sgd: {path} is of --optimizer adamw",
    ]
    (tmp_path / "a.yaml").write_text("model: bilstm\nmodel.num_layers: 2\n")
    with pytest.raises(UsageError, match="--model bilstm: .* is of --model small_cnn"):
        configure([how, path, "--config", str(tmp_path / "a.yaml")])
    assert configure([how, path, "--model", "small_cnn"])["model"]["stages"] == 3


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["--model", "lightning_modules.networks.small_cnn.SmallCNN"],
        ["--data", "datamodules.digits.Digits"],
    ],
)
def test_resume_auto_looks_where_a_run_of_the_same_flags_writes(
    tmp_path: Path, names: list[str]
) -> None:
    experiment = configure(names)["experiment"]
    (tmp_path / experiment).mkdir()
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / experiment))):
        configure([*names, "--resume", "auto", "--runs_dir", str(tmp_path)])


def test_data_that_has_moved_is_said_with_both_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = checkpoint_in(tmp_path, data={"name": "digits", "root": str(tmp_path / "gone")})
    with pytest.raises(UsageError) as caught:
        configure(["--resume", path])
    (problem,) = caught.value.problems
    assert f"--data.root {tmp_path / 'gone'}" in problem
    assert f"started in {tmp_path}" in problem
    assert configure(["--resume", path, "--data.root", "elsewhere"])["data"]["root"] == "elsewhere"


@needs("unfreeze")
def test_devices_auto_and_frozen_layers_pass_the_checks_on_machines_with_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cli.configuration.check_machine", lambda settings: [])
    seen: list[dict] = []
    monkeypatch.setattr("pytorch_lightning.Trainer", lambda **arguments: seen.append(arguments))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert configure([])["data"]["batch_size"] == 64  # changed where it is said
    with pytest.raises(UsageError, match="the nearest that fit: 63 or 66"):
        configure(["--devices", "3"])
    configure(["--unfreeze.enabled", "true", "--devices", "4"])
    assert seen[-1]["strategy"] == "ddp_find_unused_parameters_true"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--config", "--config needs a YAML file"),
        ("--resume --compile", "--resume needs auto or a checkpoint"),
        ("--test_only", "--test_only needs a checkpoint"),
        ("--model --seed 1", "--model needs a name, or help"),
        ("--optimizer", "--optimizer needs a name, or help"),
        ("--experiment ../x", "--experiment must be a name below --runs_dir, got '../x'"),
        ("--experiment /x", "--experiment must be a name below --runs_dir, got '/x'"),
        ("--optimizer SGD", "--optimizer.name must be adamw, sgd; got 'SGD'; did you mean sgd?"),
        ("--data MNIST", "--data MNIST is unknown; did you mean mnist? "),
        ("--data ./mine", "did you mean --data image_folder (or text_files) --data.root ./mine?"),
        ("--data configs", "did you mean --data image_folder (or text_files) --data.root configs?"),
        ("--model ResNet50", "did you mean --model torchvision --model.architecture resnet50?"),
        ("--model nets/mine.py", "did you mean an import path, such as lightning_modules."),
    ],
)
def test_what_a_newcomer_types_is_answered_with_what_is_meant(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        configure(line.split())
    (problem,) = caught.value.problems
    assert message in problem


def test_a_folder_in_place_of_a_checkpoint(tmp_path: Path) -> None:
    path = Path(checkpoint_in(tmp_path))
    for folder in (path.parent, path.parent.parent):
        with pytest.raises(FileNotFoundError, match=f"it is a folder; did you mean {path}"):
            configure(["--resume", str(folder)])


@needs("wandb")
def test_wandb_without_its_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CALLBACKS, "wandb")
    with pytest.raises(UsageError, match="--logger wandb needs callbacks/wandb_report.py"):
        configure(["--logger", "wandb"])
    configure([])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--export.formats", "onxx"], "--export.formats onxx: unknown format 'onxx'"),
        (["--export.formats", ""], "unknown format ''"),
        (
            ["--export.formats", "int8", "--export.fail_if_slower", "true"],
            "is timed against onnx: add it",
        ),
        (["--export.max_drop", "-5"], "--export.max_drop must be a number 0 <= x <= 100"),
        (["--export.onnx_translations", "no.TABLE"], "--export.onnx_translations: 'no.TABLE' lies"),
    ],
)
def test_what_no_export_can_do_is_told_before_training(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        configure(arguments)
    assert len(caught.value.problems) == 1
    configure([*arguments[:1], "fp32,onnx-int8"] if "formats" in arguments[0] else [])


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


@needs("cifar_resnet", "torchvision", "ema", "unfreeze")
@pytest.mark.parametrize("name", ["cifar10_resnet", "fashion_mnist", "image_folder"])
def test_a_shipped_file_can_be_tried_with_another_network_and_other_data(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).parents[2] / "configs" / f"{name}.yaml"
    for model in ("small_cnn", "cifar_resnet", "torchvision"):
        found = configure(["--config", str(path), "--model", model, "--data", "digits"])
        assert found["model"]["name"] == model
        assert found["max_epochs"] != 15  # the rest of the file counts
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("left out, as --") and str(path) in line for line in lines)
    assert any("data digits has no such settings: data." in line for line in lines)


@needs("cifar_resnet")
def test_one_line_names_what_a_file_says_of_another_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("model.stages: 3\nmodel.width: 5\nmodel.hidden_features: 9\n")
    found = configure(["--config", str(file), "--model", "cifar_resnet"])
    assert found["model"]["width"] == 5
    assert capsys.readouterr().out == (
        "left out, as --model cifar_resnet has no such settings: model.stages, "
        f"model.hidden_features ({file} is of model small_cnn)\n"
    )
    with pytest.raises(SystemExit):
        configure(["--config", str(file), "--model", "cifar_resnet", "--print_config"])
    printed = capsys.readouterr().out
    assert printed.startswith("# left out, ")
    assert "stages" not in yaml.safe_load(printed)["model"]


@needs("unfreeze", "torchvision")
def test_pretrained_weights_of_a_network_that_was_replaced_prepare_no_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = Path(__file__).parents[2] / "configs" / "resnet50_finetune.yaml"
    arguments = ["--config", str(shipped), "--data.root", str(tmp_path), "--model", "small_cnn"]
    assert configure(arguments)["data"]["weights"] is None
    assert "model.architecture, model.weights (" in capsys.readouterr().out


@needs("cifar_resnet")
@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", "--model.stages 3", "unknown setting --model.stages"),  # given here: an error
        ("model: small_cnn", "--model.stages 3", "unknown setting --model.stages"),
        ("model.stage: 3", "", "unknown setting --model.stage"),  # no network has it
        ("model: cifar_resnet\nmodel.stages: 3", "", "unknown setting --model.stages"),
    ],
)
def test_a_mistake_stays_one(tmp_path: Path, text: str, arguments: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    words = ["--config", str(tmp_path / "a.yaml"), "--model", "cifar_resnet", *arguments.split()]
    with pytest.raises(UsageError, match=message):
        configure(words)


@needs("cifar_resnet")
def test_a_later_file_may_choose_another_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("model: small_cnn\nmodel.stages: 3\n")
    (tmp_path / "b.yaml").write_text("model: cifar_resnet\nmodel.depth: 14\n")
    files = ["--config", str(tmp_path / "a.yaml"), "--config", str(tmp_path / "b.yaml")]
    assert configure(files)["model"]["depth"] == 14
    assert "model.stages" in capsys.readouterr().out
