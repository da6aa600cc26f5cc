"""Upstream warnings that are known, harmless here, and kept off the screen: one entry each.

There is no blanket filter: a warning from a user's own network or data appears.
"""

import logging
import warnings

KNOWN: list[tuple[type[Warning], str, str]] = [
    # category, message (regular expression), module (regular expression)
    # The loader policy decides about workers and says so in a line.
    (UserWarning, r"The '\w+' does not have many workers", r"pytorch_lightning\."),
    # Every logged value is already reduced over ranks (see Classifier._log_epoch).
    (UserWarning, r"It is recommended to use `self.log\(.*sync_dist=True", r"pytorch_lightning\."),
    # A replay leaves out callbacks on purpose; what a resumed run changes is shown as a table.
    (UserWarning, r"Be aware that when using `ckpt_path`", r"pytorch_lightning\."),
    # The fit's loaders belong to the datamodule; Lightning warns about a state it does not need.
    (UserWarning, r"You're resuming from a checkpoint that ended before", r"pytorch_lightning\."),
    # A gradient scaler may skip the very first step; Lightning steps the schedule all the same.
    (UserWarning, r"Detected call of `lr_scheduler.step\(\)` before", r"torch\.optim\.lr_sch"),
    # With fewer than five steps the profiler records all instead of three; nothing to act on.
    (UserWarning, r"The PyTorch Profiler default schedule will be", r"pytorch_lightning\."),
    # A short name of a precision; train.py's first line gives the whole one.
    (UserWarning, r"`precision=\w+` is supported for historical reasons", r"lightning_fabric\."),
    # Lightning 2.6 still uses a name that torch renamed (Lightning-AI/pytorch-lightning#21294).
    (FutureWarning, r".*isinstance\(treespec, LeafSpec\)", r"pytorch_lightning\."),
    (DeprecationWarning, r".*isinstance\(treespec, LeafSpec\)", r"pytorch_lightning\."),
]


def hide_known_warnings() -> None:
    """Installs the filters and quietens Lightning's start-up notes (train.py prints its own)."""
    for category, message, module in KNOWN:
        warnings.filterwarnings("ignore", message=message, category=category, module=module)
    for name in ("pytorch_lightning", "lightning_fabric", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
