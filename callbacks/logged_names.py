"""The name that a callback goes by, checked as soon as it can be.

A module may announce what it logs, so that a misspelt name is found before training; of any other
module the names are known when its first validation has ended.
"""

import difflib
from typing import Literal

import pytorch_lightning as pl

from callbacks.module_contract import NamesMetrics, name_of

# of names with one of these words in them
SMALLER_IS_BETTER = ("loss", "error", "entropy", "perplexity")


class MonitoredName:
    """One of the names that are logged.

    Args:
        group: Of the flags.
        name: The name.
        usual: What the name is unless the user asks for another; it may be absent.
    """

    def __init__(self, group: str, name: str, usual: str) -> None:
        self.group = group
        self.name = name
        self.usual = usual
        self.is_checked = True
        self.is_there = True

    def better(self, module: pl.LightningModule) -> Literal["min", "max"]:
        """Whether smaller or larger is better, as the module says, or else as the name tells."""
        self.is_checked = isinstance(module, NamesMetrics)
        if isinstance(module, NamesMetrics):
            return module.check_monitor(self.group, self.name)
        return "min" if any(word in self.name for word in SMALLER_IS_BETTER) else "max"

    def is_logged(self, trainer: pl.Trainer, mode: str, without: str) -> bool:
        """To be asked when a validation or an epoch has ended.

        Args:
            mode: "min" or "max", which is said once where the module did not say it.
            without: What is said once where the usual name is absent.

        Raises:
            ValueError: Another name is; with the nearest one.
        """
        if self.is_checked:
            return self.is_there
        logged, module = trainer.callback_metrics, name_of(trainer.lightning_module)
        self.is_checked, self.is_there = True, self.name in logged
        names = f"logged: {', '.join(sorted(logged)) or 'nothing'}"
        if not self.is_there and self.name != self.usual:
            near = difflib.get_close_matches(self.name, logged, n=1, cutoff=0.3)
            raise ValueError(
                f"--{self.group}.monitor {self.name}: {module} has not logged that name by the end "
                f"of its first validation{f'; did you mean {near[0]}?' if near else ''} ({names})"
            )
        line = f"{without}, {module} logs no {self.name} (--{self.group}.monitor NAME; {names})"
        if self.is_there:
            better = "smaller" if mode == "min" else "larger"
            line = f"{self.group.replace('_', ' ')}: by {self.name}, {better} is better"
        trainer.print(line)
        return self.is_there
