"""Compiles the operators once, on demand, and loads them; `python -m ops.library` does it ahead.

The compiled library lies in the cache folder under a name made of its sources and of torch's
version, so that another checkout or another torch never loads what does not fit.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch
from filelock import FileLock

SOURCES = Path(__file__).parent / "csrc"
NAME = "foundry_ops"
OFF = "FOUNDRY_OPS"  # "fallback": nothing is compiled or loaded


# messages hold the places of sources, and a library goes out into the world with them
COMPILE = """
import os
import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

places = {Path(sys.argv[3]).parent: "csrc", Path(torch.__file__).parent: "torch"}
short = [f"-ffile-prefix-map={place}={name}" for place, name in places.items()]
short *= os.name == "posix"
load(
    sys.argv[1],
    sys.argv[3:],
    extra_cflags=["-O3", *short],
    extra_cuda_cflags=[
        *("-O3", "--expt-relaxed-constexpr", "--expt-extended-lambda"),
        *(f"-Xcompiler={flag}" for flag in short),
    ],
    build_directory=sys.argv[2],
    is_python_module=False,
)
"""


class NoLibrary(RuntimeError):
    """The operators cannot be compiled or loaded here; the message says why."""


def load() -> Path:
    """Registers the operators with torch; compiles them first where that was not done yet.

    Returns:
        The library, which a bundle needs beside a model that uses it.

    Raises:
        NoLibrary: There is no compiler, it fails, or the cache folder cannot be written.
    """
    if os.environ.get(OFF) == "fallback":
        raise NoLibrary(f"{OFF} says so")
    path = library_path()
    try:
        if not path.is_file():
            compile_library(path)
        if not hasattr(torch.ops.foundry, "roi_align"):
            torch.ops.load_library(path)
    except OSError as error:
        raise NoLibrary(f"{path}: {error.strerror or error}") from error
    return path


def library_path() -> Path:
    """Where the library for these sources, this torch and this machine lies, or will lie."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(f"{COMPILE}|{torch.__version__}|{sysconfig.get_platform()}|{has_cuda()}".encode())
    folder = os.environ.get("TORCH_EXTENSIONS_DIR")  # torch's own word for where such things go
    if not folder:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = str(Path(home, "lightning-foundry", "ops"))
    suffix = ".dll" if os.name == "nt" else ".so"
    return Path(folder, digest.hexdigest()[:16], NAME + suffix)


def has_cuda() -> bool:
    """Whether code for a GPU can be compiled, and used, here."""
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return False
    from torch.utils.cpp_extension import CUDA_HOME

    return CUDA_HOME is not None and shutil.which("nvcc", path=f"{CUDA_HOME}/bin") is not None


def compile_library(path: Path) -> None:
    """Compiles to `path`; of several processes that ask at once one does it.

    Raises:
        NoLibrary: There is no compiler, or it refuses the sources.
        OSError: The folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if path.is_file():  # another process was faster
            return
        work = path.parent / "build"
        shutil.rmtree(work, ignore_errors=True)  # what a killed process has left
        work.mkdir()
        try:
            run_compiler(work)
            os.replace(next(found for found in work.glob(f"{NAME}*.*") if is_library(found)), path)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def is_library(path: Path) -> bool:
    return path.suffix in (".so", ".dll", ".pyd")


def run_compiler(work: Path) -> None:
    """Compiles in an empty folder.

    In a process of its own, since torch also loads what it compiles, and would know the library by
    a place that it is about to leave.

    Raises:
        NoLibrary: With what is missing, or the compiler's first complaint.
    """
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # no news about CUDA
    from torch.utils import cpp_extension

    if shutil.which("ninja") is None:
        try:
            import ninja
        except ImportError:
            raise NoLibrary("ninja is not installed: pip install ninja") from None
        os.environ["PATH"] = os.pathsep.join([ninja.BIN_DIR, os.environ.get("PATH", "")])
    compiler = cpp_extension.get_cxx_compiler()
    if shutil.which(compiler) is None:
        raise NoLibrary(f"there is no C++ compiler ({compiler})")
    say("compiling the operators, once for this version of torch; it takes half a minute")
    sources = [*SOURCES.glob("*.cpp"), *(SOURCES.glob("*.cu") if has_cuda() else [])]
    command = [sys.executable, "-c", COMPILE, NAME, str(work), *map(str, sorted(sources))]
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        raise NoLibrary(f"{compiler}: {first_error(done.stdout + done.stderr)}")


def first_error(output: str) -> str:
    """What a compiler complains of first."""
    lines = output.splitlines() or [""]
    return next((line for line in lines if "error:" in line), lines[0])


def say(line: str) -> None:
    """Once for all processes of a run."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(load())
    except NoLibrary as error:
        sys.exit(f"error: the operators cannot be compiled: {error}")
