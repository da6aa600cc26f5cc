"""The diff that a forker writes for each part of their own: a small file, and flags."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cli.building import build_data
from cli.configuration import configure
from cli.problems import UsageError
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.deployed import load_deployed
from tests.datamodules.pictures import save_tree
from train import CALLBACKS, main

SHORT = ["--max_epochs", "1", "--limit_train_batches", "2", "--limit_val_batches", "1"]
SHORT += ["--optimizer.lr", "0.01", "--export.enabled", "false", "--gradient_check.before_fit"]
SHORT += ["false", "--check_data", "off"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose own_parts.py can be imported."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop("own_parts", None)
    yield folder / "own_parts.py"
    sys.modules.pop("own_parts", None)


def train(folder: Path, *arguments: str) -> int:
    return main([*SHORT, "--runs_dir", str(folder / "runs"), "--allow_external_code", *arguments])


def last_checkpoint(folder: Path) -> Path:
    (path,) = folder.glob("runs/*/*/checkpoints/last.ckpt")
    return path


# ---- networks -----------------------------------------------------------------------------


NETWORKS = """
from torch import nn

def create(width: int = 4, num_classes: int = 1000, in_chans: int = 3, img_size: int = 224):
    layers = nn.Conv2d(in_chans, width, 3, 2), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(width * ((img_size - 1) // 2) ** 2, num_classes))

def create_model(model_name: str = "create", pretrained: bool = True, **kwargs):
    return globals()[model_name](**{"img_size": 28} | kwargs)

def pair(num_classes, in_chans):
    class Pair(nn.Sequential):
        def forward(self, images):
            return super().forward(images), images
    return Pair(nn.Flatten(), nn.Linear(784, num_classes))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags", "arguments"),
    [
        ("create", "--model.width 3", {"in_chans": 1, "img_size": 28, "width": 3}),
        ("create_model", "--model.width 3", {"in_chans": 1, "pretrained": True, "width": 3}),
    ],
)
def test_a_function_is_a_network(
    own: Path, tmp_path: Path, name: str, flags: str, arguments: dict[str, object]
) -> None:
    own.write_text(NETWORKS)
    assert train(tmp_path, "--model", f"own_parts.{name}", *flags.split()) == 0
    path = last_checkpoint(tmp_path)
    checkpoint = read_checkpoint(path)
    assert arguments.items() <= checkpoint["description"]["network"]["arguments"].items()
    model = load_deployed(checkpoint, allow_external_code=True)
    assert model(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)).shape == (2, 10)
    again = ["--resume", str(path), "--max_epochs", "2", "--allow_changes"]
    assert main([*SHORT, *again, "--allow_external_code"]) == 0
    assert main(["--test_only", str(path), "--allow_external_code"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--model own_parts.pair", 1, "network own_parts.pair answers in training with a tuple of"),
        ("--model own_parts.create --model.depth 3", 2, "unknown setting --model.depth"),
        ("--model own_parts.create --model.img_size 9", 2, "unknown setting --model.img_size"),
        ("--model own_parts.create_model --model.depth 3", 2, "cannot be built: .* 'depth'"),
        ("--model own_parts.create_model --model.in_chans 3", 2, "unknown .* --model.in_chans"),
        ("--model own_parts.nothing", 2, "cannot import 'own_parts.nothing'"),
        (
            "--model torchvision.models.resnet18",
            1,
            "to have 3 channels, but got 1",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_one_message(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int,
    message: str,
) -> None:  # fmt: skip
    own.write_text(NETWORKS)
    assert train(tmp_path, *arguments.split()) == code
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert error.count("\n") == 1


ASKING = """
from torch import nn

class Asks(nn.Module):
    def __init__(self, num_classes: int, image_size: tuple[int, int], side: int = 12):
        super().__init__()
        assert image_size == (side, side)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, num_classes))
    def forward(self, images):
        return self.layers(images)
    @staticmethod
    def data_defaults(arguments):
        return {"image_size": arguments["side"], "mean": [0.5] * 3, "std": [0.25] * 3, "hue": 1}

def build(num_classes: int, image_size: int):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size**2, num_classes))

build.data_defaults = {"image_size": 10}

def wrong(num_classes: int):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))

wrong.data_defaults = {"image_size": "large"}
"""


@pytest.mark.slow
def test_a_network_says_what_it_asks_of_the_data(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write_text(ASKING)
    tree = save_tree(tmp_path / "pictures", {"a": 20, "b": 20, "c": 20}, (16, 16))
    data = ["--data", "image_folder", "--data.root", str(tree)]
    data += ["--data.cache_dir", str(tmp_path / "cache")]
    assert train(tmp_path, "--model", "own_parts.Asks", "--model.side", "9", *data) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "data.image_size 9, data.mean [0.5, 0.5, 0.5], data.std [0.25, 0.25, 0.25]" in lines[0]
    assert lines[0].endswith(", as --model own_parts.Asks asks")
    assert lines[1] == (
        "not taken, as --data image_folder has no such setting: data.hue 1, which --model "
        "own_parts.Asks asks for"
    )
    description = read_checkpoint(last_checkpoint(tmp_path))["description"]
    assert description["config"]["data"]["image_size"] == 9
    assert description["normalisation"] == {"mean": [0.5] * 3, "std": [0.25] * 3}
    again = ["--resume", str(last_checkpoint(tmp_path)), "--max_epochs", "2", "--allow_changes"]
    assert main([*SHORT, *again, "--allow_external_code"]) == 0
    assert " asks" not in capsys.readouterr().out  # it stands in the checkpoint


def test_what_the_user_gives_goes_before_what_a_network_asks(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write_text(ASKING)
    flags = ["--data", "image_folder", "--data.root", str(tmp_path), "--allow_external_code"]
    asks = ["--model", "own_parts.build", *flags]
    assert configure(asks, CALLBACKS)["data"]["image_size"] == 10
    assert configure([*asks, "--data.image_size", "7"], CALLBACKS)["data"]["image_size"] == 7
    assert configure([*asks, "--data.image_size", "null"], CALLBACKS)["data"]["image_size"] is None
    with pytest.raises(UsageError, match="data_defaults of own_parts.wrong: --data.image_size mu"):
        configure(["--model", "own_parts.wrong", *flags], CALLBACKS)


# ---- losses -------------------------------------------------------------------------------


LOSSES = """
import torch
from torch.nn.functional import cross_entropy

calls = []

def focal(logits, targets, gamma: float = 2.0):
    calls.append(gamma)
    losses = cross_entropy(logits, targets, reduction="none")
    return (1 - (-losses).exp()) ** gamma * losses

class Smooth:
    def __init__(self, share: float, num_classes: int):
        self.share = share / num_classes
    def __call__(self, logits, targets):
        return (1 - self.share) * cross_entropy(logits, targets, reduction="none")

def scalar(logits, targets):
    return cross_entropy(logits, targets)
"""


@pytest.mark.slow
def test_an_own_loss_trains_resumes_and_is_checked(own: Path, tmp_path: Path) -> None:
    own.write_text(LOSSES)
    flags = ["--loss", "own_parts.focal", "--loss.gamma", "1.5", "--optimizer.lr", "auto"]
    flags += ["--gradient_check.before_fit", "true", "--lr_finder.num_steps", "10"]
    flags += ["--lr_finder.min_batches", "1"]
    assert train(tmp_path, *flags) == 0
    calls = sys.modules["own_parts"].calls
    assert set(calls) == {1.5}
    assert len(calls) > 2 + 1 + 12 + 10  # training, validation, test, LR finder; and the check
    path = last_checkpoint(tmp_path)
    assert read_checkpoint(path)["description"]["config"]["loss"] == {
        "name": "own_parts.focal",
        "gamma": 1.5,
    }
    again = ["--resume", str(path), "--max_epochs", "2", "--allow_changes"]
    assert main([*again, "--allow_external_code"]) == 0
    assert set(calls) == {1.5}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--loss own_parts.scalar", 1, r"loss own_parts.scalar gives \[\] for logits \[8, 10\]"),
        ("--loss own_parts.Smooth", 2, "--loss.share must be given: a number"),
        ("--loss own_parts.focal --loss.label_smoothing 0.1", 2, "unknown .*label_smoothing"),
        ("--loss cross_entropie", 2, "unknown; did you mean cross_entropy"),
    ],
)
def test_a_loss_that_does_not_fit_is_one_message(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int,
    message: str,
) -> None:  # fmt: skip
    own.write_text(LOSSES)
    assert train(tmp_path, *arguments.split()) == code
    assert re.search(message, capsys.readouterr().err)


def test_a_class_is_a_loss(own: Path, tmp_path: Path) -> None:
    own.write_text(LOSSES)
    (tmp_path / "a.yaml").write_text("loss.label_smoothing: 0.1\n")  # of the built-in one
    flags = ["--config", str(tmp_path / "a.yaml"), "--loss.share", "0.1"]
    assert train(tmp_path, "--loss", "own_parts.Smooth", *flags) == 0


# ---- callbacks ----------------------------------------------------------------------------


OWN_CALLBACKS = """
import pytorch_lightning as pl

seen = []

class StepCounter(pl.Callback):
    def __init__(self, start: int = 0, label: str = "steps"):
        self.count, self.label = start, label
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1
    def on_train_end(self, trainer, module):
        seen.append((self.label, self.count))
    def state_dict(self):
        return {"count": self.count}
    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]

class Shouts(pl.Callback):
    def on_train_start(self, trainer, module):
        seen.append("start")

class Lists(pl.Callback):
    def state_dict(self):
        return {"found": {1, 2}}

class EMA(pl.Callback):
    pass

class NoCallback:
    pass
"""


@pytest.mark.slow
def test_own_callbacks_train_and_resume(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write_text(OWN_CALLBACKS)
    flags = ["--callbacks", "own_parts.StepCounter", "--callbacks", "own_parts.Shouts"]
    assert train(tmp_path, *flags, "--step_counter.start", "5", "--step_counter.label", "n") == 0
    seen = sys.modules["own_parts"].seen
    assert seen == ["start", ("n", 7)]
    path = last_checkpoint(tmp_path)
    config = read_checkpoint(path)["description"]["config"]
    assert config["callbacks"] == ["own_parts.StepCounter", "own_parts.Shouts"]
    assert config["step_counter"] == {"start": 5, "label": "n"}
    again = [*SHORT, "--resume", str(path), "--max_epochs", "2", "--allow_changes"]
    assert main(again) == 2
    assert "--callbacks: 'own_parts.StepCounter' lies outside" in capsys.readouterr().err
    assert main([*again, "--allow_external_code"]) == 0
    assert seen[2:] == ["start", ("n", 9)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--callbacks own_parts.EMA", "would have the flags --ema, which are taken"),
        ("--callbacks [own_parts.Shouts,own_parts.Shouts]", "the flags --shouts, which are taken"),
        ("--callbacks own_parts.NoCallback", "is no pytorch_lightning.Callback"),
        ("--callbacks own_parts.Shout --shout.loud true", "cannot import 'own_parts.Shout'"),
        ("--callbacks own_parts.StepCounter --step_counter.begin 1", "did you mean --step_counter"),
        ("--callbacks own_parts.StepCounter --step_counter.start x", "must be a whole number"),
    ],
)
def test_a_callback_that_does_not_fit_is_one_message(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    own.write_text(OWN_CALLBACKS)
    assert train(tmp_path, *arguments.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_state_that_cannot_be_resumed_ends_the_run_at_its_first_checkpoint(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write_text(OWN_CALLBACKS)
    assert train(tmp_path, "--callbacks", "own_parts.Lists") == 1
    assert re.fullmatch(
        r"error: callback Lists has set in its state_dict\(\): .*\n", capsys.readouterr().err
    )


# ---- transforms ---------------------------------------------------------------------------


TRANSFORMS = """
import torch

seen = []

class Darken:
    def __call__(self, image, draws):
        seen.append((*draws.tolist(), torch.rand(1).item()))
        return (image * draws[0]).to(torch.uint8)

def to_float(image, draws):
    return image / 255

def cut(image, draws):
    return image[:, 1:]

calls = []

def later(image, draws):
    calls.append(1)
    return image if len(calls) < 40 else image[:, 1:]

def faulty(image, draws):
    return image.no_such()

class Needs:
    def __init__(self, strength):
        pass
"""


@pytest.mark.slow
def test_an_own_transform_draws_the_same_after_a_resume(own: Path, tmp_path: Path) -> None:
    own.write_text(TRANSFORMS)
    flags = ["--data.transform", "own_parts.Darken", "--data.num_workers", "0"]
    seen = importlib.import_module("own_parts").seen
    assert train(tmp_path / "whole", *flags, "--max_epochs", "2") == 0
    whole = sorted(set(seen))
    assert len(seen[0]) == 32 + 1
    assert 2 * 2 * 64 <= len(whole) <= 2 * 2 * 64 + 64  # more where the data is set up
    seen.clear()
    assert train(tmp_path / "parts", *flags) == 0
    path = last_checkpoint(tmp_path / "parts")
    again = ["--resume", str(path), "--max_epochs", "2", "--allow_changes"]
    assert main([*SHORT, *again, "--allow_external_code"]) == 0
    assert sorted(set(seen)) == whole


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("to_float", 1, r"makes torch.float32 \[1, 28, 28\] of an image torch.uint8 \[1, 28, 28\]"),
        ("cut", 1, r"sample 0: .* makes torch.uint8 \[1, 27, 28\] of an image"),
        ("later", 1, r"sample 39: --data.transform makes torch.uint8 \[1, 27, 28\] of an image"),
        ("Needs", 2, "--data.transform own_parts.Needs: .*missing 1 required .* 'strength'"),
        ("none", 2, "cannot import 'own_parts.none'"),
    ],
)
def test_a_transform_that_does_not_fit_is_one_message(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, code: int,
    message: str,
) -> None:  # fmt: skip
    own.write_text(TRANSFORMS)
    assert train(tmp_path, "--data.transform", f"own_parts.{name}") == code
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_transforms_own_fault_keeps_its_trace(own: Path, tmp_path: Path) -> None:
    own.write_text(TRANSFORMS)
    with pytest.raises(AttributeError, match="no_such"):
        train(tmp_path, "--data.transform", "own_parts.faulty")


@pytest.mark.slow
def test_workers_and_batches_make_no_difference_to_a_transform(own: Path, tmp_path: Path) -> None:
    own.write_text(TRANSFORMS)
    found = []
    for workers, batch_size in ((0, 64), (1, 64), (0, 32)):
        flags = ["--data.transform", "own_parts.Darken", "--data.num_workers", str(workers)]
        flags += ["--data.batch_size", str(batch_size), "--allow_external_code"]
        data = build_data(configure(flags, CALLBACKS))
        data.setup()
        batches = [batch for batch, _ in zip(data.train_dataloader(), range(2), strict=False)]
        found.append(torch.cat([inputs["images"] for inputs, *_ in batches]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0][:64], found[2])


# ---- rates of parts -----------------------------------------------------------------------


PARTS = """
from torch import nn

class TwoRates(nn.Module):
    def __init__(self, num_classes: int, scale: float = 0.5, split: bool = True):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU())
        self.head = nn.Linear(8, num_classes)
        self.scale, self.split = scale, split
    def forward(self, images):
        return self.head(self.body(images))
    def parameter_groups(self):
        head = self.head.parameters() if self.split else []
        return [
            {"params": self.body.parameters(), "lr_scale": self.scale},
            {"params": head},
        ]
"""


@pytest.mark.slow
def test_rates_of_parts_are_kept_through_a_resume(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write_text(PARTS)
    flags = ["--model", "own_parts.TwoRates", "--schedule", "constant", "--schedule.warmup", "0"]
    assert train(tmp_path, *flags) == 0
    path = last_checkpoint(tmp_path)
    again = [*SHORT, "--resume", str(path), "--max_epochs", "2", "--allow_changes"]
    again += ["--allow_external_code"]
    for lr, rates in (("0.01", [0.01, 0.005]), ("0.03", [0.03, 0.015])):
        assert (
            main([*again, "--optimizer.lr", lr, "--max_epochs", f"{int(float(lr) * 100) + 1}"]) == 0
        )
        groups = read_checkpoint(path)["optimizer_states"][0]["param_groups"]
        assert sorted({group["lr"] for group in groups}, reverse=True) == pytest.approx(rates)
    again += ["--optimizer.backbone_lr_scale", "0.1", "--max_epochs", "9"]
    capsys.readouterr()
    assert main(again) == 1
    assert "TwoRates has parameter_groups() of its own" in capsys.readouterr().err


@pytest.mark.slow
def test_another_number_of_groups_cannot_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path) == 0
    again = ["--resume", str(last_checkpoint(tmp_path)), "--max_epochs", "2", "--allow_changes"]
    assert main([*SHORT, *again, "--optimizer.backbone_lr_scale", "0.1"]) == 1
    assert "has groups of [4, 6] parameters, but this run's has" in capsys.readouterr().err


# ---- data ---------------------------------------------------------------------------------


SOURCE = """
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

class Rows(pl.LightningDataModule):
    class_names = ["a", "b", "c"]
    fingerprint = "rows"
    normalisation = {"mean": [0.5], "std": [0.5]}
    input_spec = {
        "inputs": [{"name": "images", "dtype": "uint8", "shape": ["batch", 1, 8, 8]}],
        "dynamic": {"batch": [1, 64]},
    }

    def __init__(self, seed: int, batch_size: int = 8) -> None:
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage: str) -> None:
        self.images = torch.arange(96 * 64).view(96, 1, 8, 8).to(torch.uint8)
        self.targets = torch.arange(96) % 3

    @property
    def train_targets(self):
        return self.targets.numpy()

    def network_arguments(self):
        return {"num_classes": 3, "in_channels": 1, "image_size": (8, 8)}

    def example_batch(self):
        return self.images[:4], self.targets[:4]

    def samples(self, split, limit=None):
        return {"images": self.images[:limit].numpy()}, self.targets[:limit].numpy()

    def train_dataloader(self):
        return DataLoader(TensorDataset(self.images, self.targets), self.batch_size)

    val_dataloader = test_dataloader = train_dataloader
"""


@pytest.mark.slow
def test_a_datamodule_by_what_lightning_asks_for_and_the_contract(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write_text(SOURCE)
    assert train(tmp_path, "--data", "own_parts.Rows", "--check_data", "full") == 0
    assert "test, 96 samples" in capsys.readouterr().out
