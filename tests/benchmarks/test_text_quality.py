"""The table's rows on a little data, and their flags as train.py reads them."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LABELS = {"neg": "dull", "pos": "lovely"}


def run(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command], cwd=PROJECT, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_chosen_rows_are_measured_and_their_flags_are_those_of_train(tmp_path: Path) -> None:
    folds, split = tmp_path / "mr", tmp_path / "sst2"
    folds.mkdir()
    split.mkdir()
    texts = {label: [f"{word} caf\xe9 {i}" for i in range(60)] for label, word in LABELS.items()}
    for label, lines in texts.items():
        (folds / f"rt-polarity.{label}").write_text("\n".join(lines), encoding="latin-1")
    for part in ("train", "dev", "test"):
        rows = [f"{part} {t}\t{i}" for i, lines in enumerate(texts.values()) for t in lines]
        (split / f"{part}.tsv").write_text("\n".join(rows))
    out = tmp_path / "results.json"
    out.write_text('{"trec": {}}')
    benchmark = ["-m", "benchmarks.text_quality", "--root", str(tmp_path), "--out", str(out)]
    run(*benchmark, "--only", "mr", "sst2", "--seeds", "5")
    results = json.loads(out.read_text())
    assert results.pop("trec") == {}  # measured earlier
    assert {name: result["seeds"] for name, result in results.items()} == {
        "mr": {"5": 100},
        "sst2": {"5": 100},
    }
    for name, result in results.items():
        flags = shlex.split(result["flags"].replace("DATA/", f"{tmp_path}/"))
        assert f"root: {tmp_path / name}" in run("train.py", *flags, "--print_config")
