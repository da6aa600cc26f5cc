"""Each schedule as a table of steps and factors, the plateau rule, and resuming."""

import math

import pytest
import torch

from lightning_modules.schedules import FACTORS, Schedule


def make(name: str, **arguments) -> Schedule:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    return Schedule(optimizer, 100, name, **arguments)


def step_to(schedule: Schedule, step: int) -> float:
    while schedule.last_epoch < step:
        schedule.optimizer.step()
        schedule.step()
    return schedule.optimizer.param_groups[0]["lr"] / 2.0


@pytest.mark.parametrize(
    ("name", "arguments", "factors"),
    [
        ("constant", {"warmup": 0.0}, {0: 1, 50: 1, 100: 1}),
        ("constant", {"warmup": 0.04}, {0: 0.2, 1: 0.4, 3: 0.8, 4: 1, 60: 1}),
        (
            "step",
            {"warmup": 0.0, "step_share": 0.3, "reduce_factor": 0.1},
            {0: 1, 29: 1, 30: 0.1, 60: 0.01},
        ),
        ("cosine", {"warmup": 0.0, "final_factor": 0.0}, {0: 1, 50: 0.5, 100: 0}),
        ("cosine", {"warmup": 0.1, "final_factor": 0.2}, {10: 1, 55: 0.6, 100: 0.2}),
        ("onecycle", {"final_factor": 0.0}, {0: 0.04, 15: 0.52, 30: 1, 65: 0.5, 100: 0}),
        ("plateau", {"warmup": 0.0}, {0: 1, 100: 1}),
        (
            "warmup_cosine_plateau",
            {"warmup": 0.1, "plateau_start": 0.7},
            {10: 1, 40: 0.55, 70: 0.1, 100: 0.1},
        ),
    ],
)
def test_factor_at_each_step(name: str, arguments: dict, factors: dict[int, float]) -> None:
    schedule = make(name, **arguments)
    for step, factor in factors.items():
        assert step_to(schedule, step) == pytest.approx(factor), f"step {step}"


def test_plateau_reduces_after_patience_and_counts_only_real_improvements() -> None:
    schedule = make("plateau", warmup=0.0, reduce_factor=0.5, patience=1, min_delta=0.01)
    observed = [(1.0, 1), (0.9, 1), (0.899, 1), (0.898, 0.5), (0.5, 0.5), (0.6, 0.5), (0.6, 0.25)]
    for loss, factor in observed:
        schedule.observe(loss)
        assert step_to(schedule, 0) == factor


def test_plateau_scale_survives_later_steps() -> None:
    schedule = make("plateau", warmup=0.0, reduce_factor=0.5, patience=0)
    schedule.observe(1.0)
    assert schedule.observe(1.0)
    assert step_to(schedule, 10) == 0.5


@pytest.mark.parametrize(
    ("name", "last"),
    [("constant", -1), ("cosine", 99), ("onecycle", 99), ("step", 67)],  # reductions at 34 and 68
)
def test_until_when_the_rate_falls(name: str, last: int) -> None:
    schedule = make(name)
    falling = []
    for step in range(101):
        step_to(schedule, step)
        falling.append(schedule.still_falls)
    assert falling == [step <= last for step in range(101)]


@pytest.mark.parametrize("name", ["plateau", "warmup_cosine_plateau"])
def test_a_plateau_falls_to_its_floor(name: str) -> None:
    schedule = make(name, patience=0, reduce_factor=0.1, min_factor=0.1)
    step_to(schedule, 80)
    found = []
    for _ in range(3):
        found.append(schedule.still_falls)
        schedule.observe(1.0)
    assert found == [True, True, False]


@pytest.mark.parametrize("name", FACTORS)
def test_another_place_takes_the_rate_of_that_place(name: str) -> None:
    moved, walked = make(name), make(name)
    moved.move_to(60)
    assert moved.optimizer.param_groups[0]["lr"] / 2.0 == step_to(walked, 60)
    assert step_to(moved, 75) == step_to(walked, 75)


def test_plateau_never_goes_below_its_floor() -> None:
    schedule = make("plateau", warmup=0.0, reduce_factor=0.1, patience=0, min_factor=0.05)
    for _ in range(5):
        schedule.observe(1.0)
    assert step_to(schedule, 0) == 0.05


def test_three_phases_watch_the_loss_only_in_the_last() -> None:
    schedule = make("warmup_cosine_plateau", plateau_start=0.5, patience=0, reduce_factor=0.1)
    assert not any(schedule.observe(1.0) for _ in range(5))
    step_to(schedule, 60)
    assert [schedule.observe(1.0) for _ in range(2)] == [False, True]
    assert step_to(schedule, 61) == pytest.approx(0.01)


def test_plateau_of_a_metric_that_is_to_rise() -> None:
    schedule = make("plateau", warmup=0.0, patience=0, min_delta=0.1, monitor="val/accuracy")
    schedule.mode = "max"
    assert [schedule.observe(v) for v in (0.5, 0.6, 0.65, 0.7, math.nan)] == [
        *(False, False, True, False),  # 0.65 is no 0.66; 0.7 is
        False,  # says nothing
    ]


def test_a_plateau_of_another_metric_starts_anew() -> None:
    before = make("plateau", warmup=0.0, patience=0)
    before.observe(0.1)
    schedule = make("plateau", warmup=0.0, patience=0, monitor="val/f1")
    schedule.load_state_dict(before.state_dict())
    assert not schedule.observe(0.9)
    same = make("plateau", warmup=0.0, patience=0)
    same.load_state_dict(before.state_dict())
    assert same.observe(0.9)


def test_only_what_a_validation_gives_is_watched() -> None:
    with pytest.raises(ValueError, match=r"monitor must be a metric of the validation, val/\.\.\."):
        make("plateau", monitor="train/loss")


@pytest.mark.parametrize("name", ["constant", "step", "cosine", "onecycle"])
def test_other_schedules_ignore_the_loss(name: str) -> None:
    schedule = make(name)
    before = step_to(schedule, 50)
    assert not any(schedule.observe(1.0) for _ in range(10))
    assert step_to(schedule, 50) == before


@pytest.mark.parametrize("name", FACTORS)
def test_a_new_base_rate_applies_at_once_and_later(name: str) -> None:
    one, other = make(name), make(name)
    other.set_base_lr(4.0)
    for step in (0, 7, 80):
        assert step_to(other, step) == pytest.approx(2 * step_to(one, step))


@pytest.mark.parametrize("name", FACTORS)
def test_state_goes_on_where_it_was(name: str) -> None:
    whole = make(name, patience=0)
    step_to(whole, 80)
    whole.observe(1.0)
    whole.observe(1.0)
    resumed = make(name, patience=0)
    resumed.optimizer.load_state_dict(whole.optimizer.state_dict())
    resumed.load_state_dict(whole.state_dict())
    whole.observe(1.0)
    resumed.observe(1.0)
    assert step_to(resumed, 90) == step_to(whole, 90)


@pytest.mark.parametrize("name", FACTORS)
def test_every_schedule_keeps_each_groups_share_of_the_rate(name: str) -> None:
    groups = [
        {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 2.0 * scale, "lr_scale": scale}
        for scale in (1.0, 0.25)
    ]
    schedule = Schedule(torch.optim.SGD(groups), 100, name)
    for lr in (2.0, 3.0):
        schedule.set_base_lr(lr)
        assert schedule.peak_lr == lr
        step_to(schedule, schedule.last_epoch + 20)
        schedule.observe(1.0)
        full, quarter = (group["lr"] for group in schedule.optimizer.param_groups)
        assert quarter == full / 4 > 0
