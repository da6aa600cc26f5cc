"""Every flat flag: name, type, default, help and the subject it belongs to.

The single source for the parser, `--help` and the documentation. Flags of a network, a data
source, the optimizer and the callbacks are not listed here: their typed constructors are read.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

Precision = Literal[
    "32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "64-true", "32", "16", "bf16", "64"
]
MatmulPrecision = Literal["highest", "high", "medium"]
CheckData = Literal["fast", "full", "off", False]  # YAML reads an unquoted off as False
Profiler = Literal["simple", "advanced", "pytorch"]
LoggerName = Literal["csv", "wandb", "tensorboard"]
NAMED_GROUPS = ("model", "data", "optimizer", "schedule", "loss", "module")  # chosen by name
Seed = Annotated[int, "0 <= x <= 4294967295"]
Positive = Annotated[int, ">= 1"]
NotNegative = Annotated[int, ">= 0"]
Unlimited = Annotated[int, ">= -1"]  # -1: no end
Part = NotNegative | Annotated[float, "0 <= x <= 1"]  # so many batches, or a share of them
Limit = Annotated[float, ">= 0"] | NotNegative
Interval = Positive | Annotated[float, "0 < x <= 1"] | str


@dataclass(frozen=True)
class Flag:
    name: str
    type: Any
    default: Any
    help: str
    trainer: bool = True  # handed to pl.Trainer under the same name


def ours(name: str, type: Any, default: Any, help: str) -> Flag:
    return Flag(name, type, default, help, trainer=False)


FLAGS: dict[str, list[Flag]] = {
    "What to do": [
        ours(
            "config",
            str | None,
            None,
            "YAML file of settings, may be repeated; what comes later wins",
        ),
        ours("print_config", bool, False, "print the full configuration as YAML and stop"),
        ours("resume", str | None, None, "go on with a run: auto (the newest) or a checkpoint"),
        ours("allow_changes", bool, False, "resume although settings change what is learnt"),
        ours("replay", str | None, None, "repeat the step that a replay file holds, and name it"),
        ours("test_only", str | None, None, "only test this checkpoint, on its own data"),
        ours("check_data", CheckData, "fast", "look at the data first; full opens every file, too"),
        ours("seed", Seed, 0, "seed of weights, splits, order, augmentation and dropout"),
        ours("experiment", str | None, None, "name of the runs' folder; default DATA-MODEL"),
        ours("runs_dir", str, "runs", "folder that holds all experiments"),
        ours(
            "callbacks",
            list[str],
            [],
            "Lightning callbacks of your own by import path, may be repeated; --my_callback.ARG is "
            "an argument of MyCallback",
        ),
        ours("debug", bool, False, "show where in the code an error was raised"),
        ours("allow_external_code", bool, False, "allow class paths outside this project"),
    ],
    "Hardware": [
        Flag("accelerator", str, "auto", "auto, cpu, gpu, cuda, mps or tpu"),
        Flag("devices", int | str | list[int], "auto", "how many, which ones ([0,2]), or auto"),
        Flag("num_nodes", Positive, 1, "machines"),
        Flag("strategy", str, "auto", "how devices work together: auto, ddp, ..."),
        Flag("precision", Precision | None, None, "number format of the computation"),
        Flag("sync_batchnorm", bool, False, "BatchNorm statistics over all devices"),
        ours(
            "float32_matmul_precision",
            MatmulPrecision,
            "highest",
            "high, medium: faster on tensor cores",
        ),
        ours("compile", bool, False, "torch.compile the network"),
    ],
    "Length": [
        Flag("max_epochs", Unlimited | None, 15, "epochs at most"),
        Flag("min_epochs", NotNegative | None, None, "epochs at least"),
        Flag("max_steps", Unlimited, -1, "optimizer steps at most; -1 is no limit"),
        Flag("min_steps", NotNegative | None, None, "optimizer steps at least"),
        ours("checkpoint_every", str, "5min", "steps (500) or time (30s) between checkpoints"),
        Flag("max_time", str | None, None, "time at most, as DD:HH:MM:SS"),
    ],
    "Step": [
        Flag("accumulate_grad_batches", Positive, 1, "batches before each optimizer step"),
        Flag("gradient_clip_val", Limit | None, None, "limit of the gradient's norm or value"),
        Flag("gradient_clip_algorithm", Literal["norm", "value"] | None, None, "which of the two"),
    ],
    "Validation": [
        Flag("val_check_interval", Interval | None, None, "share of an epoch, batches, or time"),
        Flag("check_val_every_n_epoch", Positive | None, 1, "epochs between validations"),
        Flag("num_sanity_val_steps", Unlimited | None, None, "validation batches tried first"),
    ],
    "Reproducing and debugging": [
        Flag("deterministic", bool | Literal["warn"] | None, None, "only deterministic operations"),
        Flag("benchmark", bool | None, None, "let cuDNN try its algorithms"),
        Flag("fast_dev_run", NotNegative | bool, False, "only n batches of everything"),
        Flag("overfit_batches", Part, 0.0, "train and validate on this part of train"),
        Flag("limit_train_batches", Part | None, None, "batches or share of an epoch"),
        Flag("limit_val_batches", Part | None, None, "likewise for validation"),
        Flag("limit_test_batches", Part | None, None, "likewise for the test"),
        Flag("limit_predict_batches", Part | None, None, "likewise for prediction"),
        Flag("detect_anomaly", bool, False, "autograd names the operation that made a NaN (slow)"),
        Flag("inference_mode", bool, True, "evaluate in inference mode instead of no_grad"),
        Flag("reload_dataloaders_every_n_epochs", NotNegative, 0, "new loaders every n epochs"),
        ours("profiler", Profiler | None, None, "time each part; written to the run folder"),
    ],
    "Screen and logs": [
        ours("logger", LoggerName, "csv", "where to log besides metrics.csv"),
        ours(
            "log_every_n_steps", Positive, 50, "steps between loss and rate in TensorBoard and W&B"
        ),
        Flag("enable_progress_bar", bool | None, None, "show progress"),
        Flag("enable_model_summary", bool | None, None, "print the network's layers and sizes"),
    ],
}


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
