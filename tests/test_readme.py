"""What README.md tells people to type, and the files it names, exist and work."""

import importlib
import re
from pathlib import Path

import pytest

import train
from cli import configuration
from tests.parts import named_in, removed

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(program: str) -> list[str]:
    """Every `python PROGRAM …` in the text, as its arguments."""
    text = README.replace("\\\n", " ")
    found = re.findall(rf"python {program}\.py((?:[ ]+[\w./\[\]-]+)*)", text)
    return sorted({re.sub(r" +", " ", arguments).strip() for arguments in found})


@pytest.mark.parametrize("line", commands("train"))
def test_every_training_command_is_accepted(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    # as on a machine that has the GPUs
    monkeypatch.setattr(configuration, "check_machine", lambda settings: [])
    monkeypatch.setattr(configuration.pl, "Trainer", lambda **arguments: None)
    arguments = line.replace("my_images", str(tmp_path)).replace("my_texts", str(tmp_path)).split()
    if {"tiny_mlp", "--resume", "--replay"} & set(arguments):
        pytest.skip("followed by a test of its own")
    files = [ROOT / word for word in arguments if word.startswith("configs/")]
    if gone := removed() & set(arguments).union(*map(named_in, files)):
        pytest.skip(f"{gone} was removed")
    if "--help" not in arguments:
        arguments.append("--print_config")
    with pytest.raises(SystemExit) as stopped:
        train.main(arguments)
    assert stopped.value.code == 0
    assert capsys.readouterr().err == ""


def test_there_are_commands_to_test() -> None:
    assert len(commands("train")) > 6
    assert "--config configs/image_folder.yaml --data.root my_images" in commands("train")


@pytest.mark.parametrize("program", ["predict", "export"])
def test_flags_of_other_commands_exist(program: str) -> None:
    valid = importlib.import_module(program).build_parser().format_help()
    flags = {word for line in commands(program) for word in line.split() if word[:2] == "--"}
    assert flags
    for flag in flags:
        assert re.search(rf"(?<!\S){re.escape(flag)}\b", valid.replace("[", " ")), flag


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake (\w+)\b(?!.*the allocator)", README)):
        if target != "it":
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_files_that_are_named_exist() -> None:
    named = re.findall(r"`((?:configs|tests|lightning_modules|docs|exporters)/[\w./]+)`", README)
    named += re.findall(r"\]\((docs/[\w./]+)\)", README)
    assert len(named) > 4
    for name in named:
        assert (ROOT / name).exists(), name


def test_the_captured_run_is_there() -> None:
    assert "CAPTURED_RUN" not in README
    assert re.search(r"^onnx .* passed", README, re.MULTILINE)
