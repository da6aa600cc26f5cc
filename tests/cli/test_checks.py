"""The machine against what was asked for: each answer names the way out."""

import inspect
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.accelerators import AcceleratorRegistry
from pytorch_lightning.strategies import StrategyRegistry

from cli.checks import (
    adapt_to_cpu,
    check_accelerator,
    check_master_port,
    check_nodes,
    check_strategy,
    set_matmul_precision,
    why_no_gpu,
)


def test_no_gpu_names_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (problem,) = check_accelerator("gpu", 4)
    assert problem.endswith("--accelerator auto takes what is there")


def test_no_gpu_is_told_from_a_driver_that_does_not_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert why_no_gpu(tmp_path) == "there is no NVIDIA GPU on this machine"
    (tmp_path / "nvidia0").touch()
    assert "its driver is too old or not working" in str(why_no_gpu(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert why_no_gpu(tmp_path) == "CUDA_VISIBLE_DEVICES hides every GPU"


def test_a_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert "has no CUDA support" in str(why_no_gpu())


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((6, 1), "compute capability 6.1) is too old for this torch build (from 7.5)"), ((9, 0), "")],
)
def test_an_old_gpu(monkeypatch: pytest.MonkeyPatch, capability, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    architectures = ["sm_75", "sm_90a", "compute_120"]
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: architectures)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    assert expected in (why_no_gpu() or "")
    assert bool(why_no_gpu()) == bool(expected)


@pytest.mark.parametrize(("devices", "fine"), [(2, True), ([0, 1], True), (3, False), ([2], False)])
def test_more_gpus_than_there_are(monkeypatch: pytest.MonkeyPatch, devices, fine: bool) -> None:
    monkeypatch.setattr("cli.checks.why_no_gpu", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    problems = check_accelerator("cuda", devices)
    assert not problems if fine else "this machine has 2 usable GPU(s)" in problems[0]


def test_unknown_names_come_with_the_nearest() -> None:
    assert "did you mean cpu?" in check_accelerator("cpuu", 1)[0]
    assert "did you mean ddp_fork?" in check_strategy("ddp_frok")[0]
    assert not check_accelerator("cpu", 2)
    assert not check_strategy("ddp")


@pytest.mark.parametrize("name", ["ddp_spawn", "ddp_spawn_find_unused_parameters_true"])
def test_spawned_processes_are_left_out_on_purpose(name: str) -> None:
    (problem,) = check_strategy(name)
    assert "left out on purpose" in problem
    assert "--strategy ddp" in problem


@pytest.mark.parametrize("name", ["tpu", "mps"])
def test_an_accelerator_that_is_not_here_is_one_own_line(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(AcceleratorRegistry[name]["accelerator"], "is_available", lambda: False)
    (problem,) = check_accelerator(name, 1)
    assert problem.startswith(f"--accelerator {name}: ")
    assert problem.endswith("--accelerator auto takes what is there")
    monkeypatch.setattr(AcceleratorRegistry[name]["accelerator"], "is_available", lambda: True)
    assert not check_accelerator(name, 1)


@pytest.mark.parametrize("devices", ["true", "1.5", "auto,auto", "x", [], [-1], [0, 0], "0,0", ","])
def test_what_devices_can_be_is_said(devices: Any) -> None:
    for accelerator in ("cpu", "auto"):
        (problem,) = check_accelerator(accelerator, devices)
        assert problem.startswith("--devices must be how many (2), which ones ([0,2], each once)")


@pytest.mark.parametrize("devices", [[0, 2], "0,2", [5], "3,"])
def test_gpus_by_number_on_a_cpu(monkeypatch: pytest.MonkeyPatch, devices: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    count = 1 if devices in ([5], "3,") else 2
    for accelerator in ("cpu", "auto"):
        (problem,) = check_accelerator(accelerator, devices)
        assert problem.endswith(f"there say how many processes: --devices {count}")


@pytest.mark.parametrize(
    "strategy",
    ["fsdp", "fsdp_cpu_offload", "deepspeed", "deepspeed_stage_3_offload", "model_parallel"],
)
def test_a_strategy_that_shards_weights_is_refused_with_the_reason(strategy: str) -> None:
    (problem,) = check_strategy(strategy)
    assert problem.startswith(f"--strategy {strategy} shards the weights over the devices, but ")
    assert "use ddp" in problem


def test_every_strategy_that_is_offered_takes_our_checkpoints() -> None:
    """Those that write the file themselves refuse what we hand to `save_checkpoint`."""
    for name in StrategyRegistry.available_strategies():
        if not check_strategy(name):
            source = inspect.getsource(StrategyRegistry[name]["strategy"].save_checkpoint)
            assert "storage_options is not None" not in source, name


@pytest.mark.parametrize(
    ("wanted", "precision", "capability", "says"),
    [
        ("highest", None, (9, 0), True),
        ("highest", "32-true", (8, 0), True),
        ("highest", "bf16-mixed", (9, 0), False),
        ("high", None, (9, 0), False),
        ("highest", None, (7, 5), False),
        ("medium", None, None, False),
        ("highest", None, None, False),  # no GPU
    ],
)
def test_unused_tensor_cores_are_said_with_the_flag(
    monkeypatch: pytest.MonkeyPatch, wanted: str, precision: str | None, capability, says: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    asked = {"float32_matmul_precision": wanted, "precision": precision, "accelerator": "auto"}
    try:
        note = set_matmul_precision(asked)
        assert torch.get_float32_matmul_precision() == wanted
    finally:
        torch.set_float32_matmul_precision("highest")
    assert bool(note) is says
    assert not says or "--float32_matmul_precision high" in str(note)


@pytest.mark.parametrize("devices", [0, -2])
def test_no_devices(devices: int) -> None:
    assert f"got {devices}" in check_accelerator("cpu", devices)[0]


def test_nodes_that_cannot_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "SLURM_PROCID", "KUBERNETES_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert not check_nodes(1)
    assert "nothing says where the nodes are" in check_nodes(2)[0]
    monkeypatch.setenv("MASTER_ADDR", "node0")
    assert not check_nodes(2)


def test_an_occupied_port_is_found_before_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setenv("MASTER_PORT", str(port))
        assert f"MASTER_PORT {port} is in use" in check_master_port()[0]
        monkeypatch.setenv("LOCAL_RANK", "1")
        assert not check_master_port()


@pytest.mark.parametrize(
    ("accelerator", "has_gpu", "stays"),
    [("auto", True, True), ("cuda", True, True), ("auto", False, False), ("cpu", True, False)],
)
def test_what_needs_a_gpu_is_replaced_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, accelerator: str, has_gpu: bool, stays: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    configuration = {"accelerator": accelerator, "sync_batchnorm": True, "precision": "16-mixed"}
    assert len(adapt_to_cpu(configuration)) == (0 if stays else 2)
    assert configuration["sync_batchnorm"] is stays
    assert configuration["precision"] == ("16-mixed" if stays else "bf16-mixed")


@pytest.mark.parametrize(
    ("asked", "used"),
    [("16-true", "bf16-true"), ("16", "bf16-mixed"), ("64-true", "64-true"), (None, None)],
)
def test_float16_is_replaced_on_a_cpu_and_said(asked: str | None, used: str | None) -> None:
    configuration = {"accelerator": "cpu", "sync_batchnorm": False, "precision": asked}
    notes = adapt_to_cpu(configuration)
    assert configuration["precision"] == used
    expected = f"float16 needs a GPU: precision {used} is used instead"
    assert notes == ([] if asked == used else [expected])
