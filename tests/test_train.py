"""The main job from the outside: what it prints, what it leaves, how it fails."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from cli.building import build_data, build_model
from cli.configuration import configure
from cli.problems import is_message
from datamodules import DATAMODULES
from exporters import DEFAULT_FORMATS
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.deployed import load_deployed
from lightning_modules.networks import NETWORKS
from tests.datamodules.pictures import save_tree
from tests.fresh_process import run_script
from tests.tiny_sources import write_texts
from train import CALLBACKS, main

ROOT = Path(__file__).resolve().parents[1]
SHORT = ["--max_epochs", "1", "--limit_train_batches", "4", "--optimizer.lr", "0.01"]
NO_EXPORT = ["--export.enabled", "false", "--gradient_check.before_fit", "false"]


def train(folder: Path, *arguments: str) -> int:
    return main([*SHORT, *NO_EXPORT, "--runs_dir", str(folder), *arguments])


def only_run(folder: Path) -> Path:
    (run,) = folder.glob("*/*")
    return run


def train_process(folder: Path, *arguments: str, command: tuple[str, ...] = ()) -> tuple[str, str]:
    """Output and errors; by a command where one is given, else in a warm process."""
    words = ["train.py", "--runs_dir", os.path.relpath(folder, ROOT), *arguments]  # as the default
    result = (
        subprocess.run(
            [*command, *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if command
        else run_script(*words)
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, result.stderr


# ---- the whole job ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_main_job_prints_no_stray_line_and_leaves_proven_exports(tmp_path: Path) -> None:
    output, errors = train_process(tmp_path, "--max_epochs", "4", command=(sys.executable,))
    assert errors == ""
    run = only_run(tmp_path)
    expected = [
        r"data check: 5,000 images, 10 classes, nothing found",
        r"small_cnn \([\d,]+ parameters\) on digits, 1 x cpu, precision 32-true, seed 0",
        r"run folder: .*",
        r"loading: 0 workers \(samples are in memory\)",
        r"lr finder: found [\d.e-]+ \(.*\)",
        *[rf"epoch {n}/4  train/loss .*  val/accuracy [\d.]+  lr .* s" for n in (1, 2, 3, 4)],
        r"training ended: all 4 epochs are done \(epoch 4, step \d+\)",
        r"tested and exported: best.ckpt, epoch \d, step \d+, val/accuracy [\d.]+",
        r"test, 750 samples *",
    ]
    lines = output.splitlines()
    for line, pattern in zip(lines, expected, strict=False):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"
    assert lines[-1] == f"run folder: {os.path.relpath(run, ROOT)}"
    for name in DEFAULT_FORMATS:
        assert re.search(rf"^{name} .* passed", output, re.MULTILINE), output
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert files >= {
        "config.yaml",
        "metrics.csv",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
        "lr_finder.png",
        "lr_finder.csv",
        "learning_curves.png",
        "confusion_matrix.png",
        "test.json",
        "export/manifest.json",
        "export/predict.py",
    }
    assert json.loads((run / "test.json").read_text())["accuracy"] > 0.93


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["lightning", "torchrun"])
def test_two_processes_make_one_run_with_the_same_data(tmp_path: Path, launcher: str) -> None:
    arguments = ["--accelerator", "cpu", "--devices", "2", "--max_epochs", "1"]
    arguments += ["--limit_train_batches", "8", "--export.formats", "onnx", "--sync_batchnorm"]
    arguments += ["--export.skip_timing", "true"]
    arguments += ["--lr_finder.num_steps", "12", "--optimizer.lr", "auto"]
    torchrun = (str(Path(sys.executable).parent / "torchrun"), "--nproc_per_node", "2")
    command = torchrun if launcher == "torchrun" else ()
    output, _ = train_process(tmp_path, *arguments, command=command)
    run = only_run(tmp_path)
    assert "2 x cpu" in output
    assert output.count("test, 750 samples") == 1
    assert output.count("lr finder:") == 1
    assert output.count("epoch 1/1") == 1
    assert len(re.findall(r"^onnx .* passed", output, re.MULTILINE)) == 1
    assert len((run / "metrics.csv").read_text().splitlines()) == 3  # header, epoch, test


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--precision", "bf16-mixed"],
        ["--precision", "16-mixed", "--gradient_clip_val", "1"],
        ["--precision", "bf16-mixed", "--gradient_clip_val", "1"],
        ["--accumulate_grad_batches", "3"],
        ["--ema.enabled", "true"],
        ["--model.checkpoint_activations", "true"],
        ["--optimizer.name", "sgd", "--schedule.name", "warmup_cosine_plateau"],
        ["--loss.class_weights", "balanced", "--loss.label_smoothing", "0.1"],
        ["--gradient_clip_val", "1.0", "--schedule.name", "onecycle"],
        ["--profiler", "simple"],
        ["--logger", "tensorboard"],
        ["--max_steps", "3", "--max_epochs", "-1"],
        ["--val_check_interval", "2"],
        ["--check_val_every_n_epoch", "2", "--max_epochs", "2"],
        ["--limit_val_batches", "0"],
        ["--data.num_workers", "1"],
        ["--enable_progress_bar", "false"],
        ["--checkpoint.enabled", "false"],
        ["--enable_model_summary", "true"],
        ["--num_sanity_val_steps", "2"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_each_setting_trains(tmp_path: Path, arguments: list[str]) -> None:
    """In one process; every warning is an error here."""
    assert train(tmp_path, *arguments) == 0
    assert (only_run(tmp_path) / "metrics.csv").is_file()


@pytest.mark.slow
def test_a_fast_run_leaves_nothing(tmp_path: Path) -> None:
    assert main(["--fast_dev_run", "--runs_dir", str(tmp_path)]) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_overfitting_skips_rate_finder_and_export_and_says_so(tmp_path: Path, capsys) -> None:
    arguments = ["--overfit_batches", "1", "--max_epochs", "1", "--runs_dir", str(tmp_path)]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert "no export with --overfit_batches" in output
    assert "no sweep" in output


@pytest.mark.slow
def test_testing_a_checkpoint_prints_the_same_as_the_run(tmp_path: Path, capsys) -> None:
    assert train(tmp_path) == 0
    table = capsys.readouterr().out.partition("test, 750 samples")[2].partition("run folder")[0]
    checkpoint = only_run(tmp_path) / "checkpoints" / "best.ckpt"
    assert main(["--test_only", str(checkpoint)]) == 0
    assert capsys.readouterr().out.partition("test, 750 samples")[2] == table
    assert "macro mean" in table
    assert len(list(tmp_path.glob("*/*"))) == 1


@pytest.mark.slow
def test_resuming_goes_on_in_the_same_folder_without_a_new_sweep(tmp_path: Path, capsys) -> None:
    assert train(tmp_path, "--optimizer.lr", "auto", "--limit_train_batches", "12") == 0
    run = only_run(tmp_path)
    found = re.search(r"found ([\d.e-]+)", capsys.readouterr().out)
    assert found
    arguments = ["--resume", "auto", "--max_epochs", "3", "--runs_dir", str(tmp_path)]
    assert main([*arguments, "--allow_changes"]) == 0
    output = capsys.readouterr().out
    assert f"lr finder: keeps {found[1]}" in output
    assert "epoch 2/3" in output
    assert "epoch 1/3" not in output
    assert only_run(tmp_path) == run
    rows = (run / "metrics.csv").read_text().splitlines()
    epochs = [row.split(",")[0] for row in rows[1:] if row.split(",")[0]]
    assert epochs[:1] == ["0"]
    assert {"1", "2"} <= set(epochs)


@pytest.mark.slow
def test_two_runs_are_identical_when_deterministic(tmp_path: Path) -> None:
    for name in ("a", "b"):
        train_process(tmp_path / name, *SHORT, *NO_EXPORT, "--deterministic")
    states = [
        torch.load(only_run(tmp_path / name) / "checkpoints" / "last.ckpt", weights_only=True)
        for name in ("a", "b")
    ]
    for name, value in states[0]["state_dict"].items():
        assert torch.equal(value, states[1]["state_dict"][name]), name


def test_word_vectors_reach_the_embedding(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", "{label}/{number}.txt")
    (tmp_path / "a.vec").write_text("says " + "7.5 " * 16 + "\n")
    arguments = ["--data", "text_files", "--model", "bag_of_embeddings"]
    arguments += ["--model.embedding_dim", "16", "--data.vectors", str(tmp_path / "a.vec")]
    arguments += ["--data.root", str(tmp_path / "texts"), "--data.cache_dir", str(tmp_path / "c")]
    configuration = configure(arguments, CALLBACKS)
    data = build_data(configuration)
    data.setup("fit")
    weights = build_model(configuration, data)[0].state_dict()
    rows = [value for value in weights.values() if value.ndim == 2 and value.shape[1] == 16]
    assert any((row == 7.5).all() for value in rows for row in value)


NETWORK_WITH_OBJECTS = """
from enum import Enum
from pathlib import Path
from lightning_modules.networks.small_cnn import SmallCNN

class Size(Enum):
    SMALL = 4
    LARGE = 400

class Net(SmallCNN):
    def __init__(self, in_channels: int, image_size: tuple[int, int], num_classes: int,
                 size: Size = Size.LARGE, place: Path = Path("somewhere")) -> None:
        assert isinstance(size, Size) and isinstance(place, Path) and isinstance(image_size, tuple)
        super().__init__(in_channels, image_size, num_classes, width=size.value)
"""


@pytest.mark.slow
def test_paths_and_enumerations_survive_fit_test_resume_and_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch refuses checkpoints that hold such objects, so they are kept as text."""
    (tmp_path / "objects_net.py").write_text(NETWORK_WITH_OBJECTS)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["--model", "objects_net.Net", "--allow_external_code", "--model.size", "SMALL"]
    assert train(tmp_path / "runs", *arguments) == 0
    last = only_run(tmp_path / "runs") / "checkpoints" / "last.ckpt"
    assert main(["--test_only", str(last), "--allow_external_code"]) == 0
    again = ["--resume", str(last), "--allow_external_code", "--max_epochs", "2"]
    assert main([*again, "--allow_changes"]) == 0
    checkpoint = read_checkpoint(last)
    assert checkpoint["epoch"] == 2
    network: Any = load_deployed(checkpoint, allow_external_code=True).network
    assert network.stages[0][0].out_channels == 4


# ---- configuration ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_run_folder_holds_a_configuration_that_reads_back(tmp_path: Path, capsys) -> None:
    assert train(tmp_path, "--model.width", "5", "--seed", "7") == 0
    written = only_run(tmp_path) / "config.yaml"
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["--config", str(written), "--print_config"])
    assert stopped.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed == yaml.safe_load(written.read_text())
    assert printed["model"]["width"] == 5
    assert printed["seed"] == 7


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_configuration_is_valid_and_complete(path: Path, capsys) -> None:
    content = yaml.safe_load(path.read_text())
    with pytest.raises(SystemExit) as stopped:
        main(["--config", str(path), "--data.root", ".", "--print_config"])
    assert stopped.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["model"]["name"] == content["model"]
    assert printed["data"]["name"] == content["data"]


def errors_of(capsys, *arguments: str) -> list[str]:
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_all_mistakes_come_in_one_answer(capsys) -> None:
    assert errors_of(
        capsys, "--model", "small_cn", "--data", "digit", "--max_epoch", "3", "--data.rot", "x"
    ) == [
        "error: --model small_cn is unknown; did you mean small_cnn? (available: "
        + ", ".join(NETWORKS)
        + ")",
        "error: --data digit is unknown; did you mean digits? (available: "
        + ", ".join(DATAMODULES)
        + ")",
        "error: unknown setting --max_epoch; did you mean --max_epochs?",
    ]


def test_values_out_of_range_come_in_one_answer(capsys) -> None:
    lines = errors_of(
        capsys,
        *("--optimizer.lr", "-1", "--schedule.warmup", "2", "--early_stopping.patience", "0"),
        *("--data.batch_size", "0"),
    )
    assert len(lines) == 4
    assert all(line.startswith("error: --") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--accelerator", "gpu", "--devices", "4"], "--accelerator auto takes what is there"),
        (["--accelerator", "cpu", "--devices", "3"], "the nearest that fit: 63 or 66"),
        (["--strategy", "dpp"], "did you mean ddp?"),
        (["--test_only", "none.ckpt"], "no checkpoint at none.ckpt"),
        (["--resume", "none.ckpt"], "no checkpoint at none.ckpt"),
        (["--model", "os.path.join"], "--allow_external_code"),
        (["--devices", "1,2"], "there say how many processes: --devices 2"),
        (["--num_nodes", "0"], "--num_nodes must be a whole number >= 1; got '0'"),
        (["--accelerator", "tpu"], "torch_xla"),
        (["--strategy", "fsdp"], "shards the weights over the devices"),
        (["--limit_train_batches", "7.5"], "a whole number >= 0 or a number 0 <= x <= 1"),
        (["--max_time", "1"], "--max_time must be a time as DD:HH:MM:SS"),
        (["--seed", "-1"], "--seed must be a whole number 0 <= x <= 4294967295"),
        (["--accumulate_grad_batches", "0"], "must be a whole number >= 1"),
        (["--config", "none.yaml"], "--config none.yaml: No such file"),
        (["--max_epochs", "many"], "--max_epochs must be a whole number or null; got 'many'"),
        (["gpu"], "unexpected argument 'gpu'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_arguments_are_one_line_and_code_2(
    capsys, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (line,) = errors_of(capsys, *arguments)
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss.class_weights", "[1, 2]"], "--loss.class_weights needs 10 finite values >= 0"),
        (["--loss.class_weights", str([0] * 10)], "--loss.class_weights must not all be zero"),
        (["--model", "bilstm"], "network BiLSTM needs vocab_size"),
        (["--model", "small_cnn", "--model.stages", "9"], "halves its input 9 times"),
        (["--data", "image_folder"], "image_folder needs --data.root"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_arguments_that_only_the_data_can_refuse_are_bad_arguments_too(
    tmp_path: Path, capsys, arguments: list[str], message: str
) -> None:
    assert main([*arguments, "--runs_dir", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--max_epochs", "many"], ["--data.root", "/nowhere"]])
def test_debug_shows_where_an_expected_error_was_raised(capsys, arguments: list[str]) -> None:
    code = main([*SHORT, *NO_EXPORT, *arguments])
    (line,) = capsys.readouterr().err.splitlines()
    assert main([*SHORT, *NO_EXPORT, *arguments, "--debug"]) == code > 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == line


def test_a_flag_given_twice_is_said_in_one_line(tmp_path: Path, capsys) -> None:
    arguments = ["--max_epochs", "7", "--fast_dev_run", "--runs_dir", str(tmp_path)]
    assert main([*arguments, "--max_epochs", "1"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "--max_epochs 7 gives way to 1, which was given later"


@pytest.mark.slow
def test_relative_data_is_found_again_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint knows the place; config.yaml says what was given."""
    write_texts(tmp_path / "here" / "texts", "{label}/{number}.txt")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    arguments = ["--data", "text_files", "--data.root", "texts", "--model", "bag_of_embeddings"]
    assert train(tmp_path / "runs", *arguments, "--data.cache_dir", str(tmp_path / "c")) == 0
    run = only_run(tmp_path / "runs")
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["root"] == "texts"
    monkeypatch.chdir(tmp_path / "there")
    last = run / "checkpoints" / "last.ckpt"
    assert main(["--test_only", str(last)]) == 0
    assert main(["--resume", str(last), "--max_epochs", "2", "--allow_changes"]) == 0
    assert read_checkpoint(last)["epoch"] == 2


@pytest.mark.slow
def test_a_checkpoint_meets_inputs_that_are_made_as_in_its_training(tmp_path: Path, capsys) -> None:
    """Equal networks take pictures that are scaled otherwise, and other words under equal ids."""
    save_tree(tmp_path / "images", {"a": 20, "b": 20})
    for name, step in (("texts", 1), ("others", -1)):
        for path in write_texts(tmp_path / name, "{label}/{number}.txt").glob("*/*"):
            path.write_text(path.read_text()[::step])
    images = ["--data", "image_folder", "--data.image_size", "8", "--model.stages", "1"]
    texts = ["--data", "text_files", "--model", "bag_of_embeddings"]
    for name, arguments, changes in (
        ("images", images, {"data.resize exact": "resize was resize_crop, is exact"}),
        ("texts", texts, {
            f"data.root {tmp_path / 'others'}": "tokenizer.json holds something else",
            "data.max_length 9": "max_length was 400, is 9",
        }),
    ):  # fmt: skip
        place = ["--data.root", str(tmp_path / name), "--data.cache_dir", str(tmp_path / "c")]
        assert train(tmp_path / "runs" / name, *arguments, *place) == 0
        last = str(only_run(tmp_path / "runs" / name) / "checkpoints" / "last.ckpt")
        for change, message in changes.items():
            words = f"--{change}".split()
            for command in (["--resume"], ["--test_only"]):
                capsys.readouterr()
                assert main([*command, last, *words]) == 1
                assert message in capsys.readouterr().err
        allowed = ["--max_epochs", "2", "--allow_changes"]
        assert main(["--resume", last, *words, *allowed]) == 0
        assert read_checkpoint(last)["description"]["preprocessing"]


def test_resume_auto_without_a_run(tmp_path: Path, capsys) -> None:
    (line,) = errors_of(capsys, "--resume", "auto", "--runs_dir", str(tmp_path))
    assert "leave --resume out to start one" in line


def test_help_is_grouped_by_subject(capsys) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for title in ("Hardware:", "Optimizer:", "Callback lr finder:", "Model small_cnn"):
        assert title in text


# ---- failures while running ---------------------------------------------------------------


def failure_of(capsys, *arguments: str) -> str:
    assert main([*SHORT, *NO_EXPORT, *arguments]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_an_unwritable_place_for_runs(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").touch()
    line = failure_of(capsys, "--runs_dir", str(tmp_path / "file"))
    assert line.startswith("error: cannot make the run folder")
    assert "--runs_dir" in line


def test_a_loss_that_is_not_finite(tmp_path: Path, capsys) -> None:
    arguments = ["--optimizer.name", "sgd", "--optimizer.lr", "1e30", "--runs_dir", str(tmp_path)]
    line = failure_of(capsys, *arguments)
    assert "became NaN or infinite in epoch 0" in line
    assert "--optimizer.lr" in line


def test_a_misspelt_metric(tmp_path: Path, capsys) -> None:
    line = failure_of(capsys, "--early_stopping.monitor", "val_los", "--runs_dir", str(tmp_path))
    assert "did you mean val/loss?" in line


@pytest.mark.slow
def test_a_checkpoint_of_another_network(tmp_path: Path, capsys) -> None:
    assert train(tmp_path) == 0
    checkpoint = str(only_run(tmp_path) / "checkpoints" / "last.ckpt")
    capsys.readouterr()
    line = failure_of(capsys, "--resume", checkpoint, "--model.width", "7")
    assert "was trained with network" in line
    assert "'width': 7" in line
    content = torch.load(checkpoint, weights_only=True)
    content["state_dict"]["model.mean"] = [1.0]
    torch.save(content, tmp_path / "x.ckpt")
    for command in ("--resume", "--test_only"):
        line = failure_of(capsys, command, str(tmp_path / "x.ckpt"))
        assert "do not fit network 'small_cnn': model.mean is no tensor" in line
    content = torch.load(checkpoint, weights_only=True)
    torch.save(content | {"loops": {}, "optimizer_states": 5}, tmp_path / "x.ckpt")
    line = failure_of(capsys, "--resume", str(tmp_path / "x.ckpt"))
    assert "missing or of another type is loops.fit_loop, optimizer_states" in line


def test_a_missing_data_file(tmp_path: Path, capsys) -> None:
    line = failure_of(capsys, "--data.root", str(tmp_path), "--runs_dir", str(tmp_path / "runs"))
    assert "no mnist_5k.csv.gz in --data.root" in line


@pytest.mark.slow
def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    """A limit on file sizes plays the full disk."""
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000)); "
        "from train import main; sys.exit(main(sys.argv[1:]))"
    )
    (tmp_path / "small_disk.py").write_text(script)
    runs = tmp_path / "runs"
    result = run_script(
        *(tmp_path / "small_disk.py", *SHORT, *NO_EXPORT, "--runs_dir", runs),
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: cannot write checkpoint")
    assert len(result.stderr.splitlines()) == 1
    assert not list(only_run(runs).glob("checkpoints/*"))


@pytest.mark.slow
def test_a_warning_of_a_users_own_network_appears(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "net.py").write_text(
        "import warnings\n"
        "from lightning_modules.networks.small_cnn import SmallCNN\n"
        "class Net(SmallCNN):\n"
        "    def forward(self, images):\n"
        "        warnings.warn('the user wants to see this')\n"
        "        return super().forward(images)\n"
    )
    arguments = [*SHORT, *NO_EXPORT, "--runs_dir", str(tmp_path / "runs")]
    arguments += ["--model", "mine.net.Net", "--allow_external_code"]
    result = run_script("train.py", *arguments, environment={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 0, result.stderr
    assert "UserWarning: the user wants to see this" in result.stderr


def test_a_fault_in_a_users_network_keeps_its_trace() -> None:
    """Only errors raised on purpose become one line."""
    with pytest.raises(RuntimeError) as fault:
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert not is_message(fault.value)
    with pytest.raises(ValueError, match="on purpose") as message:
        raise ValueError("said on purpose")
    assert is_message(message.value)
