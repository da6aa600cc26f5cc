"""Gradient measurements during training, their verdicts, and that training is not changed."""

import csv
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.plugins import MixedPrecision
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from callbacks.gradient_check import GradientCheck
from callbacks.gradient_norms import Layer, StepNorms, dead_layers, dead_units_hook, norms
from tests.tiny import TinyImages, TinyRun, tiny_classifier, tiny_trainer

# ---- verdicts ---------------------------------------------------------------------------------


def check_in(folder: Path | None = None, **arguments: Any) -> GradientCheck:
    return GradientCheck(TinyRun(folder), **arguments)


def verdicts(*measurements: list[Layer], **arguments: Any) -> list[list[str]]:
    check = check_in(**arguments)
    return [check.verdicts(layers) for layers in measurements]


def test_healthy_layers_give_no_verdict() -> None:
    layers = [
        Layer("conv", 1e-2, 1e-2, 1e-3),
        Layer("head", 1.0, 1.0, 1e-3),
        Layer("relu", dead_share=0.4),
    ]
    assert verdicts(layers, layers, layers) == [[], [], []]


def test_vanishing_layers_are_named_once_after_two_measurements_with_a_remedy() -> None:
    layers = [Layer("a", 1e-7), Layer("b", 1e-8), Layer("head", 1.0)]
    found = verdicts(layers, layers, layers)
    assert found[0] == found[2] == []
    assert found[1] == [
        "vanishing: a 1e-07, b 1e-08; add normalisation or residual connections, or change the "
        "activation"
    ]


def test_one_odd_measurement_is_no_verdict_and_a_new_layer_is_named_alone() -> None:
    bad, good = Layer("a", 1e-8), Layer("a", 0.1)
    head = Layer("head", 1.0)
    assert verdicts([bad, head], [good, head], [bad, head]) == [[], [], []]
    later = [bad, Layer("b", 1e-9), head]
    found = verdicts([bad, head], later, later, later)
    assert [len(lines) for lines in found] == [0, 1, 1, 0]
    assert "a 1e-08" in found[1][0]
    assert found[2][0].startswith("vanishing: b 1e-09;")


def test_layer_that_recovers_and_falls_ill_again_is_not_named_again() -> None:
    bad, good = [Layer("a", 1e-8), Layer("b", 1.0)], [Layer("a", 0.1), Layer("b", 1.0)]
    found = verdicts(bad, bad, good, bad, bad, bad)
    assert [len(lines) for lines in found] == [0, 1, 0, 0, 0, 0]


def test_measures_without_a_datamodule(tmp_path: Path) -> None:
    data = TinyImages(num_train=80)
    data.setup()
    check = check_in(tmp_path, every_n_steps=5)
    trainer = tiny_trainer(tmp_path, callbacks=[check])
    trainer.fit(tiny_classifier(data), data.train_dataloader(), data.val_dataloader())
    assert len([row for row in rows(tmp_path) if row["layer"] == "(all)"]) == 2


@pytest.mark.parametrize(("norm", "shown"), [(5e3, "5e+03"), (math.inf, "inf"), (math.nan, "nan")])
def test_exploding_gradient_is_said_at_once(norm: float, shown: str) -> None:
    found = verdicts([Layer("rnn", norm), Layer("head", 1.0), Layer("relu", dead_share=0.1)])
    if math.isnan(norm):
        assert found == [
            [f"exploding: rnn {shown}; lower --optimizer.lr, or clip: --gradient_clip_val 1"]
        ]
    else:
        assert found[0][0].startswith(f"exploding: rnn {shown}; lower --optimizer.lr")
    assert all("relu" not in line for line in found[0])


def test_dead_activation_is_named() -> None:
    layers = [Layer("stage.2", dead_share=0.75)]
    found = verdicts(layers, layers)
    assert found == [[], ["dead: stage.2 0.75; lower --optimizer.lr, or use LeakyReLU or GELU"]]


def test_thresholds_are_arguments() -> None:
    layers = [Layer("a", 0.1), Layer("b", 1.0), Layer("relu", dead_share=0.2)]
    (found,) = verdicts(layers, exploding_norm=0.5)
    assert [line.partition(";")[0] for line in found] == ["exploding: b 1"]
    found = verdicts(layers, layers, vanishing_ratio=0.5, dead_share=0.1)[1]
    assert [line.partition(";")[0] for line in found] == ["vanishing: a 0.1", "dead: relu 0.2"]


# ---- measuring --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "share"),
    [
        (torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]]), 0.5),  # [N,D]
        (torch.tensor([0.0, 1.0]).view(1, 2, 1, 1).expand(3, 2, 4, 4), 0.5),  # [N,C,H,W]
        (torch.tensor([0.0, 1.0, 1.0, 1.0]).expand(3, 5, 4), 0.25),  # [N,L,D]
        (torch.tensor([0.0, 1.0]).view(1, 2, 1).expand(3, 2, 5), 0.5),  # [N,C,L]
        (torch.zeros(3, 5, 4), 1.0),
    ],
)
def test_dead_units_are_zero_for_every_sample(output: Tensor, share: float) -> None:
    dead: dict[str, Tensor] = {}
    dead_units_hook(dead, "relu")(nn.ReLU(), None, output)
    assert dead["relu"].item() == share


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_norms_of_any_precision(dtype: torch.dtype) -> None:
    """Sums of squares beyond float16's range included."""
    found = norms([torch.full((3, 3), 200.0, dtype=dtype), torch.zeros(2, dtype=dtype)])
    assert found.dtype == torch.float32
    assert found.tolist() == [600.0, 0.0]


def test_norms_by_layer_against_a_hand_made_step() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(3, 2)).sum().backward()
    gradient = torch.cat([model[0].weight.grad.flatten(), model[0].bias.grad]).norm().item()
    weight = torch.cat([model[0].weight.flatten(), model[0].bias]).norm().item()
    step = StepNorms([*model.named_parameters()])
    for p in model.parameters():
        p.grad.mul_(0.5)  # "clipping"
    optimizer.step()
    step.finish(was_scaled=False)
    whole, first, last = step.layers()
    (relu,) = dead_layers({"1": torch.tensor(0.25)})
    assert (first.layer, last.layer) == ("0", "2")
    assert first[1:4] == pytest.approx((gradient, gradient / 2, 0.05 * gradient / weight), rel=1e-4)
    assert whole.gradient_norm == pytest.approx(math.hypot(first[1], last[1]), rel=1e-5)
    assert whole.layer == "(all)"
    assert relu[0] == "1"
    assert relu.dead_share == 0.25


def train(folder: Path, check: GradientCheck | None, **arguments: Any) -> tuple[Any, pl.Trainer]:
    optimizer = arguments.pop("optimizer", {})
    data = TinyImages(num_train=80, crop_padding=1)
    module = tiny_classifier(data, model={"dropout": 0.3}, optimizer=optimizer)
    callbacks = [*([] if check is None else [check]), *arguments.pop("more", [])]
    trainer = tiny_trainer(folder, callbacks=callbacks, **arguments)
    trainer.fit(module, datamodule=data)
    return module, trainer


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "gradients.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Reference(pl.Callback):
    """Norms by torch's own function, after Lightning's unscaling and before its clipping."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        self.norms.append(torch.nn.utils.get_total_norm(gradients).item())


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"accumulate_grad_batches": 2},
        {"precision": "bf16-mixed"},
        {"optimizer": {"name": "sgd"}},
    ],
)
def test_training_is_not_changed_and_every_nth_step_is_measured(
    tmp_path: Path, arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    reference = Reference()
    checked, trainer = train(
        tmp_path,
        check_in(tmp_path, every_n_steps=2),
        more=[reference],
        **arguments,
    )
    assert "gradient check" not in capsys.readouterr().out
    plain, _ = train(tmp_path, None, **arguments)
    pairs = zip(checked.state_dict().values(), plain.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    whole = [row for row in rows(tmp_path) if row["layer"] == "(all)"]
    steps = list(range(0, trainer.global_step, 2))
    assert [int(row["step"]) for row in whole] == steps
    found = [float(row["gradient_norm"]) for row in whole]
    assert found == pytest.approx([reference.norms[step] for step in steps], rel=1e-4)
    assert [row["clipped_norm"] for row in whole] == [row["gradient_norm"] for row in whole]
    kinds = (nn.Conv2d, nn.BatchNorm2d, nn.Linear, nn.ReLU)
    expected = {name for name, m in checked.model.named_modules() if isinstance(m, kinds)}
    assert {row["layer"] for row in rows(tmp_path)} == {"(all)"} | expected
    ratios = [
        float(row["update_ratio"]) for row in rows(tmp_path) if row["layer"] == "network.head"
    ]
    assert all(1e-4 < ratio < 1 for ratio in ratios)
    shares = [
        float(row["dead_share"]) for row in rows(tmp_path) if row["layer"] == "network.activation"
    ]
    assert len(shares) == len(steps)
    assert all(0 <= share <= 1 for share in shares)


def compile_whole(module: Any) -> None:
    module.model.compile(backend="eager")  # the same tracing, without a C++ compiler


def compile_part(module: Any) -> None:
    network = module.model.network
    network.activation = torch.compile(network.activation, backend="eager")


class Dies(pl.Callback):
    """From the second step on, no unit of the last activation says anything."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *arguments: Any) -> None:
        if trainer.global_step == 1:
            pl_module.model.network.hidden.bias.data.fill_(-1e4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # by tracing itself
@pytest.mark.parametrize("prepare", [compile_whole, compile_part])
def test_dead_units_of_a_compiled_network_are_seen_and_training_is_not_changed(
    tmp_path: Path, prepare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler.reset()
    (tmp_path / "eager").mkdir()
    train(
        tmp_path / "eager",
        check_in(tmp_path / "eager", every_n_steps=3),
        more=[Dies()],
    )
    original = pl.Trainer.fit
    monkeypatch.setattr(
        pl.Trainer, "fit", lambda self, module, **x: (prepare(module), original(self, module, **x))
    )
    checked, _ = train(tmp_path, check_in(tmp_path, every_n_steps=3), more=[Dies()])
    torch.compiler.reset()
    plain, _ = train(tmp_path, None, more=[Dies()])
    pairs = zip(checked.state_dict().values(), plain.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not any(m._forward_hooks for m in checked.modules())
    shares, expected = (
        [(r["step"], r["dead_share"]) for r in rows(folder) if "activation" in r["layer"]]
        for folder in (tmp_path, tmp_path / "eager")
    )
    assert shares == expected
    assert [share for _, share in shares][1:] == ["1", "1", "1"]


def test_norm_before_and_after_clipping(tmp_path: Path) -> None:
    reference = Reference()
    train(
        tmp_path,
        check_in(tmp_path, every_n_steps=1),
        more=[reference],
        gradient_clip_val=0.1,
    )
    whole = [row for row in rows(tmp_path) if row["layer"] == "(all)"]
    assert [float(row["gradient_norm"]) for row in whole] == pytest.approx(
        reference.norms, rel=1e-4
    )
    assert [float(row["clipped_norm"]) for row in whole] == pytest.approx(
        [0.1] * len(whole), rel=1e-3
    )


@pytest.mark.parametrize("fused", [False, True])
def test_values_are_unscaled_under_a_gradient_scaler(tmp_path: Path, fused: bool) -> None:
    """The first steps at scale 2^16 may overflow and be left out; a measured one is unscaled."""
    data = TinyImages(num_train=80)
    module = tiny_classifier(data)
    module.configure_optimizers = lambda: torch.optim.AdamW(module.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    check = check_in(tmp_path, every_n_steps=1, before_fit=False)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    tiny_trainer(tmp_path, callbacks=[check], plugins=[plugin]).fit(module, datamodule=data)
    whole = [row for row in rows(tmp_path) if row["layer"] == "(all)"]
    assert len(whole) == 10
    assert all(0.1 < float(row["gradient_norm"]) < 20 for row in whole)
    assert [row["clipped_norm"] for row in whole] == [row["gradient_norm"] for row in whole]


# the schedule runs on although the scaler left the first step out
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_step_that_the_scaler_leaves_out_is_not_measured(tmp_path: Path) -> None:
    check = check_in(tmp_path, every_n_steps=1, before_fit=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    data = TinyImages(num_train=80)
    trainer = tiny_trainer(tmp_path, callbacks=[check], plugins=[plugin], max_steps=2)
    module = tiny_classifier(data)
    trainer.fit(module, datamodule=data)
    assert not (tmp_path / "gradients.csv").exists()


def test_no_hook_is_left(tmp_path: Path) -> None:
    module, trainer = train(tmp_path, check_in(tmp_path, every_n_steps=1))
    assert not any(m._forward_hooks for m in module.modules())
    assert not trainer.optimizers[0]._optimizer_step_post_hooks


def test_resumed_run_measures_its_steps_once(tmp_path: Path) -> None:
    check = check_in(tmp_path, every_n_steps=2)
    module, trainer = train(tmp_path, check)  # steps 0..9
    path = tmp_path / "state.ckpt"
    trainer.save_checkpoint(path)
    with (tmp_path / "gradients.csv").open("a") as file:
        file.write("10,(all),1,1,1,nan\n12,(all),1,1,1,nan\n")  # beyond the checkpoint
    data = TinyImages(num_train=80, crop_padding=1)
    again = check_in(tmp_path, every_n_steps=2)
    again.compare = lambda *_: pytest.fail("a resumed run is not checked again")  # type: ignore[method-assign]
    trainer = tiny_trainer(tmp_path, callbacks=[again], max_epochs=2)
    module = tiny_classifier(data, model={"dropout": 0.3})
    trainer.fit(module, datamodule=data, ckpt_path=path, weights_only=True)
    steps = [int(row["step"]) for row in rows(tmp_path) if row["layer"] == "(all)"]
    assert steps == list(range(0, 20, 2))


class CurveLogger(TensorBoardLogger):
    """Remembers values; writes no file and needs no tensorboard."""

    def __init__(self) -> None:
        self.values: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.values.append((step or 0, metrics))


def test_loggers_get_every_number() -> None:
    logger = CurveLogger()
    check = check_in()
    layers = [Layer("(all)", 2.0, 1.0, 1e-3), Layer("relu", dead_share=0.5)]
    silent = SimpleNamespace(print=lambda text: None)
    check.report(SimpleNamespace(loggers=[logger]), silent, 7, layers)  # type: ignore[arg-type]
    expected = {
        "gradient_norm/(all)": 2.0,
        "clipped_norm/(all)": 1.0,
        "update_ratio/(all)": 1e-3,
        "dead_share/relu": 0.5,
    }
    assert logger.values == [(7, expected)]


# ---- before the fit ------------------------------------------------------------------------------


class DoubledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * gradient


class Faulty(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return DoubledGradient.apply(x.relu())


@pytest.mark.parametrize("before_fit", [True, False])
def test_wrong_backward_stops_before_the_first_step(tmp_path: Path, before_fit: bool) -> None:
    data = TinyImages()
    module = tiny_classifier(data)
    module.model.network.activation = Faulty()
    check = check_in(before_fit=before_fit)
    trainer = tiny_trainer(tmp_path, callbacks=[check])
    if before_fit:
        with pytest.raises(ValueError, match=r"backward pass is wrong: .*network\.hidden\.weight"):
            trainer.fit(module, datamodule=data)
        assert trainer.global_step == 0
    else:
        trainer.fit(module, datamodule=data)
        assert trainer.global_step > 0


def test_unused_parameter_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = TinyImages()
    module = tiny_classifier(data)
    module.model.network.unused = nn.Linear(2, 2)
    check = check_in()
    tiny_trainer(tmp_path, callbacks=[check]).fit(module, datamodule=data)
    told = capsys.readouterr().out.splitlines()
    assert [line for line in told if line.startswith("gradient check")] == [
        "gradient check: no gradient reaches network.unused.weight, network.unused.bias: unused or "
        "detached in the forward pass"
    ]


@pytest.mark.parametrize("finds_unused", [False, True])
def test_unused_parameter_ends_several_ranks_with_both_remedies(
    finds_unused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    data = TinyImages()
    module = tiny_classifier(data)
    module.model.network.unused = nn.Linear(2, 2)
    wrapped = object.__new__(DistributedDataParallel)  # as much of it as is looked at
    wrapped.__dict__["find_unused_parameters"] = finds_unused
    module.print = print
    told: list[str | None] = []
    strategy = SimpleNamespace(model=wrapped, broadcast=lambda text: told.append(text) or text)
    trainer: Any = SimpleNamespace(strategy=strategy, datamodule=data, is_global_zero=True)
    check = check_in()
    if finds_unused:
        check.compare(trainer, module)
        assert "no gradient reaches network.unused.weight" in capsys.readouterr().out
        assert told == [None]
        return
    with pytest.raises(ValueError, match="no gradient reaches") as failure:
        check.compare(trainer, module)
    assert str(failure.value) == (
        "no gradient reaches network.unused.weight, network.unused.bias: several processes would "
        "wait for it for ever; remove what the forward pass does not use, or, where that is "
        "meant, add --strategy ddp_find_unused_parameters_true"
    )
    assert told == [str(failure.value)]
    trainer.is_global_zero = False  # another rank, which learns it from rank 0
    strategy.broadcast = lambda text: told[0]
    with pytest.raises(ValueError, match="no gradient reaches network.unused.weight"):
        check.compare(trainer, module)


def test_sigmoid_tower_is_reported_as_vanishing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = TinyImages(num_train=80)
    module = tiny_classifier(data)
    layers = [layer for _ in range(14) for layer in (nn.Linear(16, 16), nn.Sigmoid())]
    module.model.network.activation = nn.Sequential(*layers)
    check = check_in(every_n_steps=1)
    tiny_trainer(tmp_path, callbacks=[check]).fit(module, datamodule=data)
    told = capsys.readouterr().out.splitlines()
    first = next(n for n, m in module.model.named_modules() if isinstance(m, nn.Conv2d))
    assert any(
        line.startswith("gradient check: step 1: vanishing: ") and f" {first} " in line
        for line in told
    )


def test_norms_of_several_formats() -> None:
    kinds = (torch.float16, torch.float32, torch.float64, torch.complex64)
    tensors = [torch.full((4,), 2.0, dtype=kind) for kind in kinds]
    assert norms(tensors).tolist() == [4.0] * 4
    assert norms(tensors[:2]).tolist() == [4.0] * 2
    assert norms([torch.full((4,), 40_000.0, dtype=torch.float16)]).tolist() == [80_000.0]
