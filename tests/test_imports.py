"""The tree keeps its order, and the rules of import_order.py find every way of breaking it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.import_order import (
    HEAVY,
    arrow_violations,
    heavy_violations,
    name_violations,
    package_violations,
)

ROOT = Path(__file__).resolve().parents[1]

RULES = [arrow_violations, package_violations, heavy_violations, name_violations]


@pytest.mark.parametrize("rule", RULES)
def test_project_keeps_the_rule(rule: Callable[[Path], list[str]]) -> None:
    assert rule(ROOT) == []


def make_tree(root: Path, files: dict[str, str]) -> Path:
    """A sound small tree with `files` added or put in the place of its own."""
    sound = {
        "train.py": "import cli.flags\nfrom callbacks import progress\n",
        "export.py": "def main():\n    import exporters.onnx_float\n",
        "predict.py": "from exporters import runtime\n",
        "cli/__init__.py": "",
        "cli/flags.py": "from datamodules import DATAMODULES\nfrom cli import names\n",
        "cli/names.py": "import difflib\n",
        "callbacks/__init__.py": "",
        "callbacks/run_contract.py": "from typing import Protocol\n",
        "callbacks/progress.py": "import preprocessing.decode\nimport callbacks.run_contract\n",
        "callbacks/export.py": "def plot():\n    from matplotlib import pyplot\n",
        "lightning_modules/__init__.py": "",
        "lightning_modules/classifier.py": "from lightning_modules.networks import NETWORKS\n",
        "lightning_modules/networks/__init__.py": "NETWORKS = {}\n",
        "lightning_modules/networks/cnn.py": "import torch\nfrom ops.swish import swish\n",
        "datamodules/__init__.py": "DATAMODULES = {}\n",
        "datamodules/digits.py": "from datamodules import splits\nimport preprocessing.decode\n",
        "datamodules/splits.py": "import numpy\n",
        "exporters/__init__.py": "EXPORTERS = {}\n",
        "exporters/onnx_float.py": "import onnx\nimport exporters.runtime\n",
        "exporters/runtime.py": "import onnxruntime\nfrom preprocessing.decode import decode\n",
        "preprocessing/__init__.py": "",
        "preprocessing/decode.py": "from PIL import Image\nfrom . import sizes\n",
        "preprocessing/sizes.py": "import numpy as np\n",
        "ops/__init__.py": "",
        "ops/swish.py": "import torch\n",
        "benchmarks/__init__.py": "",
        "benchmarks/training.py": "from datamodules.digits import Digits\nimport cli.flags\n",
        "tests/callbacks/test_export.py": "import callbacks.export\nimport onnx\nimport train\n",
        "tests/test_export.py": "import export\n",
        "runs/digits/export/predict.py": "import lightning\n",
        ".venv/site.py": "import lightning\n",
    }
    for name, text in (sound | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_sound_tree_has_no_violation(tmp_path: Path) -> None:
    make_tree(tmp_path, {})
    assert [violation for rule in RULES for violation in rule(tmp_path)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("train.py", "import export"),
        ("export.py", "def f():\n    from predict import main"),
        ("callbacks/progress.py", "import callbacks.export"),
        ("callbacks/progress.py", "from . import export"),
        ("callbacks/progress.py", "from callbacks import export"),
        ("callbacks/run_contract.py", "import callbacks.export"),
        ("callbacks/progress.py", "from lightning_modules import classifier"),
        ("callbacks/progress.py", "import datamodules.splits"),
        ("callbacks/progress.py", "import exporters.onnx_float"),
        ("callbacks/progress.py", "import cli.flags"),
        ("callbacks/progress.py", "import train"),
        ("callbacks/progress.py", "def f():\n    from exporters.runtime import predict"),
        (
            "callbacks/progress.py",
            "if TYPE_CHECKING:\n    import ops",
        ),
        ("callbacks/progress.py", "import importlib\nimportlib.import_module('exporters.runtime')"),
        ("lightning_modules/classifier.py", "from datamodules.digits import Digits"),
        ("lightning_modules/classifier.py", "import callbacks.progress"),
        ("lightning_modules/classifier.py", "import ops.swish"),
        ("lightning_modules/networks/cnn.py", "from lightning_modules.networks import NETWORKS"),
        ("lightning_modules/networks/mlp.py", "from .cnn import block"),
        ("lightning_modules/networks/mlp.py", "from .. import classifier"),
        ("lightning_modules/networks/mlp.py", "from preprocessing import decode"),
        ("datamodules/digits.py", "import lightning_modules.classifier"),
        ("datamodules/digits.py", "import callbacks.progress"),
        ("exporters/onnx_float.py", "from lightning_modules import classifier"),
        ("exporters/onnx_float.py", "import export"),
        ("exporters/runtime.py", "import exporters.onnx_float"),
        ("exporters/runtime.py", "from exporters import EXPORTERS"),
        ("exporters/answers.py", "import exporters.onnx_float"),
        ("exporters/bundle_files.py", "import exporters.onnx_float"),
        ("preprocessing/decode.py", "import datamodules.splits"),
        ("preprocessing/decode.py", "import exporters.runtime"),
        ("ops/swish.py", "import preprocessing.decode"),
        ("cli/flags.py", "import train"),
        ("train.py", "import benchmarks.training"),
        ("cli/flags.py", "import tests.callbacks.test_export"),
        ("benchmarks/training.py", "from tests import conftest"),
        ("tests/test_export.py", "import benchmarks.training"),
        ("setup.py", ""),
        ("models/resnet18.py", ""),
    ],
)
def test_wrong_arrow_is_found(tmp_path: Path, path: str, text: str) -> None:
    (violation,) = arrow_violations(make_tree(tmp_path, {path: text}))
    assert violation.startswith(path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("callbacks/progress.py", "import lightning"),
        ("callbacks/progress.py", "from lightning.pytorch import Trainer"),
        ("tests/test_export.py", "def f():\n    import lightning.fabric"),
        ("preprocessing/decode.py", "import torch"),
        ("preprocessing/decode.py", "def f():\n    from torch import nn"),
        ("preprocessing/decode.py", "import torchvision.transforms"),
        ("preprocessing/decode.py", "import pytorch_lightning"),
        ("preprocessing/__init__.py", "__import__('torch')"),
        ("exporters/runtime.py", "import torch"),
        ("exporters/runtime.py", "import pyarrow"),
        ("exporters/__init__.py", "import torch"),
        ("datamodules/__init__.py", "from datamodules.digits import Digits"),
        ("lightning_modules/networks/__init__.py", "import torchvision"),
    ],
)
def test_foreign_package_in_the_wrong_place_is_found(tmp_path: Path, path: str, text: str) -> None:
    violations = package_violations(make_tree(tmp_path, {path: text}))
    assert violations
    assert all(violation.startswith(f"{path}:") for violation in violations)


@pytest.mark.parametrize("package", sorted(HEAVY))
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("train.py", "import {}"),
        ("cli/flags.py", "from {}.part import thing"),
        ("callbacks/export.py", "try:\n    import {}\nexcept ImportError:\n    pass"),
        ("callbacks/export.py", "class A:\n    import {}"),
        (
            "lightning_modules/networks/cnn.py",
            "x = importlib.import_module('{}')",
        ),
        ("callbacks/export.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import {}"),
    ],
)
def test_heavy_import_at_start_is_found(tmp_path: Path, path: str, text: str, package: str) -> None:
    (violation,) = heavy_violations(make_tree(tmp_path, {path: text.format(package)}))
    assert violation.startswith(f"{path}:")
    assert f"imports {package} when train.py starts" in violation


def test_heavy_import_is_found_behind_other_files(tmp_path: Path) -> None:
    (violation,) = heavy_violations(make_tree(tmp_path, {"train.py": "import exporters.runtime"}))
    assert violation.startswith("exporters/runtime.py:1")


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import wandb",
        "async def f():\n    import wandb",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import wandb",
        "class A:\n    def f(self):\n        if True:\n            from wandb import sdk",
    ],
)
def test_heavy_import_where_it_is_used_is_fine(tmp_path: Path, text: str) -> None:
    assert heavy_violations(make_tree(tmp_path, {"callbacks/export.py": text})) == []


@pytest.mark.parametrize(
    "path",
    ["datamodules/classifier.py", "exporters/export.py", "cli/digits.py", "benchmarks/swish.py"],
)
def test_repeated_base_name_is_found(tmp_path: Path, path: str) -> None:
    (violation,) = name_violations(make_tree(tmp_path, {path: ""}))
    assert path in violation


def test_vague_name_is_found(tmp_path: Path) -> None:
    (violation,) = name_violations(make_tree(tmp_path, {"cli/utils.py": ""}))
    assert violation == "cli/utils.py says nothing about what is in it"
