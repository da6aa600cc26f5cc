"""Each configuration for texts trains on a little data of its kind."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fresh_process import run_script

PROJECT = Path(__file__).resolve().parents[2]
WORDS = {"sports": "match goal team", "tech": "phone chip code"}


def text(label: str, number: int) -> str:
    return f"{WORDS[label]} {number} said {'the ' * (number % 7)}"


def bbc_news(folder: Path) -> list[str]:
    for label in WORDS:
        (folder / label).mkdir()
        for number in range(60):
            (folder / label / f"{number}.txt").write_text(text(label, number))
    return ["--data.root", str(folder), "--max_epochs", "3"]


def text_files(folder: Path) -> list[str]:
    rows = [{"text": text(label, n), "label": label} for n in range(60) for label in WORDS]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return ["--data.root", str(folder / "rows.jsonl"), "--max_epochs", "2"]


CASES: dict[str, Callable[[Path], list[str]]] = {
    "bbc_news.yaml": bbc_news,
    "text_files.yaml": text_files,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_configuration_trains(name: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    arguments = [
        *("--config", str(PROJECT / "configs" / name), *CASES[name](tmp_path / "data")),
        *("--data.cache_dir", str(tmp_path / "cache"), "--runs_dir", str(tmp_path / "runs")),
        *("--accelerator", "cpu", "--export.enabled", "false", "--data.batch_size", "8"),
    ]
    result = run_script("train.py", *arguments)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    (metrics,) = (tmp_path / "runs").rglob("metrics.csv")
    with metrics.open(newline="") as file:
        scores = [float(row["val/accuracy"]) for row in csv.DictReader(file) if row["val/accuracy"]]
    assert scores[-1] > 0.9
