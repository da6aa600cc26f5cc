"""Which classes a run is made of."""

import pytest
from torch import nn

from cli.chosen_classes import class_groups
from cli.settings import Setting


class Named(nn.Module):
    def __init__(self, num_classes: int, name: str = "large") -> None:
        super().__init__()


class Checkpointed(nn.Module):
    def __init__(self, num_classes: int, checkpoint_activations: bool = False) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("network", "name"), [(Named, "name"), (Checkpointed, "checkpoint_activations")]
)
def test_an_argument_whose_flag_means_something_else_is_refused(
    network: type[nn.Module], name: str
) -> None:
    path = f"{__name__}.{network.__name__}"
    given = {"allow_external_code": "true", "model.name": path}
    _, problems = class_groups([Setting(key, value, "") for key, value in given.items()], {})
    assert len(problems) == 1
    assert f"'{path}' has an argument {name}, but --model.{name} is a flag of ours" in problems[0]
