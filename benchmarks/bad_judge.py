"""What is wrong with how a program ended; tried on planted faults whenever it is to judge."""

import re
import tempfile
import zipfile
from pathlib import Path

from benchmarks.bad_case import RAN, Case, nothing

DEFINED_CODES = (0, 1, 2, 3)
MAX_MESSAGE = 40  # lines


def fault_of(case: Case, code: int | None, output: str, errors: str, folder: Path) -> str:
    """What is wrong with how a case ended, or nothing."""
    if code is None:
        return "hang"
    if "Traceback (most recent call last)" in output + errors or code < 0:
        return "trace"
    if code not in DEFINED_CODES:
        return f"code {code}"
    if any(folder.rglob(RAN)):
        return "hostile code ran"
    if case.refused and code == 0:
        return "not refused"
    if case.works and code:
        return "refused"
    lines = [line for line in errors.splitlines() if line.strip()]
    if code == 3 and output:  # what did not pass stands in the table
        return leftovers(folder)
    is_message = bool(lines) and lines[0].startswith(("error: ", "note: ", "usage: "))
    stray = [x for x in lines if not re.match(r"(error|note|usage|warning): | ", x)]
    if code and (not is_message or stray or len(lines) > MAX_MESSAGE):
        return "unclear message"
    return leftovers(folder)


def leftovers(folder: Path) -> str:
    """A damaged file under a final name, or an unfinished one that stayed."""
    for path in folder.glob("runs/**/*.ckpt"):
        if not zipfile.is_zipfile(path):
            return f"damaged {path.name} left"
    for path in folder.glob("runs/*/*/export"):
        if not (path / "manifest.json").is_file():
            return "unfinished bundle left"
    for path in folder.glob("home/cache/lightning-foundry/*/.*"):
        return f"unfinished {path.name} left"
    return ""


def try_judge() -> None:
    """Shows the judge outcomes whose fault is known.

    Raises:
        AssertionError: It sees one of them otherwise.
    """
    for wanted, code, errors, expected in PLANTED:
        case = Case("flags", "planted", "train", (), nothing, wanted == "no", wanted == "yes")
        with tempfile.TemporaryDirectory() as folder:
            found = fault_of(case, code, "", errors, Path(folder))
        assert found == expected, (wanted, code, errors, expected, found)
    case = Case("flags", "planted", "train", (), nothing)
    for place, expected in LEFT:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / place).parent.mkdir(parents=True)
            (Path(folder) / place).write_bytes(b"half")
            found = fault_of(case, 1, "", "error: x", Path(folder))
        assert found == expected, (place, expected, found)


PLANTED = (  # whether it is to work, code, errors, fault
    ("", 0, "", ""),
    ("", 0, "a note on the way\n", ""),
    ("", 2, "error: one thing\nerror: another\n", ""),
    ("", 1, "error: two files:\n  a\n  b\n", ""),
    ("no", 1, "error: no\n", ""),
    ("no", 0, "", "not refused"),
    ("yes", 0, "", ""),
    ("yes", 2, "error: no\n", "refused"),
    ("", None, "", "hang"),
    ("", -11, "", "trace"),
    ("", 1, "Traceback (most recent call last):\n  x\nValueError: y\n", "trace"),
    ("", 7, "error: x\n", "code 7"),
    ("", 1, "", "unclear message"),
    ("", 1, "something went wrong\n", "unclear message"),
    ("", 1, "error: x\nstray words\n", "unclear message"),
    ("", 1, "error: x\n" + "  a line\n" * 99, "unclear message"),
)
LEFT = (  # a file, fault
    ("runs/x/1/checkpoints/last.ckpt", "damaged last.ckpt left"),
    ("runs/x/1/export/model.onnx", "unfinished bundle left"),
    ("runs/x/1/metrics.csv", ""),
    ("home/cache/lightning-foundry/pixels/whole", ""),
    ("home/cache/lightning-foundry/pixels/.abc-1", "unfinished .abc-1 left"),
    (f"somewhere/{RAN}", "hostile code ran"),
)
