"""Networks with something that a format finds hard, and what a gate needs for each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from exporters.bundle import describe_files, sha256_of
from exporters.candidate import ExportJob, Options
from exporters.evaluation import (
    Case,
    Evaluation,
    run_all,
    sweep,
    tensor_runner,
    write_evaluation,
)
from exporters.program import probe
from exporters.spec import ExportSpec
from exporters.verdict import Limits, Verdict, judge
from exporters.verify import prove
from tasks.single_label import SingleLabel
from tests.exporters import small_run

TASK = SingleLabel(["a", "b", "c"])
TEXT = {
    "inputs": [
        {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
        {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
    ],
    "dynamic": {"batch": [1, 1024], "length": [1, 60]},
}
IMAGES = {
    "inputs": [{"name": "images", "dtype": "uint8", "shape": ["batch", 1, 8, 8]}],
    "dynamic": {"batch": [1, 1024]},
}


class Branching(nn.Module):
    """Dark and bright batches go different ways, chosen by the values."""

    def __init__(self) -> None:
        super().__init__()
        self.dark = nn.Linear(64, 3)
        self.bright = nn.Linear(64, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = images.float().flatten(1) / 255
        if (x - 0.3).sum() > 0:
            return self.bright(x)
        return self.dark(x)


class AttentionPooledLSTM(nn.Module):
    """torch.export unrolls it at the example's length, by default."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.score = nn.Linear(8, 1)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x, _ = self.lstm(self.embedding(tokens))  # [N,L,D]
        inside = torch.arange(x.shape[1]) < lengths[:, None]  # [N,L]
        weight = self.score(x).masked_fill(~inside[:, :, None], -1e9).softmax(dim=1)
        return self.head((weight * x).sum(dim=1))


class ReusedLayers(nn.Module):
    """One ReLU behind two convolutions, as in torchvision's ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        x = self.relu(self.first(images.float() / 255))
        x = self.relu(self.norm(self.second(x)) + x)
        return self.head(x.mean(dim=(2, 3)))


def text_samples(count: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 31, count)
    tokens = generator.integers(1, 20, (count, 30))
    tokens[np.arange(30) >= lengths[:, None]] = 0
    return {"tokens": tokens, "lengths": lengths}


def image_samples(count: int) -> dict[str, np.ndarray]:
    """Ever brighter, so that batches of them differ."""
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 100, (count, 1, 8, 8))
    return {"images": (noise + np.linspace(0, 150, count).reshape(-1, 1, 1, 1)).astype(np.uint8)}


@dataclass(frozen=True)
class Bench:
    """A network ready to be exported and judged."""

    job: ExportJob
    evaluation: tuple[Path, str]

    def judge(self, format_name: str, path: Path, precision: str | None = None) -> Verdict:
        """The gate on a file that lies alone in its folder."""
        files = describe_files(path.parent, path.name)
        input_spec = self.job.description["input_spec"]
        evidence = prove(format_name, path.parent, files, input_spec, *self.evaluation, TASK)
        evidence.precision = precision or evidence.precision
        return judge(evidence, Limits())


def bench(module: nn.Module, folder: Path, options: Options = Options()) -> Bench:  # noqa: B008
    """Samples and reference of a network, which is put in evaluation mode."""
    module.eval()
    is_text = "tokens" in module.forward.__code__.co_varnames
    input_spec: dict[str, Any] = TEXT if is_text else IMAGES
    inputs = (text_samples if is_text else image_samples)(200)
    spec = ExportSpec.from_json(input_spec)
    runner = tensor_runner(module, spec.names)
    logits = run_all(runner, inputs)
    targets = logits.argmax(axis=1)
    cases = [Case(*case) for case in sweep(spec, inputs, runner)]
    path = folder / "evaluation.npz"
    write_evaluation(path, Evaluation(inputs, targets, logits, cases))
    example = spec.example(inputs)
    description = {"input_spec": input_spec, **TASK.values}
    description["probe"] = probe(module, example, spec.dynamic_shapes())[1]
    validation = inputs | {"targets": targets}
    job = ExportJob(
        module, spec, example, description, inputs, len(targets), None, validation, options
    )
    return Bench(job, (path, sha256_of(path)))


def load_branching(run: Path) -> tuple[nn.Module, dict[str, Any]]:
    """A checkpoint's loader that gives the branching network instead."""
    torch.manual_seed(0)
    description = small_run.loader(run)()[1]
    return Branching().eval(), description | {"scores": {}}
