"""The rate finder: its decision on synthetic curves, and that the sweep leaves no trace."""

import csv
import hashlib
import multiprocessing
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.plugins import MixedPrecision

from callbacks.lr_finder import LRFinder, own_batches, suggest, unchanged
from tests.fresh_process import run_script
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer

PROJECT = Path(__file__).resolve().parents[2]
LRS = np.geomspace(1e-6, 1, 100)


def curve(center: float = -3.0, floor: float = 0.3, explosion: float = -1.0) -> np.ndarray:
    """A plateau at 2.3, a fall around 10^center, an explosion from 10^explosion on."""
    x = np.log10(LRS)
    fall = (2.3 - floor) / (1 + np.exp(-(x - center) / 0.25))
    return 2.3 - fall + 3 * np.maximum(0, x - explosion) ** 2


# ---- the decision -------------------------------------------------------------------------


@pytest.mark.parametrize("center", [-4.0, -3.0, -2.0])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2, 0.4])
def test_noise_moves_the_rate_by_less_than_a_factor_3(center: float, noise: float) -> None:
    best = 10 ** (center + 0.25 * np.log(9))  # nine tenths of a logistic fall
    for seed in range(20):
        losses = curve(center) + np.random.default_rng(seed).normal(0, noise, len(LRS))
        lr, reason = suggest(LRS, losses)
        assert lr is not None, reason
        assert best / 3 < lr < best * 3, f"seed {seed}: {lr:.1e}, {reason}"


def test_outliers_at_tiny_rates_do_not_attract_the_rate() -> None:
    losses = curve()
    losses[[5, 20]] = 0.1
    lr, _ = suggest(LRS, losses)
    assert lr is not None
    assert 1e-3 < lr < 1e-2


def test_rate_keeps_a_factor_2_below_an_explosion_right_after_the_fall() -> None:
    clean = curve(center=-1.6, explosion=-1.5)
    lr, _ = suggest(LRS, clean, smoothing=0.05)
    assert lr == pytest.approx(LRS[clean.argmin()] / 2, rel=0.2)


def test_second_fall_behind_a_hill_is_not_looked_at() -> None:
    x = np.log10(LRS)
    hill = 1.5 * np.exp(-(((x + 1.5) / 0.3) ** 2))
    losses = curve(explosion=1) + hill - 0.3 * (x > -0.7)
    lr, reason = suggest(LRS, losses)
    assert lr is not None
    assert lr < 1e-2, reason


def test_loss_that_still_falls_at_the_last_rate_gives_a_rate() -> None:
    lr, _ = suggest(LRS, curve(center=-0.5, explosion=1))
    assert lr is not None
    assert 0.1 < lr <= 1


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        (np.full(100, 2.3), "the loss stays flat from 1e-06 to 1e+00"),
        (2.3 + np.random.default_rng(0).normal(0, 0.3, 100), "the loss stays flat"),
        (2.3 + 2 * (np.log10(LRS) + 6), "the loss only rises"),
        (np.full(100, np.nan), "the loss is not finite after 0 rates"),
        (np.r_[np.full(8, 2.3), np.inf, np.full(91, 2.3)], "the loss is not finite after 8 rates"),
        (np.array([2.3] * 5 + [50.0]), "the loss explodes after 6 rates"),
        (np.zeros(100), "the loss stays flat"),
    ],
)
def test_useless_curve_gives_no_rate_and_the_reason(losses: np.ndarray, reason: str) -> None:
    lr, found = suggest(LRS[: len(losses)], losses)
    assert lr is None
    assert found.startswith(reason)


@pytest.mark.parametrize("seed", range(20))
def test_pure_noise_gives_no_rate(seed: int) -> None:
    losses = 2.3 + np.random.default_rng(seed).normal(0, 0.4, 100)
    assert suggest(LRS, losses)[0] is None


def test_what_follows_a_broken_loss_is_not_looked_at() -> None:
    losses = curve()
    losses[90:] = np.nan
    losses[95] = -100
    assert suggest(LRS, losses)[0] == pytest.approx(suggest(LRS, curve())[0], rel=0.2)


def test_a_sweep_goes_up() -> None:
    with pytest.raises(ValueError, match=r"--lr_finder needs min_lr 1.0 < max_lr 1.0"):
        LRFinder(TinyRun(), min_lr=1.0)


# ---- no trace -------------------------------------------------------------------------------


def fingerprint(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Everything a sweep could leave changed."""
    parts: list[Any] = [sorted((n, v.tolist()) for n, v in module.state_dict().items())]
    parts.append([None if p.grad is None else p.grad.tolist() for p in module.parameters()])
    parts.append([m.training for m in module.modules()])
    parts.append(repr(optimizer.state_dict()))
    parts += [random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("stepped", [False, True])
def test_everything_is_put_back(fails: bool, fused: bool, stepped: bool) -> None:
    module = tiny_classifier(TinyImages())
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=fused)
    batch = (torch.randint(0, 255, (8, 1, 8, 8), dtype=torch.uint8), torch.arange(8) % 3)
    if stepped:
        module.compute_loss(batch)[0].mean().backward()
        optimizer.step()
    before = fingerprint(module, optimizer)

    def disturb() -> None:
        module.eval()
        module.train()
        for _ in range(3):
            optimizer.param_groups[0]["lr"] = 10.0
            optimizer.zero_grad()
            module.compute_loss(batch)[0].mean().backward()
            optimizer.step()
        module.model.eval()
        _ = random.random(), np.random.rand(), torch.rand(1)
        assert fingerprint(module, optimizer) != before
        if fails:
            raise RuntimeError("in the middle")

    if fails:
        with pytest.raises(RuntimeError, match="in the middle"), unchanged(module, [optimizer]):
            disturb()
    else:
        with unchanged(module, [optimizer]):
            disturb()
    assert fingerprint(module, optimizer) == before


def fit(
    folder: Path,
    finder: LRFinder | None,
    lr: Any = "auto",
    data: TinyImages | None = None,
    optimizer: str = "adamw",
    **arguments: Any,
) -> Any:
    """Trains the small CNN with dropout on 20 batches an epoch; returns module and trainer."""
    ckpt_path = arguments.pop("ckpt_path", None)
    data = data or TinyImages(num_train=160, crop_padding=1)
    module = tiny_classifier(
        data, model={"dropout": 0.3}, optimizer={"lr": lr, "name": optimizer}, schedule={}
    )
    callbacks = [] if finder is None else [finder]
    trainer = tiny_trainer(folder, callbacks=callbacks, **arguments)
    trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    return module, trainer


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"optimizer": "sgd"},
        {"precision": "bf16-mixed"},
        {"gradient_clip_val": 0.1},
        {"accumulate_grad_batches": 3},
    ],
)
def test_run_with_the_finder_equals_a_run_with_the_rate_it_found(
    tmp_path: Path, arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    finder = LRFinder(TinyRun(tmp_path))
    found, _ = fit(tmp_path, finder, **arguments)
    assert finder.lr is not None
    assert 1e-5 < finder.lr < 1
    assert found.base_lr == finder.lr
    told = [line for line in capsys.readouterr().out.splitlines() if "lr finder" in line]
    assert len(told) == 1
    assert re.fullmatch(
        rf"lr finder: found {finder.lr:.2e} \(loss .*; \d+ rates in .* s\)", told[0]
    )
    given, _ = fit(tmp_path, None, lr=finder.lr, **arguments)
    assert same_weights(found, given)


def test_exception_in_the_sweep_reaches_the_user_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = TinyImages(num_train=160)
    module = tiny_classifier(data, optimizer={"lr": "auto"})
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    calls = []

    def fail_late(batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 30:
            raise RuntimeError("out of memory")
        return type(module).compute_loss(module, batch)

    monkeypatch.setattr(module, "compute_loss", fail_late)
    trainer = tiny_trainer(tmp_path, callbacks=[LRFinder(TinyRun(tmp_path))])
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.fit(module, datamodule=data)
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())


# ---- when it keeps the configured rate ----------------------------------------------------------


@pytest.mark.parametrize(
    ("num_train", "arguments", "reason"),
    [
        (40, {}, "5 training batches are fewer than --lr_finder.min_batches"),
        (160, {"limit_train_batches": 5}, "5 training batches are fewer than"),
        (160, {"overfit_batches": 2}, "no sweep with --fast_dev_run or --overfit_batches"),
        (160, {"fast_dev_run": True}, "no sweep with --fast_dev_run or --overfit_batches"),
    ],
)
@pytest.mark.filterwarnings("ignore:The `srun` command")
def test_keeps_the_configured_rate_and_says_why(
    tmp_path: Path,
    num_train: int,
    arguments: dict[str, Any],
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    finder = LRFinder(TinyRun(tmp_path))
    module, _ = fit(tmp_path, finder, data=TinyImages(num_train=num_train), **arguments)
    assert finder.lr is None
    assert module.base_lr == 1e-3
    told = [line for line in capsys.readouterr().out.splitlines() if "lr finder" in line]
    assert len(told) == 1
    assert told[0].startswith(f"lr finder: keeps 1.00e-03 ({reason}")


def test_broken_loss_keeps_the_rate_and_saves_the_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = TinyImages(num_train=160)
    module = tiny_classifier(data, optimizer={"lr": "auto"})
    compute_loss = module.compute_loss

    def break_loss(batch: Any) -> Any:
        losses, outcomes = compute_loss(batch)
        return losses * np.nan, outcomes

    monkeypatch.setattr(module, "compute_loss", break_loss)
    finder = LRFinder(TinyRun(tmp_path))
    tiny_trainer(tmp_path, callbacks=[finder]).fit(module, datamodule=data)
    assert (
        "keeps 1.00e-03 (the loss is not finite after 0 rates; 1 rates" in capsys.readouterr().out
    )
    assert (tmp_path / "lr_finder.png").is_file()


def test_given_rate_is_not_questioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, _ = fit(tmp_path, LRFinder(TinyRun(tmp_path)), lr=3e-3)
    assert module.base_lr == 3e-3
    assert "lr finder" not in capsys.readouterr().out


# ---- resume -----------------------------------------------------------------------------------


class StopAfterTwoEpochs(pl.Callback):
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop = trainer.current_epoch == 1


def test_resumed_run_keeps_the_found_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finder = LRFinder(TinyRun(tmp_path))
    data = TinyImages(num_train=160)
    module = tiny_classifier(data, optimizer={"lr": "auto"}, schedule={})
    arguments = {"max_epochs": 4, "limit_val_batches": 0}
    trainer = tiny_trainer(tmp_path, callbacks=[finder, StopAfterTwoEpochs()], **arguments)
    trainer.fit(module, datamodule=data)
    path = tmp_path / "half.ckpt"
    trainer.save_checkpoint(path)
    group = dict(trainer.optimizers[0].param_groups[0], params=None)
    assert "lr finder: found" in capsys.readouterr().out

    class Look(LRFinder):
        """Would fail at a second sweep; looks at the state before the first resumed step."""

        sweep = None  # type: ignore[assignment]

        @property
        def state_key(self) -> str:
            return "LRFinder"

        def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
            super().on_train_start(trainer, pl_module)
            found = dict(trainer.optimizers[0].param_groups[0], params=None)
            assert found == group  # in mid-schedule: neither the peak rate nor the default
            assert trainer.global_step == 40

    resumed = Look(TinyRun(tmp_path))
    module = tiny_classifier(data, optimizer={"lr": "auto"}, schedule={})
    trainer = tiny_trainer(tmp_path, callbacks=[resumed], **arguments)
    trainer.fit(module, datamodule=data, ckpt_path=path, weights_only=True)
    assert resumed.lr == finder.lr == module.base_lr
    assert group["initial_lr"] == finder.lr
    expected = f"lr finder: keeps {finder.lr:.2e} (the rate of the resumed run)"
    assert expected in capsys.readouterr().out
    trainer.save_checkpoint(path)
    saved = torch.load(path, weights_only=True)
    assert saved["callbacks"]["LRFinder"] == {"lr": finder.lr}


# ---- data, picture, precision, ranks ------------------------------------------------------------


def test_loader_is_its_own_and_workers_end() -> None:
    data = TinyImages(num_train=80, num_workers=1)
    loader = data.train_dataloader()
    assert loader.persistent_workers
    state = loader.generator.get_state()
    expected = list(loader.batch_sampler)
    batches = own_batches(loader, 10, 25)
    found = [next(batches) for _ in range(11)]
    assert len(multiprocessing.active_children()) == 1
    batches.close()
    del batches
    assert multiprocessing.active_children() == []
    assert torch.equal(loader.generator.get_state(), state)
    assert all(
        np.array_equal(a.indices, b.indices)
        for a, b in zip(loader.batch_sampler, expected, strict=True)
    )
    first = data.splits.train.targets[expected[0].indices]
    assert found[0][1].tolist() == found[10][1].tolist() == first.tolist()  # a second round


def test_shuffled_loader_of_torch_keeps_its_generator() -> None:
    dataset = torch.utils.data.TensorDataset(torch.arange(40))
    generator = torch.Generator().manual_seed(3)
    loader = torch.utils.data.DataLoader(dataset, 4, shuffle=True, generator=generator)
    state = generator.get_state()
    assert len(list(own_batches(loader, 10, 25))) == 25
    assert torch.equal(generator.get_state(), state)


class PictureLogger(TensorBoardLogger):
    """Remembers figures; writes no file and needs no tensorboard."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}

    @property
    def experiment(self) -> Any:
        return SimpleNamespace(add_figure=self.figures.__setitem__)


def test_curve_goes_to_table_picture_and_logger(tmp_path: Path) -> None:
    finder = LRFinder(TinyRun(tmp_path))
    finder.lr = 1e-3
    logger = PictureLogger()
    finder.record(SimpleNamespace(loggers=[logger]), curve()[:50].tolist())  # type: ignore[arg-type]
    with (tmp_path / "lr_finder.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["lr"]) for row in rows] == pytest.approx(LRS[:50], rel=1e-5)
    assert [float(row["loss"]) for row in rows] == pytest.approx(curve()[:50], rel=1e-5)
    assert float(rows[0]["smoothed_loss"]) == pytest.approx(2.3, rel=0.01)
    assert (tmp_path / "lr_finder.png").read_bytes().startswith(b"\x89PNG")
    assert list(logger.figures) == ["lr_finder"]


def test_float16_scales_the_loss_by_a_scaler_of_its_own(tmp_path: Path) -> None:
    plugin = MixedPrecision("16-mixed", "cpu")
    assert plugin.scaler is not None
    scale = plugin.scaler.state_dict()
    finder = LRFinder(TinyRun(), num_steps=40)
    data = TinyImages(num_train=160)
    module = tiny_classifier(data, optimizer={"lr": "auto"})
    trainer = tiny_trainer(tmp_path, callbacks=[finder], plugins=[plugin], max_steps=1)

    class Look(LRFinder):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            assert plugin.scaler is not None
            self.scale = plugin.scaler.state_dict()

    look = Look(TinyRun(tmp_path))
    trainer.callbacks.append(look)
    trainer.fit(module, datamodule=data)
    assert finder.lr is not None
    assert look.scale == scale


RANKS = """
import sys
import torch
from callbacks.lr_finder import LRFinder
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer

if __name__ == "__main__":
    finder = LRFinder(TinyRun(), num_steps=40)
    curves = []
    sweep = finder.sweep
    finder.sweep = lambda *arguments: curves.append(sweep(*arguments)) or curves[-1]
    data = TinyImages(batch_size=16, num_train=320)
    module = tiny_classifier(data, optimizer={"lr": "auto"})
    devices = int(sys.argv[1])
    trainer = tiny_trainer(sys.argv[2], callbacks=[finder], devices=devices,
                           strategy="ddp" if devices > 1 else "auto", max_steps=3)
    trainer.fit(module, datamodule=data)
    torch.save((curves, finder.lr, module.state_dict()),
               f"{sys.argv[2]}/{devices}-{trainer.global_rank}.pt")
    trainer.strategy.barrier()  # nobody waits for rank 1 once rank 0 has ended
"""


@pytest.mark.slow
def test_two_ranks_share_one_curve_and_one_rate(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    for devices in (1, 2):
        done = run_script(script, devices, tmp_path, environment={"PYTHONPATH": str(PROJECT)})
        assert done.returncode == 0, done.stderr
    one, first, second = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    assert first[0] == second[0]
    assert first[1] == second[1]
    assert all(
        torch.equal(first[2][name], second[2][name]) for name in first[2] if "running" not in name
    )
    # BatchNorm sees half a batch on each rank, so one rank's curve is close, not equal
    assert first[1] == pytest.approx(one[1], rel=0.7)


def test_each_group_keeps_its_share_of_the_rate(tmp_path: Path) -> None:
    class Rates(pl.Callback):
        def __init__(self) -> None:
            self.seen: set[float] = set()

        def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
            full, scaled = (trainer.optimizers[0].param_groups[n]["lr"] for n in (0, -1))
            self.seen.add(round(scaled / full, 6))

    finder, rates, swept = LRFinder(TinyRun(tmp_path), num_steps=12, min_batches=1), Rates(), set()

    class Watched(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            full, scaled = (self.param_groups[n]["lr"] for n in (0, -1))
            swept.add(round(scaled / full, 6))
            return super().step(closure)

    data = TinyImages(num_train=80)
    settings = {"lr": "auto", "name": "sgd", "backbone_lr_scale": 0.1}
    module = tiny_classifier(data, optimizer=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning_modules.optimizers.SGD", Watched)
        tiny_trainer(tmp_path, callbacks=[finder, rates]).fit(module, datamodule=data)
    assert swept == {0.1}
    assert rates.seen == {0.1}
