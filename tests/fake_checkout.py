"""A checkout on a machine that has only the Pythons a test gives it; nothing is installed.

`python` is a shell script that plays an interpreter of a given version, and its `-m pip` writes
down how it was called. PATH holds only those scripts and the plain tools.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = """
    awk bash cat cp cut df dirname echo env find grep kill ls make mkdir mv ps rm sh sha256sum sleep
    timeout uname
"""

FAKE_PYTHON = """#!/bin/sh
[ "$1" != -I ] || shift
case "$1 $2" in
    "-m venv") mkdir -p "$3/bin" && echo made >"$3/pyvenv.cfg" && cp "$0" "$3/bin/python" ;;
    "-m pip")
        echo "$*" >>"{calls}"
        echo "Collecting torch" && echo "a complaint of pip" >&2
        [ -z "$FAKE_PIP_KILLED" ] || kill -9 $PPID
        exit "${{FAKE_PIP_STATUS:-0}}" ;;
    "-c import pip") ;;
    "-c import ensurepip"*) [ {has_venv} = True ] && echo "$0" ;;
    "-c "*) exec "{real}" -c "import sys; sys.version_info = ({major}, {minor}, 4)
$2" ;;
    *) echo "ran $*"; case "$*" in *"$FAKE_FAILING"*) [ -z "$FAKE_FAILING" ] || exit 3 ;; esac ;;
esac
"""
SHIM = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"


@dataclass
class Checkout:
    """A copy of the set-up files beside a PATH that holds only fakes and plain tools."""

    folder: Path
    programs: Path
    calls: Path

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def python(self, name: str, version: str, has_venv: bool = True) -> None:
        major, minor = version.split(".")
        self.program(
            name,
            FAKE_PYTHON.format(
                calls=self.calls, has_venv=has_venv, real=sys.executable, major=major, minor=minor
            ),
        )

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": str(self.programs), "HOME": str(self.folder / "home")} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("make", *arguments, **environment)

    def installs(self) -> int:
        return self.calls.read_text().count("pip install") if self.calls.exists() else 0

    def change_lock(self) -> None:
        with (self.folder / "requirements.lock").open("a") as lock:
            lock.write("one-more==1.0\n")


def make_checkout(parent: Path) -> Checkout:
    folder, programs = parent / "a checkout", parent / "bin"
    for new in (folder / ".ci", folder / "benchmarks", programs):
        new.mkdir(parents=True)
    for name in ("Makefile", "setup_environment.sh", ".ci/run"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "requirements.lock").write_text("torch==2.14.1\n")
    (folder / "benchmarks" / "training.py").touch()
    for tool in TOOLS.split():
        if path := shutil.which(tool):
            (programs / tool).symlink_to(path)
    return Checkout(folder, programs, parent / "calls")


def error_lines(result: subprocess.CompletedProcess[str]) -> list[str]:
    """What stands on stderr, without the closing line of make itself."""
    assert result.returncode != 0
    return [line for line in result.stderr.splitlines() if not line.startswith("make: ***")]
