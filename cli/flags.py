"""Every flat flag: name, type, default, help and the subject it belongs to.

The single source for the parser, `--help` and the documentation. Flags of a network, a data
source, the optimizer and the callbacks are not listed here: their typed constructors are read.
"""

from dataclasses import dataclass
from typing import Any, Literal

Precision = Literal[
    "32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "64-true", "32", "16", "bf16", "64"
]
MatmulPrecision = Literal["highest", "high", "medium"]
CheckData = Literal["fast", "full", "off", False]  # YAML reads an unquoted off as False
Profiler = Literal["simple", "advanced", "pytorch"]
LoggerName = Literal["csv", "wandb", "tensorboard"]


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
        ours("config", str | None, None, "YAML file with any of these settings; flags win over it"),
        ours("print_config", bool, False, "print the full configuration as YAML and stop"),
        ours("resume", str | None, None, "go on with a run: auto (the newest) or a checkpoint"),
        ours("allow_changes", bool, False, "resume although settings change what is learnt"),
        ours("replay", str | None, None, "repeat the step that a replay file holds, and name it"),
        ours("test_only", str | None, None, "only test this checkpoint, on its own data"),
        ours("check_data", CheckData, "fast", "look at the data first; full opens every file, too"),
        ours("seed", int, 0, "seed of weights, splits, order, augmentation and dropout"),
        ours("experiment", str | None, None, "name of the runs' folder; default DATA-MODEL"),
        ours("runs_dir", str, "runs", "folder that holds all experiments"),
        ours("allow_external_code", bool, False, "allow class paths outside this project"),
    ],
    "Hardware": [
        Flag("accelerator", str, "auto", "auto, cpu, gpu, cuda, mps or tpu"),
        Flag("devices", int | str | list[int], "auto", "how many, which ones ([0,2]), or auto"),
        Flag("num_nodes", int, 1, "machines"),
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
        Flag("max_epochs", int | None, 15, "epochs at most"),
        Flag("min_epochs", int | None, None, "epochs at least"),
        Flag("max_steps", int, -1, "optimizer steps at most; -1 is no limit"),
        Flag("min_steps", int | None, None, "optimizer steps at least"),
        ours("checkpoint_every", str, "5min", "steps (500) or time (30s) between checkpoints"),
        Flag("max_time", str | None, None, "time at most, as DD:HH:MM:SS"),
    ],
    "Step": [
        Flag("accumulate_grad_batches", int, 1, "batches before each optimizer step"),
        Flag(
            "gradient_clip_val", float | int | None, None, "limit of the gradient's norm or value"
        ),
        Flag("gradient_clip_algorithm", Literal["norm", "value"] | None, None, "which of the two"),
    ],
    "Validation": [
        Flag("val_check_interval", int | float | str | None, None, "share of an epoch, or batches"),
        Flag("check_val_every_n_epoch", int | None, 1, "epochs between validations"),
        Flag("num_sanity_val_steps", int | None, None, "validation batches tried before training"),
    ],
    "Reproducing and debugging": [
        Flag("deterministic", bool | Literal["warn"] | None, None, "only deterministic operations"),
        Flag("benchmark", bool | None, None, "let cuDNN try its algorithms"),
        Flag("fast_dev_run", int | bool, False, "run n batches of everything, keep nothing"),
        Flag("overfit_batches", int | float, 0.0, "train and validate on this part of train"),
        Flag("limit_train_batches", int | float | None, None, "batches or share of an epoch"),
        Flag("limit_val_batches", int | float | None, None, "likewise for validation"),
        Flag("limit_test_batches", int | float | None, None, "likewise for the test"),
        Flag("limit_predict_batches", int | float | None, None, "likewise for prediction"),
        Flag("detect_anomaly", bool, False, "autograd names the operation that made a NaN (slow)"),
        Flag("inference_mode", bool, True, "evaluate in inference mode instead of no_grad"),
        Flag("reload_dataloaders_every_n_epochs", int, 0, "build the loaders anew every n epochs"),
        ours("profiler", Profiler | None, None, "time each part; written to the run folder"),
    ],
    "Screen and logs": [
        ours("logger", LoggerName, "csv", "where to log besides metrics.csv"),
        Flag("enable_progress_bar", bool | None, None, "show progress"),
        Flag("enable_model_summary", bool | None, None, "print the network's layers and sizes"),
    ],
}


def all_flags() -> dict[str, Flag]:
    return {flag.name: flag for group in FLAGS.values() for flag in group}
