"""Which of the parts that the project came with a fork still has; tests of the others are skipped.

A test needs a part by importing its file, by a parameter that is its name, or by `needs`.
"""

import importlib.abc
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import yaml

SHIPPED = {  # name -> file; networks, export formats, callbacks with flags
    "small_cnn": "lightning_modules.networks.small_cnn",
    "cifar_resnet": "lightning_modules.networks.cifar_resnet",
    "torchvision": "lightning_modules.networks.torchvision_network",
    "text_cnn": "lightning_modules.networks.text_cnn",
    "bilstm": "lightning_modules.networks.bilstm",
    "text_transformer": "lightning_modules.networks.text_transformer",
    "bag_of_embeddings": "lightning_modules.networks.bag_of_embeddings",
    "torchscript": "exporters.torchscript",
    "pt2": "exporters.pt2",
    "onnx": "exporters.onnx_float",
    "onnx-int8": "exporters.onnx_int8",
    "onnx-int8-qat": "exporters.onnx_int8_qat",
    "aoti": "exporters.aoti",
    "non_finite": "callbacks.non_finite",
    "checkpoint": "callbacks.checkpointing",
    "unfreeze": "callbacks.unfreeze",
    "lr_finder": "callbacks.lr_finder",
    "early_stopping": "callbacks.early_stopping",
    "gradient_check": "callbacks.gradient_check",
    "ema": "callbacks.ema",
    "test_report": "callbacks.test_report",
    "learning_curves": "callbacks.learning_curves",
    "wandb": "callbacks.wandb_report",
    "export": "callbacks.export",
}


def removed() -> set[str]:
    """Names of the parts that stand in no table any more."""
    from exporters import EXPORTERS
    from lightning_modules.networks import NETWORKS
    from train import CALLBACKS

    return SHIPPED.keys() - {*EXPORTERS, *NETWORKS, *CALLBACKS}


def needs(*names: str) -> pytest.MarkDecorator:
    """Marks a test, a file or a parameter that is about these parts without importing them."""
    assert SHIPPED.keys() >= set(names)
    return pytest.mark.needs(*names)


def named_in(configuration: Path) -> set[str]:
    """The network, and the groups of settings, that a YAML file names."""
    content = yaml.safe_load(configuration.read_text(encoding="utf-8"))
    return {content["model"], *(name.partition(".")[0] for name in content)}


class RemovedParts(importlib.abc.MetaPathFinder):
    """Skips a test, or a file of tests, that imports a part which was removed with its line.

    The last finder is only asked where a file is missing.
    """

    def __init__(self) -> None:
        self.is_asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        names = [name for name, module in SHIPPED.items() if module == fullname]
        if not names or self.is_asking:  # a table that names a file which is not there: an error
            return
        self.is_asking = True
        try:
            gone = names[0] in removed()
        finally:
            self.is_asking = False
        if gone:
            pytest.skip(f"{names[0]} was removed", allow_module_level=True)


def skip_removed(items: Sequence[pytest.Item]) -> None:
    """Skips tests whose mark or parameter names a part that was removed."""
    gone = removed()
    for item in items if gone else ():
        asked = {name for mark in item.iter_markers("needs") for name in mark.args}
        values = getattr(item, "callspec", None)
        asked |= {v for v in (values.params.values() if values else ()) if isinstance(v, str)}
        if found := sorted(asked & gone):
            item.add_marker(pytest.mark.skip(reason=f"{', '.join(found)} was removed"))
