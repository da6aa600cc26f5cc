"""From words and files to a configuration; every mistake in one answer."""

from pathlib import Path
from typing import Literal

import pytest
import yaml

from cli.parsing import (
    ClassGroup,
    build_parser,
    parse,
    read_arguments,
    read_file,
    settings_of,
    to_yaml,
)
from cli.problems import UsageError, did_you_mean, type_text
from lightning_modules.networks.small_cnn import SmallCNN
from lightning_modules.optimizers import build_optimizer

FROM_DATA = frozenset({"in_channels", "image_size", "num_classes"})


@pytest.fixture(scope="module")
def parser():
    groups = [
        ClassGroup("model", "Network", SmallCNN, FROM_DATA),
        ClassGroup("optimizer", "Optimizer", build_optimizer, frozenset({"module", "fused"})),
    ]
    return build_parser(groups, {"model": "small_cnn"})


def configure(parser, line: str):
    return parse(parser, read_arguments(line.split()))


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("--devices 4", "devices", 4),
        ("--devices auto", "devices", "auto"),
        ("--devices [0,2]", "devices", [0, 2]),
        ("--devices=-1", "devices", -1),
        ("--max_steps -1", "max_steps", -1),
        ("--compile", "compile", True),
        ("--compile --seed 3", "compile", True),
        ("--compile false", "compile", False),
        ("--fast_dev_run", "fast_dev_run", True),
        ("--fast_dev_run 3", "fast_dev_run", 3),
        ("--limit_train_batches 10", "limit_train_batches", 10),
        ("--limit_train_batches 0.5", "limit_train_batches", 0.5),
        ("--limit_train_batches 1.0", "limit_train_batches", 1.0),
        ("--val_check_interval 0.25", "val_check_interval", 0.25),
        ("--val_check_interval 100", "val_check_interval", 100),
        ("--gradient_clip_val 1", "gradient_clip_val", 1.0),
        ("--precision bf16-mixed", "precision", "bf16-mixed"),
        ("--precision 16", "precision", "16"),
        ("--deterministic warn", "deterministic", "warn"),
        ("--deterministic", "deterministic", True),
        ("--max_epochs null", "max_epochs", None),
        ("--max_time 00:01:00:00", "max_time", "00:01:00:00"),
        ("--experiment 2024", "experiment", "2024"),
    ],
)
def test_values_arrive_with_their_type(parser, line: str, name: str, value: object) -> None:
    found = configure(parser, line)[name]
    assert found == value
    assert type(found) is type(value)


def takes_lists(
    texts: list[str | int] | None = None,
    shares: list[float] | None = None,
    kinds: list[Literal["case", "number"]] | None = None,
    names: list[str] | None = None,
    weights: Literal["balanced"] | list[float] | None = None,
) -> None: ...


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("texts", "text", ["text"]),
        ("texts", "Review Text: all", ["Review Text: all"]),
        ("texts", "1", [1]),
        ("texts", "[text,1]", ["text", 1]),
        ("texts", "a,b", ["a,b"]),
        ("texts", "null", None),
        ("names", "1", ["1"]),
        ("names", "null", None),
        ("shares", "0.5", [0.5]),
        ("shares", "[1, 2]", [1.0, 2.0]),
        ("kinds", "case", ["case"]),
        ("weights", "balanced", "balanced"),
        ("weights", "2", [2.0]),
    ],
)
def test_one_value_is_a_list_of_one(name: str, value: str, expected: object) -> None:
    parser = build_parser([ClassGroup("data", "Data", takes_lists, frozenset())], {"data": "x"})
    settings = [*read_arguments([f"--data.{name}", value]), *settings_of({"seed": 1}, "a.yaml")]
    assert parse(parser, settings)["data"][name] == expected
    assert parse(parser, settings_of({f"data.{name}": value}, "a.yaml"))["data"][name] == expected
    wrong = read_arguments(["--data.kinds", "upper", "--data.shares", "x"])
    with pytest.raises(UsageError, match="--data.kinds must be list of case, number or null; got"):
        parse(parser, wrong)


def test_short_and_nested_names(parser) -> None:
    configuration = configure(parser, "--model small_cnn --model.width 8 --optimizer.lr 1e-3")
    assert configuration["model"]["name"] == "small_cnn"
    assert configuration["model"]["width"] == 8
    assert configuration["optimizer"]["lr"] == 1e-3


def test_all_mistakes_are_told_at_once_with_what_is_near(parser) -> None:
    line = "--lr 3 --model.widht 3 --max_epochs --compile --devices x.5 --optimizer.lr fast --qqq 1"
    with pytest.raises(UsageError) as caught:
        configure(parser, line.replace("--devices x.5 ", "--precision 8 "))
    assert caught.value.problems == [
        "unknown setting --lr; did you mean --optimizer.lr?",
        "unknown setting --model.widht; did you mean --model.width?",
        "--max_epochs must be a whole number or null; got no value",
        "--precision must be 32-true, 16-mixed, bf16-mixed, 16-true, bf16-true, 64-true, 32, 16, "
        "bf16, 64 or null; got '8'",
        "--optimizer.lr must be a number or auto; got 'fast'",
        "unknown setting --qqq",
    ]


def test_stray_words_are_named() -> None:
    with pytest.raises(UsageError, match="unexpected argument 'gpu'"):
        read_arguments(["gpu", "--devices", "4"])


def test_flags_win_over_the_file(parser, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("max_epochs: 7\nseed: 5\nmodel:\n  name: small_cnn\n  width: 9\n")
    settings = read_file(str(path)) + read_arguments(["--seed", "6"])
    configuration = parse(parser, settings)
    assert configuration["max_epochs"] == 7
    assert configuration["seed"] == 6
    assert configuration["model"]["width"] == 9


def test_dotted_and_short_names_in_a_file(parser, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model: small_cnn\nmodel.width: 9\noptimizer.lr: 1e-4\n")
    configuration = parse(parser, read_file(str(path)))
    assert configuration["model"]["width"] == 9
    assert configuration["optimizer"]["lr"] == 1e-4


def test_a_mistake_in_a_file_names_the_file(parser, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("max_epoch: 7\n")
    message = r"a\.yaml: unknown setting --max_epoch; did you mean --max_epochs\?"
    with pytest.raises(UsageError, match=message):
        parse(parser, read_file(str(path)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [1", "not valid YAML at line"),
        (b"- 1\n- 2\n", "expected 'name: value' lines"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        (b"[" * 5000, "not valid YAML"),
        (b"a: &x {b: 1}\nc: {d: *x, e: *x}", r"references \(\*name\) are not accepted"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_file(str(path))


def test_a_file_cannot_permit_itself_code_from_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("allow_external_code: true\nmodel: os.system\n")
    assert [setting.name for setting in read_file(str(path))] == ["model.name"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml: No such file"):
        read_file(str(tmp_path / "none.yaml"))


def test_the_written_configuration_reads_back_the_same(parser) -> None:
    line = "--devices [0,1] --limit_train_batches 1.0 --experiment null_7 --optimizer.lr auto"
    configuration = configure(parser, line)
    again = parse(parser, settings_of(yaml.safe_load(to_yaml(configuration)), "file"))
    assert again == configuration


def test_help_groups_flags_by_subject(parser) -> None:
    text = parser.format_help()
    for title in ("What to do:", "Hardware:", "Length:", "Network:", "Optimizer:"):
        assert f"\n{title}\n" in text
    assert "CONFIG        Path" not in text


def test_nearest_names() -> None:
    valid = ["max_epochs", "optimizer.lr", "data.batch_size"]
    assert did_you_mean("max_epoch", valid) == "; did you mean max_epochs?"
    assert did_you_mean("batchsize", valid) == "; did you mean data.batch_size?"
    assert did_you_mean("zzz", valid) == ""


def test_types_in_words() -> None:
    assert type_text(int | str | list[int]) == "a whole number or text or list of a whole number"
    assert type_text(float | None) == "a number or null"
