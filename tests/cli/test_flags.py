"""The table against Lightning itself: nothing missing, nothing invented, defaults as upstream."""

import inspect

import pytorch_lightning as pl

from cli.flags import all_flags

TRAINER = inspect.signature(pl.Trainer.__init__).parameters
OUR_DEFAULTS = {"max_epochs"}

# Trainer arguments that are objects, or that this project decides itself
NOT_FLAGS = (
    "callbacks",
    "logger",
    "plugins",
    "profiler",
    "barebones",
    "model_registry",
    "use_distributed_sampler",
    "default_root_dir",
    "enable_checkpointing",
    "enable_autolog_hparams",
    "log_every_n_steps",
)


def test_every_trainer_argument_is_a_flag_or_left_out_on_purpose() -> None:
    flags = {flag.name for flag in all_flags().values() if flag.trainer}
    assert flags | set(NOT_FLAGS) == set(TRAINER) - {"self"}
    assert not flags & set(NOT_FLAGS)


def test_every_flag_is_explained() -> None:
    assert all(len(flag.help) > 5 for flag in all_flags().values())
