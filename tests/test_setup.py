"""`make` makes the environment when it must, and only then; every failure is one clear line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_checkout import ROOT, SHIM, Checkout, error_lines, make_checkout

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return make_checkout(tmp_path)


def test_first_run_installs_with_hashes_and_passes_arguments_on(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    result = checkout.make("train", "ARGS=--max_epochs 3")
    assert result.returncode == 0, result.stderr
    first, last = result.stdout.splitlines()
    assert first.startswith("installing the locked environment into .venv (about")
    assert last == "ran train.py --max_epochs 3"
    assert result.stderr == ""
    assert "--require-hashes -r requirements.lock" in checkout.calls.read_text()


def test_unchanged_lock_installs_nothing(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    checkout.make("train")
    result = checkout.make("train")
    assert (result.stdout, result.stderr) == ("ran train.py\n", "")
    assert checkout.installs() == 1


def test_changed_lock_installs_again_in_place(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    checkout.make("train")
    own = checkout.folder / ".venv" / "installed by hand"
    own.touch()
    checkout.change_lock()
    result = checkout.make("train")
    assert result.stdout.splitlines() == ["updating .venv to the changed lock", "ran train.py"]
    assert checkout.installs() == 2
    assert own.exists()
    assert checkout.make("train").stdout == "ran train.py\n"


def test_other_interpreter_makes_the_environment_anew(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    checkout.python("another", "3.13")
    checkout.make("train")
    leftover = checkout.folder / ".venv" / "leftover"
    leftover.touch()
    assert checkout.make("train", "PYTHON=another").stdout.startswith("installing")
    assert not leftover.exists()
    assert checkout.make("train").stdout == "ran train.py\n", "without PYTHON it stays as it is"
    assert checkout.make("train", "PYTHON=another").stdout == "ran train.py\n"


@pytest.mark.parametrize("update", [False, True])
def test_killed_install_is_started_anew(checkout: Checkout, update: bool) -> None:
    checkout.python("python3", "3.12")
    if update:
        checkout.make("train")
        checkout.change_lock()
    assert checkout.make("train", FAKE_PIP_KILLED="yes").returncode != 0
    leftover = checkout.folder / ".venv" / "half a package"
    leftover.touch()
    result = checkout.make("train")
    assert result.stdout.splitlines()[-1] == "ran train.py"
    assert result.stdout.startswith("installing")
    assert not leftover.exists()


def test_failed_install_shows_what_pip_said_and_is_tried_again(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    *pip, last = error_lines(checkout.make("train", FAKE_PIP_STATUS="1"))
    assert pip == ["Collecting torch", "a complaint of pip"]
    assert last == "error: the environment .venv could not be installed; the lines above say why"
    assert checkout.make("train").returncode == 0
    assert checkout.installs() == 2


def test_failed_update_keeps_the_environment(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    checkout.make("train")
    checkout.change_lock()
    assert checkout.make("train", FAKE_PIP_STATUS="1").returncode != 0
    assert checkout.make("train").stdout.startswith("updating")


def test_environment_made_by_hand_is_updated_not_deleted(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    checkout.run("python3", "-m", "venv", ".venv")
    own = checkout.folder / ".venv" / "installed by hand"
    own.touch()
    assert checkout.make("train", FAKE_PIP_STATUS="1").returncode != 0
    assert checkout.make("train").stdout.startswith("updating")
    assert own.exists()


def test_activated_environment_is_not_what_a_new_one_is_made_from(checkout: Checkout) -> None:
    """`python3` is then the one inside the folder that is emptied first."""
    environment = checkout.folder / ".venv"
    path = f"{environment}/bin:/usr/bin:/bin"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (environment / "installed-lock").write_text("incomplete 999999999\n")
    script = (checkout.folder / "setup_environment.sh").read_text()
    finder = script[: script.index("# Makes an empty")] + 'find_python\necho "$python"\n'
    (checkout.folder / "finder.sh").write_text(finder)
    result = checkout.run("sh", "finder.sh", ".venv", PATH=path)
    assert result.returncode == 0, result.stderr
    assert not Path(result.stdout.strip()).is_relative_to(environment)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ({"python3": "3.11", "python3.13": "3.13"}, "3.11"),
        ({"python3": "3.9", "python3.12": "3.12", "python3.11": "3.11"}, "3.12"),
        ({"python3.12": "3.12", "python3.13": "3.13", "python": "3.11"}, "3.13"),
        ({"python3": "3.15", "python3.14": "3.14"}, "3.14"),
        ({"python3": "shim", "python3.13": "shim", "python3.12": "shim", "python": "3.13"}, "3.13"),
    ],
)
def test_first_interpreter_that_runs_and_fits_is_taken(
    checkout: Checkout, versions: dict[str, str], chosen: str
) -> None:
    for name, version in versions.items():
        if version == "shim":
            checkout.program(name, SHIM)
        else:
            checkout.python(name, version)
    result = checkout.make("train")
    assert (result.returncode, result.stderr) == (0, "")
    assert (checkout.folder / ".venv" / "installed-lock").read_text().endswith(f" {chosen}\n")


def test_python_3_14_is_told_once_that_torchscript_is_absent(checkout: Checkout) -> None:
    checkout.python("python3", "3.14")
    sentence = "Python 3.14 has no TorchScript; everything else runs"
    assert sentence in checkout.make("train").stdout.splitlines()
    assert sentence not in checkout.make("train").stdout


@pytest.mark.parametrize(
    ("versions", "argument", "found"),
    [
        ({"python3": "3.9", "python": "2.7"}, "", "python3 is 3.9, python is 2.7"),
        ({}, "", "python3 does not run here"),
        ({"python3": "3.12"}, "PYTHON=python3.99", "python3.99 does not run here"),
        ({"python3": "3.12", "old": "3.10"}, "PYTHON=old", "old is 3.10"),
    ],
)
def test_no_suitable_python_is_one_line(
    checkout: Checkout, versions: dict[str, str], argument: str, found: str
) -> None:
    for name, version in versions.items():
        checkout.python(name, version)
    assert error_lines(checkout.make("train", *argument.split())) == [
        f"error: Python 3.11 to 3.14 is needed, but {found}; "
        "install one or name it: make train PYTHON=/path/to/python3.13"
    ]
    assert not (checkout.folder / ".venv").exists()


def test_missing_venv_is_one_line(checkout: Checkout) -> None:
    checkout.python("python3", "3.11", has_venv=False)
    assert error_lines(checkout.make("test")) == [
        "error: python3 has no venv module; install it (Debian, Ubuntu: apt install python3-venv)"
        " or name another one: make train PYTHON=/path/to/python3.13"
    ]


def test_missing_venv_is_no_matter_where_another_python_has_it(checkout: Checkout) -> None:
    checkout.python("python3", "3.11", has_venv=False)
    checkout.python("python3.12", "3.12")
    assert checkout.make("train").returncode == 0


def test_small_disk_is_one_line_before_anything_is_installed(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    (checkout.programs / "df").unlink()
    disk = "Filesystem 1024-blocks Used Available Capacity Mounted\n/dev/a 9 9 3500000 99% /"
    checkout.program("df", f"#!/bin/sh\necho '{disk}'\n")
    (line,) = error_lines(checkout.make("train"))
    assert line.startswith("error: installing into .venv needs ")
    assert line.endswith(
        " GB of disk, but 3 GB are free; make room or choose another disk: VENV=/other/disk/venv"
    )
    assert checkout.installs() == 0


def test_foreign_folder_is_left_alone(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    thesis = checkout.folder / "work" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.touch()
    assert error_lines(checkout.make("train", "VENV=work")) == [
        "error: work is not a virtual environment; move it away or choose another: VENV=folder"
    ]
    checkout.make("clean", "VENV=work")
    assert thesis.exists()


def test_second_install_at_the_same_time_is_refused(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    sleeper = [sys.executable, "-c", "input()", "setup_environment.sh"]
    with subprocess.Popen(sleeper, stdin=subprocess.PIPE, text=True) as other:
        (checkout.folder / ".venv").mkdir()
        state = checkout.folder / ".venv" / "installed-lock"
        state.write_text(f"incomplete {other.pid}\n")
        lines = error_lines(checkout.make("train"))
        other.communicate("\n")
    assert lines == [f"error: process {other.pid} is installing into .venv; wait until it is done"]
    assert checkout.make("train").returncode == 0


def test_environment_may_be_a_link_to_another_disk(checkout: Checkout, tmp_path: Path) -> None:
    checkout.python("python3", "3.12")
    (tmp_path / "other disk").mkdir()
    (checkout.folder / ".venv").symlink_to(tmp_path / "other disk")
    assert checkout.make("train").returncode == 0
    assert (tmp_path / "other disk" / "bin" / "python").exists()


LINT = ["ran -m ruff check --quiet", "ran -m ruff format --check --quiet", "ran -m mypy"]
ALL_CORES = "-n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder --durations 10"


@pytest.mark.parametrize(
    ("target", "arguments", "pytest_arguments"),
    [
        ("test", "", ALL_CORES),
        ("test", "-x tests/test_setup.py", "-x tests/test_setup.py"),
        ("test-fast", "", f"{ALL_CORES} -m not slow"),
    ],
)
def test_make_test_tests_then_checks(
    checkout: Checkout, target: str, arguments: str, pytest_arguments: str
) -> None:
    checkout.python("python3", "3.12")
    result = checkout.make(target, f"ARGS={arguments}")
    assert result.stdout.splitlines()[1:] == [f"ran -m pytest {pytest_arguments}", *LINT]
    assert checkout.make("lint").stdout.splitlines() == LINT


def test_make_alone_prints_the_targets_and_installs_nothing(checkout: Checkout) -> None:
    result = checkout.make()
    assert result.returncode == 0
    for target in ("train", "test", "test-fast", "lint", "bench", "lock", "clean"):
        assert f"make {target} " in result.stdout


def test_clean_removes_the_environment_and_keeps_runs(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    checkout.make("train")
    (checkout.folder / "runs").mkdir()
    (checkout.folder / "callbacks" / "__pycache__").mkdir(parents=True)
    assert checkout.make("clean").returncode == 0
    assert not (checkout.folder / ".venv").exists()
    assert not (checkout.folder / "callbacks" / "__pycache__").exists()
    assert (checkout.folder / "runs").exists()


def test_ci_keeps_one_environment_a_lock_outside_of_the_checkout(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    cache = checkout.folder / "cache"
    (cache / "venv-of-an-older-lock").mkdir(parents=True)
    (cache / "not ours").mkdir()
    for _ in range(2):
        result = checkout.run("bash", ".ci/run", FOUNDRY_VENV_CACHE=str(cache), CI="true")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.splitlines()[-5:] == [
            f"ran -m pytest {ALL_CORES}", *LINT, "ran -m benchmarks.training",
        ]  # fmt: skip
    assert checkout.installs() == 1
    assert not (checkout.folder / ".venv").exists()
    kept = sorted(path.name[:5] for path in cache.iterdir())
    assert kept == ["not o", "venv-"]


def test_ci_judges_by_tests_and_not_by_speed(checkout: Checkout) -> None:
    checkout.python("python3", "3.12")
    slow = checkout.run("bash", ".ci/run", FAKE_FAILING="benchmarks")
    assert slow.returncode == 0
    assert "the speed table failed (exit code 2); the tests above decide" in slow.stdout
    wrong = checkout.run("bash", ".ci/run", FAKE_FAILING="pytest")
    assert wrong.returncode != 0
    assert "benchmarks" not in wrong.stdout


@pytest.mark.parametrize("script", ["setup_environment.sh", ".ci/run"])
def test_shell_scripts_parse(script: str) -> None:
    shell = "sh" if script.endswith(".sh") else "bash"
    assert subprocess.run([shell, "-n", str(ROOT / script)]).returncode == 0
