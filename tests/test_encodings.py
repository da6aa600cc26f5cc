"""Text is never read or written in whatever encoding a machine prefers."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.import_order import python_files

ROOT = Path(__file__).resolve().parents[1]
NOT_TEXT = {"Image", "os", "tarfile", "tar"}  # whose `open` knows no encoding
PLACES = {"read_text": 0, "write_text": 1, "TextIOWrapper": 1}  # of an encoding without its name


def without_encoding(source: str) -> Iterator[int]:
    """Lines of calls that open text and name no encoding."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and opens_text(call):
            yield call.lineno


def opens_text(call: ast.Call) -> bool:
    keywords = {word.arg: word.value for word in call.keywords}
    if "encoding" in keywords:
        return False
    if any(getattr(keywords.get(n), "value", False) for n in ("text", "universal_newlines")):
        return True  # of a process
    is_method = isinstance(call.func, ast.Attribute)
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in PLACES and (is_method or name == "TextIOWrapper"):
        return len(call.args) <= PLACES[name]
    owner = getattr(getattr(call.func, "value", None), "id", "")
    if name not in ("open", "fdopen") or owner in NOT_TEXT and name == "open":
        return False
    place = 0 if is_method and name == "open" else 1
    mode = call.args[place] if len(call.args) > place else keywords.get("mode")
    return mode is None or (isinstance(mode, ast.Constant) and "b" not in str(mode.value))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p.read_text()", True),
        ("p.read_text('utf-8')", False),
        ("p.read_text(errors='replace')", True),
        ("p.write_text(t)", True),
        ("p.write_text(t, encoding='utf-8')", False),
        ("open(p)", True),
        ("open(p, 'w', newline='')", True),
        ("open(p, 'rb')", False),
        ("open(p, mode='wb')", False),
        ("p.open()", True),
        ("p.open('w')", True),
        ("p.open('ab')", False),
        ("os.fdopen(n, 'w')", True),
        ("os.open(p, os.O_RDONLY)", False),
        ("Image.open(p)", False),
        ("archive.open(member)", False),
        ("io.TextIOWrapper(stream)", True),
        ("io.TextIOWrapper(stream, codec)", False),
        ("subprocess.run(c, text=True)", True),
        ("subprocess.run(c, text=True, encoding='utf-8')", False),
    ],
)
def test_such_calls_are_found(line: str, expected: bool) -> None:
    assert bool(list(without_encoding(line))) == expected


def test_text_files_have_an_encoding() -> None:
    found = [
        f"{path}:{line}"
        for path in python_files(ROOT)
        if path.parts[0] != "tests" and not path.name.startswith("bad_")  # which write damage
        for line in without_encoding((ROOT / path).read_text(encoding="utf-8"))
    ]
    assert found == []
