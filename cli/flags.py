"""Every flat flag: name, type, default, help and the subject it belongs to.

The single source for the parser, `--help` and the documentation. Of an argument of `pl.Trainer`
the default is its own. Flags of a network, a data source, the optimizer and the callbacks are not
listed here: their typed constructors are read.
"""

import inspect
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytorch_lightning as pl

Precision = Literal[
    "32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "64-true", "32", "16", "bf16", "64"
]
MatmulPrecision = Literal["highest", "high", "medium"]
CheckData = Literal["fast", "full", "off", False]  # YAML reads an unquoted off as False
NAMED_GROUPS = ("model", "data", "optimizer", "schedule", "loss", "module")  # chosen by name
Seed = Annotated[int, "0 <= x <= 4294967295"]
Positive = Annotated[int, ">= 1"]
NotNegative = Annotated[int, ">= 0"]
Unlimited = Annotated[int, ">= -1"]  # -1: no end
Part = NotNegative | Annotated[float, "0 <= x <= 1"]  # so many batches, or a share of them
Limit = Annotated[float, ">= 0"] | NotNegative
Interval = Positive | Annotated[float, "0 < x <= 1"] | str
TRAINER = inspect.signature(pl.Trainer.__init__).parameters


@dataclass(frozen=True)
class Flag:
    name: str
    type: Any
    default: Any
    help: str
    trainer: bool = False  # handed to pl.Trainer under the same name


def trainer(name: str, type: Any, help: str) -> Flag:
    return Flag(name, type, TRAINER[name].default, help, trainer=True)


FLAGS: dict[str, list[Flag]] = {
    "What to do": [
        Flag("config", str | None, None, "YAML file of settings, may be repeated; what comes later "
             "wins"),
        Flag("print_config", bool, False, "print the full configuration as YAML and stop"),
        Flag("resume", str | None, None, "go on with a run: auto (the newest) or a checkpoint"),
        Flag("allow_changes", bool, False, "resume although settings change what is learnt"),
        Flag("replay", str | None, None, "repeat the step that a replay file holds, and name it"),
        Flag("test_only", str | None, None, "only test this checkpoint, on its own data"),
        Flag("check_data", CheckData, "fast", "look at the data first; full opens every file, too"),
        Flag("seed", Seed, 0, "seed of weights, splits, order, augmentation and dropout"),
        Flag("experiment", str | None, None, "name of the runs' folder; default DATA-MODEL"),
        Flag("runs_dir", str, "runs", "folder that holds all experiments"),
        Flag("callbacks", list[str], [], "Lightning callbacks of your own by import path, may be "
             "repeated; --my_callback.ARG is an argument of MyCallback"),
        Flag("debug", bool, False, "show where in the code an error was raised"),
        Flag("allow_external_code", bool, False, "allow class paths outside this project"),
    ],
    "Hardware": [
        trainer("accelerator", str, "auto, cpu, gpu, cuda, mps or tpu"),
        trainer("devices", int | str | list[int], "how many, which ones ([0,2]), or auto"),
        trainer("num_nodes", Positive, "machines"),
        trainer("strategy", str, "how devices work together: auto, ddp, ..."),
        trainer("precision", Precision | None, "number format of the computation"),
        trainer("sync_batchnorm", bool, "BatchNorm statistics over all devices"),
        Flag("float32_matmul_precision", MatmulPrecision, "highest", "high, medium: faster on "
             "tensor cores"),
        Flag("compile", bool, False, "torch.compile the network"),
    ],
    "Length": [
        Flag("max_epochs", Unlimited | None, 15, "epochs at most", trainer=True),
        trainer("min_epochs", NotNegative | None, "epochs at least"),
        trainer("max_steps", Unlimited, "optimizer steps at most; -1 is no limit"),
        trainer("min_steps", NotNegative | None, "optimizer steps at least"),
        Flag("checkpoint_every", str, "5min", "steps (500) or time (30s) between checkpoints"),
        trainer("max_time", str | None, "time at most, as DD:HH:MM:SS"),
    ],
    "Step": [
        trainer("accumulate_grad_batches", Positive, "batches before each optimizer step"),
        trainer("gradient_clip_val", Limit | None, "limit of the gradient's norm or value"),
        trainer("gradient_clip_algorithm", Literal["norm", "value"] | None, "which of the two"),
    ],
    "Validation": [
        trainer("val_check_interval", Interval | None, "share of an epoch, batches, or time"),
        trainer("check_val_every_n_epoch", Positive | None, "epochs between validations"),
        trainer("num_sanity_val_steps", Unlimited | None, "validation batches tried first"),
    ],
    "Reproducing and debugging": [
        trainer("deterministic", bool | Literal["warn"] | None, "only deterministic operations"),
        trainer("benchmark", bool | None, "let cuDNN try its algorithms"),
        trainer("fast_dev_run", NotNegative | bool, "only n batches of everything"),
        trainer("overfit_batches", Part, "train and validate on this part of train"),
        trainer("limit_train_batches", Part | None, "batches or share of an epoch"),
        trainer("limit_val_batches", Part | None, "likewise for validation"),
        trainer("limit_test_batches", Part | None, "likewise for the test"),
        trainer("limit_predict_batches", Part | None, "likewise for prediction"),
        trainer("detect_anomaly", bool, "autograd names the operation that made a NaN (slow)"),
        trainer("inference_mode", bool, "evaluate in inference mode instead of no_grad"),
        trainer("reload_dataloaders_every_n_epochs", NotNegative, "new loaders every n epochs"),
        Flag("profiler", Literal["simple", "advanced", "pytorch"] | None, None,
             "time each part; written to the run folder"),
    ],
    "Screen and logs": [
        Flag("logger", Literal["csv", "wandb", "tensorboard"], "csv", "where to log besides "
             "metrics.csv"),
        Flag("log_every_n_steps", Positive, 50, "steps between loss and rate in TensorBoard and "
             "W&B"),
        trainer("enable_progress_bar", bool | None, "show progress"),
        trainer("enable_model_summary", bool | None, "print the network's layers and sizes"),
    ],
}  # fmt: skip


def all_flags() -> dict[str, Flag]:
    return {flag.name: flag for group in FLAGS.values() for flag in group}


def plain_name(name: str) -> str:
    """`model` is short for `model.name`, and likewise where else one is chosen by name."""
    return f"{name}.name" if name in NAMED_GROUPS else name


# what other tools call it, where the name alone would lead to another flag or to none
ELSEWHERE = {
    "epochs": "max_epochs", "num_epochs": "max_epochs", "num_train_epochs": "max_epochs",
    "steps": "max_steps", "learning_rate": "optimizer.lr", "wd": "optimizer.weight_decay",
    "optim": "optimizer", "scheduler": "schedule", "lr_scheduler": "schedule",
    "gpus": "devices", "num_gpus": "devices", "ngpu": "devices", "device": "accelerator",
    "nodes": "num_nodes", "amp": "precision", "fp16": "precision", "bf16": "precision",
    "bs": "data.batch_size", "workers": "data.num_workers", "dataset": "data",
    "data_dir": "data.root", "data_path": "data.root", "data.path": "data.root",
    "arch": "model", "network": "model", "backbone": "model",
    "grad_clip": "gradient_clip_val", "clip_grad": "gradient_clip_val",
    "ckpt": "resume", "ckpt_path": "resume", "checkpoint": "resume", "resume_from": "resume",
    "output": "runs_dir", "output_dir": "runs_dir", "out": "runs_dir", "save_dir": "runs_dir",
    "default_root_dir": "runs_dir", "name": "experiment", "patience": "early_stopping.patience",
    "test": "test_only", "eval": "test_only", "evaluate": "test_only",
}  # fmt: skip
