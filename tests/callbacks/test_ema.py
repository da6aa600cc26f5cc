"""The average is what is validated, saved and tested; the weights themselves go on training."""

from functools import partial
from pathlib import Path

import pytest
import torch

from callbacks.checkpoint_io import AtomicCheckpointIO
from callbacks.checkpointing import Checkpointing
from callbacks.ema import EMA, moving_average
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer


def test_the_decay_rises_to_its_value() -> None:
    average = partial(moving_average, 0.9)
    zero, one = torch.zeros(1), torch.ones(1)
    for num_averaged, decay in ((0, 0.1), (8, 0.5), (1000, 0.9)):
        assert float(average(zero, one, num_averaged)) == pytest.approx(1 - decay)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_average_keeps_its_own_format(dtype: torch.dtype) -> None:
    """Rounded to few bits it would never move by a thousandth."""
    average = torch.ones(1)
    for step in range(10**6, 10**6 + 10):
        average = moving_average(0.999, average, torch.full((1,), 1.5, dtype=dtype), step)
    assert average.dtype == torch.float32
    assert float(average) == pytest.approx(1.5 - 0.5 * 0.999**10)


def test_counters_are_not_averaged() -> None:
    assert moving_average(0.9, torch.tensor(3), torch.tensor(8), 100) == 8


def test_complex_parameters_are_averaged() -> None:
    average = moving_average(0.9, torch.tensor(1 + 1j), torch.tensor(2j), 1000)
    assert complex(average) == pytest.approx(0.9 + 1.1j)


def test_the_average_equals_one_computed_by_hand_and_is_what_is_tested(tmp_path: Path) -> None:
    weights: list[torch.Tensor] = []

    class Records(EMA):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
            weights.append(pl_module.model.network.head.weight.detach().clone())
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    data = TinyImages()
    model = tiny_classifier(data)
    start = model.model.network.head.weight.detach().clone()
    checkpointing = Checkpointing(TinyRun(tmp_path))
    trainer = tiny_trainer(
        tmp_path,
        callbacks=[checkpointing, Records(decay=0.5)],
        plugins=[AtomicCheckpointIO()],
    )
    trainer.fit(model, datamodule=data)
    expected = start
    for step, value in enumerate(weights):
        # torch's AveragedModel copies at its first call and counts from there
        decay = min(0.5, (1 + step) / (10 + step))
        expected = value if step == 0 else torch.lerp(value, expected, decay)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    torch.testing.assert_close(saved["state_dict"]["model.network.head.weight"], expected)
    assert torch.equal(saved["current_model_state"]["model.network.head.weight"], weights[-1])
    trainer.test(model, datamodule=data, ckpt_path=tmp_path / "last.ckpt", verbose=False)
    torch.testing.assert_close(model.model.network.head.weight.detach(), expected)
