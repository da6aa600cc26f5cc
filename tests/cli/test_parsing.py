"""From words and files to a configuration; every mistake in one answer."""

from pathlib import Path
from typing import Literal

import pytest
import yaml

from cli.chosen_classes import class_groups
from cli.flags import ELSEWHERE, plain_name
from cli.parsing import ClassGroup, build_parser, help_text, join, judge, known_types, to_yaml
from cli.problems import UsageError, did_you_mean, type_text
from cli.settings import Setting, read_arguments, read_file, settings_of
from lightning_modules.networks.small_cnn import SmallCNN
from lightning_modules.optimizers import build_optimizer
from train import CALLBACKS

FROM_DATA = frozenset({"in_channels", "image_size", "num_classes"})


@pytest.fixture(scope="module")
def parser():
    groups = [
        ClassGroup("model", "Network", SmallCNN, FROM_DATA),
        ClassGroup("optimizer", "Optimizer", build_optimizer, frozenset({"module", "fused"})),
    ]
    return build_parser(groups, {"model": "small_cnn"})


def parse(parser, settings):
    judged = judge(parser, settings)
    if judged.wrong or judged.outside:
        raise UsageError(judged.wrong + judged.outside)
    return join(parser, judged.fine)


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
        (b"[" * 2000, "not valid YAML"),
        (b"a: &x {b: 1}\nc: {d: *x, e: *x}", r"references \(\*name\) are not accepted"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_file(str(path))


@pytest.mark.parametrize("name", ["allow_external_code", "config", "help"])
def test_what_counts_on_the_command_line_only_is_not_dropped(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"model: os.system\n{name}: true\n")
    with pytest.raises(UsageError, match=rf"a\.yaml: line 2: {name} counts on the command line"):
        read_file(str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seed: 1\nmax_epochs: 2\nseed: 2\n", "seed stands in lines 1 and 3"),
        ("optimizer:\n  lr: 1\n  lr: 2\n", "optimizer.lr stands in lines 2 and 3"),
        ("optimizer:\n  lr: 1\noptimizer.lr: 2\n", "optimizer.lr stands in lines 2 and 3"),
        ("optimizer:\n  lr: 1\noptimizer:\n  name: sgd", "optimizer stands in lines 1 and 3"),
        ("model: bilstm\nmodel:\n  width: 3\n", "model stands in lines 1 and 2"),
        ("model: bilstm\nmodel.name: text_cnn\n", "model.name stands in lines 1 and 2"),
        ("seed: 1\nseed: 1\nseed: 1\n", "seed stands in lines 1 and 2 and 3"),
        ("data: {root: a, root: b}", "data.root stands in lines 1 and 1"),
    ],
)
def test_nothing_stands_twice_in_a_file(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_file(str(path))
    assert caught.value.problems == [f"--config {path}: {message}"]


def test_values_of_a_file_arrive_as_they_are_written(tmp_path: Path) -> None:
    """As on the command line: YAML itself would read 8, 90 and a date."""
    path = tmp_path / "a.yaml"
    path.write_text(
        "a: 010\nb: 1:30\nc: 2020-01-01\nd: 1e-3\ne: [1, x]\nf: yes\ng: ~\nh: '5'\ni: 1_0"
    )
    values = [setting.value for setting in read_file(str(path))]
    assert values == ["010", "1:30", "2020-01-01", "1e-3", "[1, x]", "true", "null", "5", "1_0"]


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("? [1, 2]\n: 3")
    with pytest.raises(UsageError, match="expected 'name: value' lines"):
        read_file(str(tmp_path / "a.yaml"))


def test_a_group_in_place_of_a_flag_lists_what_is_in_it(parser) -> None:
    with pytest.raises(UsageError) as caught:
        configure(parser, "--optimizer.nam x --model.widht 3")
    assert "did you mean --optimizer.name?" in caught.value.problems[0]
    with pytest.raises(UsageError) as caught:
        parse(parser, [Setting("optimizer", "1", "")])
    (problem,) = caught.value.problems
    assert problem.startswith("unknown setting --optimizer; it is a group: --optimizer.name, ")


def test_short_names_of_optimizer_and_schedule() -> None:
    settings = read_arguments(["--optimizer", "sgd", "--schedule=step", "--optimizer.lr", "1"])
    assert [s.name for s in settings] == ["optimizer.name", "schedule.name", "optimizer.lr"]


def test_numbers_outside_their_range_are_told_with_it(parser, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model.dropout: 1\nseed: -1\nmax_epochs: 3\n")
    settings = [*read_file(str(path)), *read_arguments(["--num_nodes", "0", "--model.width=.5"])]
    with pytest.raises(UsageError) as caught:
        parse(parser, settings)
    assert caught.value.problems == [
        "--model.width must be a whole number; got '.5'",
        f"{path}: --model.dropout must be a number 0 <= x < 1; got '1'",
        f"{path}: --seed must be a whole number 0 <= x <= 4294967295; got '-1'",
        "--num_nodes must be a whole number >= 1; got '0'",
    ]


def test_help_explains_ranges_in_its_own_words() -> None:
    groups = [ClassGroup("model", "Network", SmallCNN, FROM_DATA, ("small_cnn", "other"))]
    text = help_text(build_parser(groups, {"model": "small_cnn"}))
    assert "Annotated" not in text
    assert "[0 <= x < 1]" in " ".join(text.split())
    assert "--model NAME for short: small_cnn, other" in " ".join(text.split())


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


class NeedsMore(SmallCNN):
    def __init__(self, depth: int, num_classes: int, width: int = 4) -> None: ...


def test_an_argument_without_a_default_is_asked_for_and_hides_no_other_mistake() -> None:
    groups = [ClassGroup("model", "Network", NeedsMore, FROM_DATA)]

    def problems(line: str) -> list[str]:
        with pytest.raises(UsageError) as caught:
            configure(build_parser(groups, {"model": "x"}), line)
        return caught.value.problems

    needed = "--model.depth must be given: a whole number"
    assert problems("--seed 1") == [needed]
    assert problems("--seed x") == [needed, "--seed must be a whole number; got 'x'"]
    found = configure(build_parser(groups, {"model": "x"}), "--model.depth 3 --seed 1")
    assert found["model"]["depth"] == 3


def test_flags_of_text_need_a_value(parser) -> None:
    line = "--experiment --runs_dir --compile --fast_dev_run --deterministic --devices"
    with pytest.raises(UsageError) as caught:
        configure(parser, line)
    assert caught.value.problems == [
        "--experiment must be text or null; got no value",
        "--runs_dir must be text; got no value",
        "--devices must be a whole number or text or list of a whole number; got no value",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("epochs", "; did you mean --max_epochs?"),
        ("learning_rate", "; did you mean --optimizer.lr?"),
        ("scheduler", ""),  # this parser has no schedule
        ("LR", "; did you mean --optimizer.lr?"),
        ("model.image_size", "; there are --model.name, --model.checkpoint_activations, "),
        ("no-export", ""),
    ],
)
def test_names_of_other_tools_and_what_a_group_has(parser, name: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(parser, [Setting(name, "1", "")])
    (problem,) = caught.value.problems
    assert problem.startswith(f"unknown setting --{name}{expected}")
    assert expected or problem == f"unknown setting --{name}"


def test_every_name_of_other_tools_leads_to_a_flag() -> None:
    groups, _ = class_groups([], CALLBACKS)
    types = known_types(build_parser(groups, {"model": "small_cnn", "data": "digits"}))
    for other, ours in ELSEWHERE.items():
        assert plain_name(ours) in types
        assert other not in types
        assert plain_name(other) == other


def test_a_shipped_file_by_its_bare_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    for name in ("bbc_news", "bbc_news.yaml", "config/bbc_news.yml"):
        with pytest.raises(UsageError, match=r"did you mean configs/bbc_news\.yaml\?"):
            read_file(name)
