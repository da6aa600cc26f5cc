"""Weights & Biases: one run, full configuration, curves, confusion matrix, predictions, bundle.

Without a key the run is kept offline; nothing ever waits for a login.
"""

import json
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlparse

import pytorch_lightning as pl
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from callbacks.module_contract import Deployable, Reports, name_of
from callbacks.run_contract import Run
from tasks.base import Task

MAX_TABLE_ROWS = 1000
MAX_SAMPLES = 100


class WandbReport(pl.Callback):
    """What Lightning's logger does not do; idle unless `--logger wandb`.

    Args:
        run: Whose folder is logged.
        enabled: Whether to add anything to the logger's curves.
        project: Project of the run.
        log_samples: Also upload pictures of test samples. Off, so that no data leaves the machine
            unasked.
        log_bundle: Whether to upload the exported bundle: auto does so for images; that of texts
            holds their words as the vocabulary.
    """

    def __init__(
        self,
        run: Run,
        enabled: bool = True,
        project: str = "lightning-foundry",
        log_samples: bool = False,
        log_bundle: Literal["auto", "on", "off"] = "auto",
    ) -> None:
        self.project = project
        self.log_samples = log_samples
        self.log_bundle = log_bundle
        self.uploads_bundle = log_bundle == "on"
        self.rows: list[list[Any]] = []
        self.folder = run.folder
        self.run: Any = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        loggers = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
        if loggers and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self.run = loggers[0].experiment
        if isinstance(pl_module, Deployable):
            self.uploads_bundle = self.wants_bundle(pl_module.description["files"])

    def wants_bundle(self, files: Mapping[str, str] | None) -> bool:
        """Whether the bundle is uploaded, which brings these files made of the training data."""
        return self.log_bundle == "on" or (self.log_bundle == "auto" and not files)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """What will leave the machine is said while it can still be changed."""
        if self.run is None:
            return
        if not isinstance(pl_module, Reports):
            trainer.print(f"W&B gets no tables, {name_of(pl_module)} has no reports")
        if self.uploads_bundle:
            trainer.print("W&B gets the exported bundle (--wandb.log_bundle off keeps it here)")
        elif self.log_bundle == "auto":
            trainer.print(
                "W&B does not get the exported bundle, which holds words of the texts "
                "(--wandb.log_bundle on uploads it)"
            )

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        index: int,
        *_: Any,
    ) -> None:
        if self.run is None or len(self.rows) >= MAX_TABLE_ROWS:
            return
        if not isinstance(pl_module, Reports) or not isinstance(outputs, Mapping):
            return
        self.rows += self.prediction_rows(outputs, batch[0], pl_module.task)

    def prediction_rows(
        self, outcomes: Mapping[str, Tensor], inputs: Any, task: Task
    ) -> list[list[Any]]:
        """A row a sample as the task has it and, if asked, with a picture.

        Args:
            outcomes: Tensors [N] by the names of the task's row.
            inputs: Of the batch.
        """
        columns = {name: outcomes[name].cpu().numpy() for name in task.row.names or ()}
        rows = task.prediction_rows(columns)
        if self.log_samples:
            import wandb

            images: Any = inputs.get("images") if isinstance(inputs, Mapping) else inputs
            for index, row in enumerate(rows):
                shows = isinstance(images, Tensor) and len(self.rows) + index < MAX_SAMPLES
                picture = images[index].cpu().permute(1, 2, 0).numpy() if shows else None
                row.append(wandb.Image(picture.squeeze()) if picture is not None else None)
        return rows

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.run is None or not isinstance(pl_module, Reports):
            return
        import wandb

        task, outcomes = pl_module.task, pl_module.reports["test"].outcomes
        columns: list[str | int] = list(task.prediction_columns)
        columns += ["sample"] if self.log_samples else []
        tables = {"predictions": wandb.Table(columns=columns, data=self.rows[:MAX_TABLE_ROWS])}
        for name, table in task.tables(outcomes).items():
            tables[name] = wandb.Table(columns=[*table.columns], data=table.rows)
        self.run.log({f"test/{name}": table for name, table in tables.items()})
        for name in tables:
            picture = self.folder / f"{name}.png" if self.folder else None
            if picture is not None and picture.is_file():
                self.run.log({f"test/{name}_picture": wandb.Image(str(picture))})

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        code = exception.code if isinstance(exception, SystemExit) else 1
        if self.run is not None and code != 1:  # asked to stop; the run can be gone on with
            self.run.mark_preempting()
        self.finish(exit_code=int(code or 0))

    def upload(self, bundle: Path) -> None:
        """Makes the bundle's own files an artifact, if that is wanted; nothing else beside them."""
        manifest = bundle / "manifest.json"
        if self.run is None or not self.uploads_bundle or not manifest.is_file():
            return
        import wandb

        artifact = wandb.Artifact(name=f"bundle-{self.run.id}", type="model")
        for name in (manifest.name, *json.loads(manifest.read_text(encoding="utf-8"))["files"]):
            artifact.add_file(str(bundle / name), name=name)
        self.run.log_artifact(artifact)

    def finish(self, exit_code: int = 0) -> None:
        """Ends the run; one with another exit code than 0 shows as failed."""
        if self.run is not None:
            self.run.finish(exit_code=exit_code)
            self.run = None


def build_wandb_logger(folder: Path | None, project: str, experiment: str) -> WandbLogger:
    """The logger of this run: online only with a key, and silent on the screen.

    Raises:
        ModuleNotFoundError: wandb is not installed.
    """
    os.environ.setdefault("WANDB_SILENT", "true")
    offline = os.environ.get("WANDB_MODE") == "offline" or not has_key()
    name, save_dir = (folder.name, str(folder)) if folder else (None, ".")
    run = None
    if rank_zero_only.rank == 0:  # type: ignore[attr-defined]
        run = start_run(project, experiment, name, save_dir, offline)
    return WandbLogger(
        experiment=run, project=project, name=name, id=name, save_dir=save_dir, offline=offline
    )


def start_run(project: str, group: str, name: str | None, save_dir: str, offline: bool) -> Any:
    """The run that Lightning's logger would start, which passes a setting that wandb warns of."""
    import wandb

    run = wandb.init(project=project, group=group, name=name, id=name, resume="allow",
                     dir=save_dir, mode="offline" if offline else None)  # fmt: skip
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return run


def has_key() -> bool:
    """Whether a key is at hand, in the environment or in netrc, without asking anyone."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
