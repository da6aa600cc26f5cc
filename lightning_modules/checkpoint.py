"""What a checkpoint holds, and the one way to read it.

Accepted are tensors and plain values only (`weights_only`), whose bytes match the checksums they
were written with; what is missing or of another type is named before anything is done. Written by
callbacks/checkpoint_io.py. Knows no Lightning, so that a process that reads starts fast.
"""

import pickle
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from preprocessing.reader import check_preprocessing
from tasks.base import build_task

DESCRIPTION_FORMAT = 2
READABLE_FORMATS = (1, 2)  # the first says "kind" beside the preprocessing's own, which is not read
STATE_PREFIX = "model."
# Name -> type, or the same for the names in it; what ends in "?" may be missing.
CHECKPOINT: dict[str, Any] = {  # for a test, an export or predictions
    "state_dict": dict,  # of the module around the model, whose names begin with STATE_PREFIX
    "description": {  # all that makes the model anew, as train.py writes it
        "format": int,
        "network": {"name": str, "arguments": dict},
        "input_spec": {"inputs": list},
        "preprocessing": {"kind": str},
        "files": dict | None,  # name -> text, of the tokenizer
        "normalisation": dict | None,
        "config": dict,
    },
    "replay?": {"first_step": int, "last_step": int},  # between which a value was not finite
}
RESUMED: dict[str, Any] = {  # what training goes on from, beside these
    "pytorch-lightning_version": str,
    "epoch": int,  # the place in training: epochs, optimizer steps, and batches below
    "global_step": int,
    "loops": {"fit_loop": dict},  # the same in Lightning's counters
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
    "description": {"fingerprint": str},  # of the data
    "exact_resume?": {  # where a checkpoint was taken between two steps
        "position": int,  # batches of this epoch that are done
        "samples?": int | None,  # in these; earlier versions did not count them
        "random_states": list,  # a rank each
        "metrics": dict | None,  # the rows of metrics.csv
    },
    "train_outcomes?": Tensor,  # int32 [M,...], a row a sample of this epoch
}


class DamagedCheckpoint(ValueError):
    """A checkpoint file is not whole."""


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a checkpoint of this project, of this version or an earlier one.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged, holds code, or was not written by this project.
    """
    path = Path(path)
    if not path.is_file():
        inside = [*path.glob("*.ckpt"), *path.glob("checkpoints/*.ckpt")]  # of a folder
        hint = f": it is a folder; did you mean {max(inside)}?" if inside else ""
        raise FileNotFoundError(f"no checkpoint at {path}{hint}")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a checkpoint of this project, or it is damaged")
    check_whole(path)
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is damaged, or holds objects other than tensors and plain values (refused, "
            "since loading those can run code)"
        ) from error
    except Exception as error:  # damaged bytes can fail anywhere in the reader
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} cannot be read as a checkpoint: {reason}") from error
    check_parts(f"{path} was not written by this project", checkpoint, CHECKPOINT)
    description = checkpoint["description"]
    if description["format"] not in READABLE_FORMATS:
        raise ValueError(
            f"{path} has description format {description['format']}, this version reads 1 to "
            f"{DESCRIPTION_FORMAT}"
        )
    check_brought(path, description)
    return checkpoint


def check_whole(path: str | Path) -> None:
    """Compares everything in a checkpoint file with the checksums it was written with.

    Raises:
        DamagedCheckpoint: It is cut off or changed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except Exception as error:  # changed bytes can fail anywhere in the reader
        raise DamagedCheckpoint(f"{path} is damaged: {error!r}") from error
    if broken is not None:
        raise DamagedCheckpoint(f"{path} is damaged: {broken} in it was changed")


def check_resumable(path: str | Path, checkpoint: Mapping[str, Any]) -> None:
    """Looks for what training goes on from.

    Raises:
        ValueError: What is missing or of another type.
    """
    check_parts(f"{path} cannot be gone on from", checkpoint, RESUMED)


def check_parts(problem: str, content: object, expected: Mapping[str, Any]) -> None:
    """Compares a checkpoint with one of the tables above.

    Raises:
        ValueError: The problem, and the names of all that is missing or of another type.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{problem}: it holds a {type(content).__name__}")
    if wrong := list(misplaced(content, expected)):
        raise ValueError(f"{problem}: missing or of another type is {', '.join(wrong)}")


def misplaced(content: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    """Names of what is missing or of another type, with dots."""
    for key, kind in expected.items():
        name = key.removesuffix("?")
        if name not in content:
            if name == key:
                yield name
        elif not isinstance(content[name], dict if isinstance(kind, dict) else kind):
            yield name
        elif isinstance(kind, dict):
            yield from (f"{name}.{inner}" for inner in misplaced(content[name], kind))


def check_brought(path: Path, description: Mapping[str, Any]) -> None:
    """Refuses files that a checkpoint brings beside its tokenizer, and a task that is none.

    Raises:
        ValueError: With the names.
    """
    try:
        build_task(description)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    try:
        check_preprocessing(description["preprocessing"], description["files"] or {})
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error
