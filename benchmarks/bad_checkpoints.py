"""Checkpoints that are damaged, of another make, or hostile."""

import copy
import io
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.bad_case import ABSENT, Case, Hostile, cut, flip, replace_at
from benchmarks.bad_images import encoded, picture

PICTURE = encoded(picture(), "PNG")
COMMANDS = {
    "predict": ("--model", "x.ckpt", "x.png"),
    "resume": ("--resume", "x.ckpt", "--allow_changes", "--max_epochs", "2",
               "--limit_train_batches", "2", "--export.enabled", "false",
               "--gradient_check.before_fit", "false"),
    "test_only": ("--test_only", "x.ckpt", "--limit_test_batches", "2"),
    "export": ("--ckpt", "x.ckpt", "--formats", "torchscript"),
}  # fmt: skip
FOREIGN = (
    "os.system",
    "subprocess.Popen",
    "torch.nn.Linear",
    "lightning_modules.deployed.nn.Linear",
)


def saved(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def with_member(content: bytes, ending: str, data: bytes) -> bytes:
    """A zip file with one member replaced."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, data if name.endswith(ending) else old.read(name))
    return changed.getvalue()


def damaged(content: bytes) -> Iterator[tuple[str, bytes]]:
    for share in (0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.9999):
        yield f"cut to {share:.2%}", cut(content, share)
    for seed in range(16):
        yield f"flipped bit {seed}", flip(content, seed)
    for seed in range(6):
        yield f"flipped 200 bits {seed}", flip(content, seed, 200)
    for seed in range(6):
        data = zipfile.ZipFile(io.BytesIO(content)).read(
            next(n for n in zipfile.ZipFile(io.BytesIO(content)).namelist() if "data.pkl" in n)
        )
        yield f"flipped pickle {seed}", with_member(content, "data.pkl", flip(data, seed))
    yield "something behind it", content + bytes(1000)


def hostile(content: bytes) -> Iterator[tuple[str, bytes]]:
    yield "a pickle", pickle.dumps(Hostile())
    yield "code in the description", saved({"description": Hostile(), "state_dict": {}})
    yield "code instead of it all", with_member(content, "data.pkl", pickle.dumps(Hostile(), 2))
    yield "a legacy file", legacy({"description": Hostile()})
    yield "a zip of text", with_member(content, "data.pkl", b"hello")
    yield "a zip bomb", bomb()
    yield "a picture", b"\x89PNG\r\n\x1a\n" + bytes(500)
    yield "a list", saved([1, 2])
    yield "a tensor", saved(torch.zeros(3))
    yield "weights alone", saved({"weight": torch.zeros(3)})
    yield "a whole module", saved(torch.nn.Linear(2, 2))


def legacy(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content, _use_new_zipfile_serialization=False)
    return content.getvalue()


def bomb() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", bytes(300_000_000))
        file.writestr("archive/version", b"3\n")
    return content.getvalue()


def edited(checkpoint: dict[str, Any], *changes: tuple[str, Any]) -> bytes:
    """The checkpoint with values at dotted places; ABSENT removes one."""
    twin = copy.deepcopy(checkpoint)
    for place, value in changes:
        replace_at(twin, place.split("/"), value)
    return saved(twin)


def places(checkpoint: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Where one value is replaced, and by what."""
    for key in checkpoint:
        yield key, ABSENT
        yield key, 5
        if key in ("optimizer_states", "lr_schedulers", "loops", "callbacks"):
            yield key, type(checkpoint[key])()
    for key in checkpoint["description"]:
        for value in (ABSENT, None, 5, "text", [], {}):
            yield f"description/{key}", value
    for name in ("resnet", "cifar_resnet", "bilstm", *FOREIGN):
        yield "description/network/name", name
    for name in ("no such", "text_files", *FOREIGN):
        yield "description/config/data/name", name
    sizes: dict[str, Any] = {
        "channels": 7, "height": -1, "width": 10**9, "resize": "none", "kind": "sound",
    }  # fmt: skip
    for key, value in sizes.items():
        yield f"description/preprocessing/{key}", value
    name, weight = next(iter(checkpoint["state_dict"].items()))
    weights: tuple[Any, ...] = (
        torch.full_like(weight, torch.nan), weight[:1], weight.half(), [1.0], torch.zeros(0),
        weight.to(torch.complex64), ABSENT,
    )  # fmt: skip
    for value in weights:
        yield f"state_dict/{name}", value
    yield "state_dict/extra", torch.zeros(1)


def changed(checkpoint: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Whole files with other content."""
    for number, (place, value) in enumerate(places(checkpoint)):
        shown = type(value).__name__ if isinstance(value, torch.Tensor) else repr(value)
        title = "absent" if value is ABSENT else shown
        yield f"{number} {place}: {title}", edited(checkpoint, (place, value))
    yield "epoch -5", edited(checkpoint, ("epoch", -5), ("global_step", -7))
    names = ("description/config/model/name", "description/network/name")
    changes: list[tuple[str, Any]] = [("description/config/allow_external_code", True)]
    changes += [(name, "torch.nn.Linear") for name in names]
    yield "permission for itself", edited(checkpoint, *changes)


def checkpoint_cases(path: Path) -> Iterator[Case]:
    content = path.read_bytes()
    checkpoint = torch.load(path, weights_only=True)
    groups = ((False, damaged(content)), (True, hostile(content)), (False, changed(checkpoint)))
    number = 0
    for refused, group in groups:
        for name, data in group:

            def prepare(folder: Path, data: bytes = data) -> None:
                (folder / "x.ckpt").write_bytes(data)
                (folder / "x.png").write_bytes(PICTURE)

            # export takes long, so that it gets a few only
            chosen = ["predict", ("resume", "test_only")[number % 2]]
            chosen += ["export"] * (number % 8 == 0)
            number += 1
            for command in chosen:
                program = command if command in ("predict", "export") else "train"
                title = f"{command}: {name}"
                yield Case("checkpoints", title, program, COMMANDS[command], prepare, refused)
