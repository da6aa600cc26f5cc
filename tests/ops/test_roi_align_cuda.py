"""The CUDA source compiles where nvcc is, also without a GPU; what it computes needs one."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths

from ops import library

NVCC = shutil.which("nvcc")
FLAGS = ["-std=c++20", "-arch=sm_80", "--expt-relaxed-constexpr", "--expt-extended-lambda"]

pytestmark = pytest.mark.slow


@pytest.mark.skipif(NVCC is None, reason="there is no nvcc")
def test_it_compiles(tmp_path: Path) -> None:
    assert NVCC is not None
    includes = [f"-I{path}" for path in include_paths()]
    source = str(library.SOURCES / "roi_align_cuda.cu")
    target = str(tmp_path / "roi_align_cuda.o")
    done = subprocess.run(
        [NVCC, "-c", *FLAGS, *includes, source, "-o", target],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Path(target).stat().st_size > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_it_gives_what_the_cpu_gives() -> None:
    if not library.has_cuda():
        pytest.skip("there is no nvcc for this torch")
    library.load()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(3, 4, 17, 23, generator=generator)
    corner = torch.rand(40, 2, generator=generator) * 40 - 5
    extent = torch.rand(40, 2, generator=generator) * 30 - 3
    index = torch.randint(3, (40, 1), generator=generator).float()
    rois = torch.cat([index, corner, corner + extent], dim=1)
    grad = torch.randn(40, 4, 5, 6, generator=generator)
    for ratio in (0, 2):
        for aligned in (True, False):
            found = []
            for device in ("cpu", "cuda"):
                x = images.to(device).requires_grad_()
                y = torch.ops.foundry.roi_align(x, rois.to(device), 0.5, 5, 6, ratio, aligned)
                (slope,) = torch.autograd.grad(y, x, grad.to(device))
                found.append((y.detach().cpu(), slope.cpu()))
            torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-5)
