"""What is refused or said when the fit starts, so that no training is for nothing."""

import importlib.util
import shutil
import sys
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from exporters.fit_check import check, check_export
from exporters.format_choice import choose
from exporters.spec import ExportSpec
from tests.exporters.other_networks import Branching
from tests.exporters.test_spec import IMAGES, TEXT
from tests.tiny import TinyImages, tiny_classifier


class Returns(nn.Module):
    """Returns whatever a function makes of the images."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Any:
        return self.function(images.float().flatten(1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: (x, x), r"forward returns tuple, expected one tensor of logits \[2,3\]"),
        (lambda x: x.sum(1), r"forward returns \[2\], expected logits \[2,3\]"),
        (lambda x: x[:, :4], r"forward returns \[2, 4\], expected logits \[2,3\]"),
        (lambda x: x[:1, :3], r"forward returns \[1, 3\], expected logits \[2,3\]"),
        (lambda x: x[:, :3] / 0 - x[:, :3] / 0, "not finite"),
    ],
)
def test_wrong_outputs_are_refused(function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(Returns(function), ExportSpec.from_json(IMAGES), num_outputs=3)


def test_signature_and_example_must_fit() -> None:
    module = Returns(lambda x: x[:, :3])
    with pytest.raises(ValueError, match=r"takes \(images\), .* gives \(tokens, lengths\)"):
        check(module, ExportSpec.from_json(TEXT))
    spec = ExportSpec.from_json(IMAGES)
    with pytest.raises(ValueError, match="batch of at least 2"):
        check(module, spec, [torch.zeros(1, 1, 8, 8, dtype=torch.uint8)])
    with pytest.raises(ValueError, match=r"expected images uint8 \[batch,1,8,8\], found float32"):
        check(module, spec, [torch.zeros(2, 1, 8, 8)])
    with pytest.raises(ValueError, match=r"found uint8 \[2,3,8,8\]"):
        check(module, spec, [torch.zeros(2, 3, 8, 8, dtype=torch.uint8)])


def test_the_check_leaves_the_module_as_it_was() -> None:
    data = TinyImages()
    data.setup()
    module = tiny_classifier(data)
    model = module.model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check_export(model, module.description, data)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# ---- formats ---------------------------------------------------------------------------------


class NeedsTrainer(pl.LightningModule):
    """A property that only training can answer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)

    @property
    def rate(self) -> float:
        return self.trainer.optimizers[0].param_groups[0]["lr"]

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images.float().flatten(1))


class Breaks(NeedsTrainer):
    """A property that fails in its own way."""

    @property
    def rate(self) -> float:
        raise KeyError("optimizer")


SPEC = ExportSpec.from_json(IMAGES)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="TorchScript is absent there")
@pytest.mark.parametrize(
    ("network", "message"),
    [(NeedsTrainer, "NeedsTrainer is not attached to a `Trainer`"), (Breaks, "KeyError")],
)
def test_a_property_that_torchscript_cannot_read(network: Any, message: str) -> None:
    """Also while a Trainer is there, as when the fit starts."""
    module = network()
    module.trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    for group in ("default", "fp32"):
        note = check(module, SPEC, choice=choose(group))
        assert note is not None
        assert note.startswith("export: torchscript will be unavailable: ")
        assert message in note
        assert len(note.splitlines()) == 1
    with pytest.raises(ValueError, match=f"asked for by name, .*: torchscript: .*{message}"):
        check(module, SPEC, choice=choose("onnx,torchscript"))
    assert check(module, SPEC, choice=choose("onnx,pt2,onnx-int8")) is None


@pytest.mark.parametrize(
    ("name", "missing", "reason"),
    [
        ("aoti", "compiler", "needs a C++ compiler"),
        ("onnx-int8-qat", "torchao", "needs torchao: pip install"),
        ("torchscript", "python", "does not exist on Python 3.14"),
    ],
)
def test_what_cannot_exist_here(
    monkeypatch: pytest.MonkeyPatch, name: str, missing: str, reason: str
) -> None:
    """One line for a group, a refusal for a name; nothing for what was not asked for."""
    if missing == "compiler":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    elif missing == "torchao":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    else:
        monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    module = Returns(lambda x: x[:, :3])
    note = check(module, SPEC, choice=choose("all"))
    assert note is not None
    assert f"export: {name} will be unavailable: " in note
    assert reason in note
    with pytest.raises(ValueError, match=f"cannot be made: {name}: ") as caught:
        check(module, SPEC, choice=choose(f"pt2,{name}"))
    assert reason in str(caught.value)
    assert check(module, SPEC, choice=choose("onnx")) is None


def test_formats_with_one_reason_share_a_line() -> None:
    note = check(Branching(), SPEC, choice=choose("default"))
    assert note is not None
    assert note.startswith("export: pt2, onnx, onnx-int8 will be unavailable: the network")
    assert len(note.splitlines()) == 1


def test_the_flags_are_looked_at_first() -> None:
    data = TinyImages()
    data.setup()
    module = tiny_classifier(data)
    given = module.model, module.description, data
    with pytest.raises(ValueError, match="unknown format 'onxx'"):
        check_export(*given, "onxx")
    with pytest.raises(ValueError, match=r"--export.fail_if_slower: .* add it to --export.formats"):
        check_export(*given, "onnx-int8", fail_if_slower=True)
    assert check_export(*given, "onnx,onnx-int8", fail_if_slower=True) is None
