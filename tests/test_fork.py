"""What somebody who forks the project does: adds a network in three steps, deletes a piece."""

import re
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from exporters import EXPORTERS
from tests.fresh_process import ROOT, copy_checkout, run_script
from train import CALLBACKS


def delete_line(path: Path, name: str) -> None:
    """Removes the one line of a dict that starts with a quoted name."""
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.strip().startswith(f'"{name}":')]
    assert len(kept) == len(lines) - 1
    path.write_text("".join(kept))


def module_file(folder: Path, import_path: str) -> Path:
    parts = import_path.split(".")
    parts = parts if (folder / Path(*parts)).with_suffix(".py").is_file() else parts[:-1]
    return (folder / Path(*parts)).with_suffix(".py")


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLBACKS)
def test_training_goes_on_without_any_one_callback(tmp_path: Path, name: str) -> None:
    copy = copy_checkout(tmp_path / "fork")
    delete_line(copy / "train.py", name)
    made = CALLBACKS[name]
    callback = made.func if isinstance(made, partial) else made
    module_file(copy, callback.__module__).unlink()
    for fix in ([], ["--fix", "--quiet"]):  # it names the imports that are left, and drops them
        lint = [sys.executable, "-m", "ruff", "check", "--select", "F401", *fix, copy / "train.py"]
        found = subprocess.run(lint, capture_output=True, text=True)
        assert fix or f"{callback.__name__}` imported but unused" in found.stdout
    arguments = ["--max_epochs", "1", "--limit_train_batches", "2", "--optimizer.lr", "0.01"]
    arguments += [] if name == "export" else ["--export.enabled", "false"]
    done = run_script("train.py", *arguments, folder=copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_format_needs_no_other(tmp_path: Path) -> None:
    copy = copy_checkout(tmp_path / "fork")
    arguments = ["--max_epochs", "1", "--limit_train_batches", "2", "--export.enabled", "false"]
    assert run_script("train.py", *arguments, folder=copy).returncode == 0
    (checkpoint,) = (copy / "runs").glob("*/*/checkpoints/best.ckpt")
    for kept in ("onnx", "torchscript"):
        fork = copy_checkout(tmp_path / kept)
        for name in EXPORTERS.keys() - {kept}:
            delete_line(fork / "exporters" / "__init__.py", name)
            module_file(fork, EXPORTERS[name]).unlink()
        done = run_script(
            "export.py", "--ckpt", checkpoint, "--formats", kept, "--skip_timing", folder=fork
        )
        output = done.stdout + done.stderr
        assert done.returncode in (0, 3), output  # 3: unverified, the run left no samples
        assert kept in output


@pytest.mark.slow
def test_the_readmes_three_steps_add_a_network(tmp_path: Path) -> None:
    """The file and the line are taken from README.md, so what it says is what works."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Add your own network")[2].partition("\n## ")[0]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    line = re.search(r'^\s*("\w+": "lightning_modules\.networks\..*",)$', section, re.MULTILINE)
    command = re.search(r"python train\.py (--model [\w .-]+)", section)
    assert code
    assert line
    assert command
    copy = copy_checkout(tmp_path / "fork")
    module = re.search(r'"lightning_modules\.networks\.(\w+)\.', line[1])
    assert module
    networks = copy / "lightning_modules" / "networks"
    (networks / f"{module[1]}.py").write_text(textwrap.dedent(code[1]))
    table = networks / "__init__.py"
    table.write_text(table.read_text().replace("] = {\n", "] = {\n    " + line[1] + "\n", 1))
    arguments = [*command[1].split(), "--max_epochs", "2", "--export.formats", "onnx"]
    arguments += ["--export.skip_timing", "true"]
    done = run_script("train.py", *arguments, folder=copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^onnx .* passed", done.stdout, re.MULTILINE)
