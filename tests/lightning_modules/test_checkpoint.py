"""What counts as a checkpoint of this project, whole, and complete for its use."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.exact_resume import KEY, ExactResume
from lightning_modules.checkpoint import (
    CHECKPOINT,
    RESUMED,
    DamagedCheckpoint,
    check_parts,
    check_resumable,
    check_whole,
    read_checkpoint,
)
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer


def valid() -> dict[str, Any]:
    """All that is needed, for a test and for training on."""
    description = {
        "format": 1,
        "kind": "image",
        "network": {"name": "small_cnn", "arguments": {}},
        "class_names": ["a", "b", "c"],
        "input_spec": {"inputs": []},
        "preprocessing": {"kind": "image"},
        "files": {},
        "config": {},
        "normalisation": {"mean": [0.4], "std": [0.2]},
        "fingerprint": "1",
    }
    return {
        "description": description,
        "state_dict": {"model.weight": torch.zeros(3)},
        "pytorch-lightning_version": "2.6.6",
        "epoch": 1,
        "global_step": 8,
        "loops": {"fit_loop": {}},
        "callbacks": {},
        "optimizer_states": [],
        "lr_schedulers": [],
        KEY: {"position": 2, "samples": 16, "random_states": [], "metrics": None},
    }


def changed(place: tuple[str, ...], value: object) -> dict[str, Any]:
    """With another value at one place; without it where that is `Ellipsis`."""
    checkpoint = inner = valid()
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    if value is ...:
        del inner[place[-1]]
    return checkpoint


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        read_checkpoint(tmp_path / "none.ckpt")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.save({"w": torch.randn(3000), "n": 1}, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_flipped_bit_is_noticed(checkpoint: Path, share: float) -> None:
    check_whole(checkpoint)
    content = bytearray(checkpoint.read_bytes())
    content[int(share * len(content))] ^= 4
    checkpoint.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match="last.ckpt is damaged"):
        check_whole(checkpoint)


@pytest.mark.parametrize("length", [0, 1, 500, 11000])
def test_a_file_that_is_cut_off(checkpoint: Path, length: int) -> None:
    checkpoint.write_bytes(checkpoint.read_bytes()[:length])
    with pytest.raises(DamagedCheckpoint):
        check_whole(checkpoint)


class Malicious:
    def __reduce__(self):
        return (print, ("this would have run",))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", pickle.dumps(Malicious())])
def test_other_files_are_refused(tmp_path: Path, content: bytes, capsys) -> None:
    (tmp_path / "a.ckpt").write_bytes(content)
    with pytest.raises(ValueError, match="is not a checkpoint of this project"):
        read_checkpoint(tmp_path / "a.ckpt")
    assert not capsys.readouterr().out


def test_a_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save(valid(), path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="is not a checkpoint|cannot be read"):
        read_checkpoint(path)


def test_code_inside_a_checkpoint_does_not_run(tmp_path: Path, capsys) -> None:
    torch.save({"description": Malicious()}, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="refused, since loading those can run code"):
        read_checkpoint(tmp_path / "a.ckpt")
    assert not capsys.readouterr().out


def test_a_foreign_or_newer_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="was not written by this project"):
        read_checkpoint(tmp_path / "a.ckpt")
    torch.save(changed(("description", "format"), 3), tmp_path / "b.ckpt")
    with pytest.raises(ValueError, match="has description format 3, this version reads 1 to 2"):
        read_checkpoint(tmp_path / "b.ckpt")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("state_dict",), 5, "another type is state_dict"),
        (("description", "network"), "x", "another type is description.network"),
        (
            ("description", "network", "arguments"),
            [],
            "another type is description.network.arguments",
        ),
        (("description", "class_names"), 5, r"a\.ckpt: single_label needs class_names, .* got 5"),
        (("description", "task"), "sing", r"a\.ckpt: unknown task 'sing'; there are single_label"),
        (("description", "files"), 5, "another type is description.files"),
        (("description", "preprocessing"), {}, "another type is description.preprocessing.kind"),
    ],
)
def test_a_checkpoint_of_another_form_is_refused(
    tmp_path: Path, place: tuple[str, ...], value: object, message: str
) -> None:
    torch.save(changed(place, value), tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match=message):
        read_checkpoint(tmp_path / "a.ckpt")


@pytest.mark.parametrize("content", [[1, 2], torch.zeros(2), {"description": 5}])
def test_what_holds_no_description_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="was not written by this project: "):
        read_checkpoint(tmp_path / "a.ckpt")


@pytest.mark.parametrize(
    ("place", "value", "wrong"),
    [
        (("epoch",), ..., "epoch"),
        (("loops", "fit_loop"), 5, "loops.fit_loop"),
        (("description", "fingerprint"), None, "description.fingerprint"),
        ((KEY,), ..., None),  # taken within a step: resumed inexactly
        ((KEY,), 5, KEY),
        ((KEY, "position"), "2", f"{KEY}.position"),
        ((KEY, "samples"), ..., None),  # of an earlier version
        ((KEY, "random_states"), ..., f"{KEY}.random_states"),
        (("train_outcomes",), [1], "train_outcomes"),
    ],
)
def test_what_training_goes_on_from(
    tmp_path: Path, place: tuple[str, ...], value: object, wrong: str | None
) -> None:
    torch.save(changed(place, value), tmp_path / "a.ckpt")
    checkpoint = read_checkpoint(tmp_path / "a.ckpt")  # a test could be made of each
    if wrong is None:
        check_resumable("a.ckpt", checkpoint)
        return
    message = f"^a.ckpt cannot be gone on from: missing or of another type is {wrong}$"
    with pytest.raises(ValueError, match=message):
        check_resumable("a.ckpt", checkpoint)


@pytest.mark.slow
def test_the_tables_name_all_that_is_written(tmp_path: Path) -> None:
    callbacks = [ExactResume(), Checkpointing(TinyRun(tmp_path))]
    trainer = tiny_trainer(tmp_path, callbacks=callbacks, plugins=[AtomicCheckpointIO()])
    data = TinyImages()
    trainer.fit(tiny_classifier(data), datamodule=data)
    checkpoint = read_checkpoint(tmp_path / "last.ckpt")
    check_parts("last.ckpt", checkpoint, RESUMED)
    assert (
        checkpoint.keys() - {key.removesuffix("?") for key in (*CHECKPOINT, *RESUMED)}
        == {"hparams_name"} & checkpoint.keys()
    )
    assert checkpoint[KEY].keys() == {key.removesuffix("?") for key in RESUMED[f"{KEY}?"]}
