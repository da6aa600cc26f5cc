"""What is a message, and what is somebody's fault and keeps its trace."""

import importlib.util
import linecache
from pathlib import Path

import pytest
from torch import nn

from cli.problems import PROJECT, is_message

THEIRS = """
import json, torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        {body}

class Data:
    def __getitem__(self, index):
        {body}

def loss(x, y):
    {body}
"""
BODIES = [
    "raise ValueError('mine')",
    "raise RuntimeError('mine')",
    "open('/nowhere/at/all')",
    "raise FileNotFoundError('mine')",
    "torch.zeros(2, 3) @ torch.zeros(2, 3)",
    "json.loads('{')",
]


@pytest.mark.parametrize("body", BODIES)
def test_a_fault_of_a_users_own_network_data_or_loss_keeps_its_trace(
    tmp_path: Path, body: str
) -> None:
    (tmp_path / "theirs.py").write_text(THEIRS.format(body=body))
    spec = importlib.util.spec_from_file_location("theirs", tmp_path / "theirs.py")
    assert spec is not None
    assert spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    attempts = (
        lambda: nn.Sequential(theirs.Net())(None),
        lambda: theirs.Data()[0],
        lambda: theirs.loss(1, 2),
    )
    for attempt in attempts:
        with pytest.raises((ValueError, RuntimeError, OSError)) as fault:
            attempt()
        assert not is_message(fault.value), fault.value


class InTheProject(nn.Module):
    def forward(self, x: int) -> int:
        raise ValueError(f"of a network that stands in this project: {x}")


def test_a_fault_of_a_forward_pass_in_the_project_too() -> None:
    with pytest.raises(ValueError, match="of a network") as fault:
        InTheProject()(1)
    assert not is_message(fault.value)


@pytest.mark.parametrize("place", ["my_parts.py", "my_parts/nets.py"])
@pytest.mark.parametrize("kind", ["ValueError", "RuntimeError"])
def test_a_fault_of_a_users_own_constructor_beside_the_project_too(
    place: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, line = str(PROJECT / place), f"raise {kind}('mine')\n"
    monkeypatch.setitem(linecache.cache, path, (len(line), None, [line], path))
    with pytest.raises((ValueError, RuntimeError)) as fault:
        exec(compile(line, path, "exec"))
    assert not is_message(fault.value)


def test_what_the_project_says_on_purpose_and_files_that_are_missing_are_messages() -> None:
    def deterministic() -> None:
        raise RuntimeError("x does not have a deterministic implementation")

    with pytest.raises(ValueError, match="purpose") as said:
        raise ValueError("on purpose")
    assert is_message(said.value)
    with pytest.raises(FileNotFoundError) as missing:
        Path("/nowhere/at/all").read_text()
    assert is_message(missing.value)
    with pytest.raises(RuntimeError) as refused:
        deterministic()
    assert is_message(refused.value)
