"""Hundreds of bad inputs: each must end in success or in one clear message and a defined code.

`python -m benchmarks.bad_inputs` makes them anew, runs the program on each in a process forked from
one that has imported everything, and prints tried / handled / trace / hang with every offender. An
offender is a trace, a run over a minute, an unclear message, hostile code that ran, or a damaged
file under a final name.
"""

import argparse
import contextlib
import importlib
import json
import linecache
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a forked process must not need threads of its parent

from benchmarks.bad_archives import archive_cases
from benchmarks.bad_bundles import bundle_cases
from benchmarks.bad_case import Case
from benchmarks.bad_checkpoints import checkpoint_cases
from benchmarks.bad_images import image_cases
from benchmarks.bad_judge import fault_of, try_judge
from benchmarks.bad_layouts import layout_cases
from benchmarks.bad_settings import config_cases, flag_cases
from benchmarks.bad_texts import text_cases

PROJECT = Path(__file__).resolve().parents[1]
KINDS = ("images", "folders", "tables", "texts", "layouts", "archives", "flags", "configs",
         "checkpoints", "bundles")  # fmt: skip
PROGRAMS = ("train", "predict", "export")
LIMIT = 60.0  # seconds
BASE = (
    "--max_epochs", "1", "--limit_train_batches", "4", "--optimizer.lr", "0.01",
    "--lr_finder.enabled", "false", "--gradient_check.before_fit", "false",
    "--export.formats", "onnx",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How one case ended; `fault` is empty, or what is wrong with it."""

    case: Case
    code: int | None
    seconds: float
    errors: str
    fault: str


def run_forked(program: str, arguments: Sequence[str], folder: Path, limit: float) -> int | None:
    """Exit code of a program's main inside `folder`; None where it took longer than `limit`."""
    pid = os.fork()
    if pid == 0:
        run_here(program, arguments, folder)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            kill_group(pid)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    kill_group(pid)
    os.waitpid(pid, 0)
    return None


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def run_here(program: str, arguments: Sequence[str], folder: Path) -> None:
    """The forked side: never returns."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(HOME=str(folder / "home"), XDG_CACHE_HOME=str(folder / "home" / "cache"))
        for number, name in enumerate((os.devnull, "../stdout", "../stderr")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags), number)
        sys.argv = [f"{program}.py", *arguments]
        result = importlib.import_module(program).main(list(arguments))
        code = 0 if result is None else int(result)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_case(case: Case, limit: float = LIMIT) -> Outcome:
    """Makes the input, runs the program and judges."""
    with tempfile.TemporaryDirectory(prefix="bad-input-") as place:
        folder = Path(place) / "work"
        (folder / "home").mkdir(parents=True)
        case.prepare(folder)
        start = time.monotonic()
        code = run_forked(case.program, case.arguments, folder, limit)
        seconds = time.monotonic() - start
        output, errors = (
            (Path(place) / name).read_text(errors="replace") for name in ("stdout", "stderr")
        )
        fault = fault_of(case, code, output, errors, folder)
    return Outcome(case, code, seconds, errors, fault)


def make_base(folder: Path) -> tuple[Path, Path]:
    """Checkpoint and bundle of a short run."""
    (folder / "base" / "home").mkdir(parents=True)
    code = run_forked("train", BASE, folder / "base", 600)
    if code not in (0, 3):
        raise SystemExit((folder / "stderr").read_text() + f"\nthe run to damage ended with {code}")
    (run,) = (folder / "base").glob("runs/*/*")
    return run / "checkpoints" / "last.ckpt", run / "export"


def all_cases(kinds: Sequence[str], folder: Path) -> Iterator[Case]:
    """Every case of the kinds; what needs a trained network has one made."""
    checkpoint = bundle = Path("none")
    if {"images", "folders", "checkpoints", "bundles"} & set(kinds):
        checkpoint, bundle = make_base(folder)
    sources: list[tuple[set[str], Callable[[], Iterator[Case]]]] = [
        ({"images", "folders", "tables"}, lambda: image_cases(checkpoint)),
        ({"tables", "texts"}, text_cases),
        ({"layouts"}, layout_cases),
        ({"archives"}, archive_cases),
        ({"flags"}, flag_cases),
        ({"configs"}, config_cases),
        ({"checkpoints"}, lambda: checkpoint_cases(checkpoint)),
        ({"bundles"}, lambda: bundle_cases(bundle)),
    ]
    for source_kinds, source in sources:
        if source_kinds & set(kinds):
            yield from (case for case in source() if case.kind in kinds)


def print_report(outcomes: Sequence[Outcome]) -> None:
    """A line a kind, then the offenders."""
    print(f"{'kind':12} {'tried':>6} {'handled':>8} {'trace':>6} {'hang':>5} {'other':>6}")
    for kind in (*KINDS, "all"):
        chosen = [o for o in outcomes if kind in (o.case.kind, "all")]
        faults = Counter(o.fault if o.fault in ("", "trace", "hang") else "other" for o in chosen)
        if chosen:
            print(f"{kind:12} {len(chosen):6} {faults['']:8} {faults['trace']:6} "
                  f"{faults['hang']:5} {faults['other']:6}")  # fmt: skip
    for outcome in outcomes:
        case = outcome.case
        if outcome.fault:
            lines = outcome.errors.strip().splitlines() or [""]
            print(f"\n{outcome.fault}: {case.kind}: {case.name}, code {outcome.code}")
            print(f"  {case.program}.py {' '.join(case.arguments)[:300]}")
            print("\n".join(f"  | {line[:200]}" for line in lines[-6:]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--kinds", default=",".join(KINDS), help="some of them, with commas")
    parser.add_argument("--sample", type=int, help="only so many, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", default="", help="only names with this in them")
    parser.add_argument("--output", type=Path, help="write the outcomes as JSON")
    arguments = parser.parse_args(argv)
    kinds = arguments.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    try_judge()
    for program in PROGRAMS:
        importlib.import_module(program)
    for module in list(sys.modules.values()):  # lines as imported, should somebody change a file
        if str(getattr(module, "__file__", "")).startswith(str(PROJECT)):
            linecache.getlines(str(module.__file__))
    folder = Path(tempfile.mkdtemp(prefix="bad-inputs-"))
    outcomes = []
    try:
        cases = [c for c in all_cases(kinds, folder) if arguments.match in c.name]
        if arguments.sample is not None and arguments.sample < len(cases):
            cases = random.Random(arguments.seed).sample(cases, arguments.sample)
        for number, case in enumerate(cases, start=1):
            outcomes.append(run_case(case))
            if sys.stderr.isatty() or number % 50 == 0:
                print(f"{number} of {len(cases)}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_report(outcomes)
    if arguments.output:
        rows = [(o.case.kind, o.case.name, o.code, round(o.seconds, 2), o.fault) for o in outcomes]
        arguments.output.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(outcome.fault for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
