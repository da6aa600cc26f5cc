"""Names with a line each, read from files that need not run."""

import sys
from pathlib import Path

import pytest

from cli import catalogue as module
from cli.catalogue import catalogue, choices, first_sentence
from datamodules import DATAMODULES
from lightning_modules.networks import NETWORKS
from lightning_modules.optimizers import build_optimizer
from lightning_modules.schedules import Schedule
from train import main


def write(folder: Path, name: str, text: str) -> None:
    (folder / "nets").mkdir(exist_ok=True)
    (folder / "nets" / f"{name}.py").write_text(text)


def test_the_files_first_sentence_or_the_classs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROJECT", tmp_path)
    write(tmp_path, "one", '"""One net (He et al. 2015): small\\nand fast. Old.\\n\\nMore."""')
    write(tmp_path, "two", '"""Both."""\nclass A:\n    """The A."""\nclass B:\n    """The B."""')
    write(tmp_path, "broken", "def (")
    write(tmp_path, "silent", "raise SystemExit")
    table = {"one": "nets.one.N", "a": "nets.two.A", "b": "nets.two.B", "c": "nets.broken.C",
             "d": "nets.none.D", "e": "nets.silent.E"}  # fmt: skip
    assert catalogue("--model", table).splitlines() == [
        "--model NAME:",
        "  one  One net (He et al. 2015): small and fast",
        "  a    The A",
        "  b    The B",
        "  c    (SyntaxError in nets.broken)",
        "  d    (FileNotFoundError in nets.none)",
        "  e",
        "python train.py --model NAME --help lists the flags of one",
    ]
    assert not any(name.startswith("nets") for name in sys.modules)


@pytest.mark.parametrize("table", [NETWORKS, DATAMODULES])
def test_every_name_of_ours_has_a_line(table: dict[str, str]) -> None:
    for path in table.values():
        assert 15 < len(first_sentence(path, True)) < 120
    assert "(KeyError" not in catalogue("--x", table)


def test_names_of_functions() -> None:
    assert choices("--optimizer", build_optimizer).splitlines() == [
        "--optimizer NAME: adamw, sgd",
        "  adamw (Loshchilov & Hutter 2019) or sgd (Nesterov momentum).",
    ]
    text = choices("--schedule", Schedule)
    assert text.startswith("--schedule NAME: constant, step, cosine, ")
    assert text.endswith("(linear warm-up, cosine, then a plateau rule on the validation loss).\n")


@pytest.mark.parametrize("flag", ["--model", "--data", "--optimizer", "--schedule"])
def test_help_in_place_of_a_name(flag: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([flag, "help"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"{flag} NAME:")
