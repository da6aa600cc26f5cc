"""Callbacks with flags of their own (`--NAME.ARG`), in the order in which they run.

To remove one: delete its file, its test and its line here.
"""

CALLBACKS: dict[str, str] = {
    "non_finite": "callbacks.non_finite.NonFinite",  # before a checkpoint could keep the fault
    "checkpoint": "callbacks.checkpointing.Checkpointing",  # before averaged weights take over
    "unfreeze": "callbacks.unfreeze.Unfreeze",  # before the rate finder, which then sees it frozen
    "lr_finder": "callbacks.lr_finder.LRFinder",
    "early_stopping": "callbacks.early_stopping.EarlyStopping",
    "gradient_check": "callbacks.gradient_check.GradientCheck",
    "ema": "callbacks.ema.EMA",
    "test_report": "callbacks.test_report.TestReport",
    "learning_curves": "callbacks.learning_curves.LearningCurves",
    "wandb": "callbacks.wandb_report.WandbReport",
    "export": "callbacks.export.Export",
}
