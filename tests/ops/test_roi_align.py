"""RoI align, compiled and by torch's operations, against torchvision's and its own words."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor

from ops import library
from ops.roi_align_in_torch import pool, spread

ROOT = Path(__file__).parents[2]
Forward = Callable[..., Tensor]

pytestmark = [
    pytest.mark.slow,  # the first test compiles
    # torch's own opcheck and torch.jit use what torch has deprecated
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore::FutureWarning:torch"),
]


@pytest.fixture(scope="module")
def compiled() -> Any:
    try:
        library.load()
    except library.NoLibrary as error:
        pytest.skip(str(error))
    return torch.ops.foundry


@pytest.fixture(params=["compiled", "in_torch"])
def forward(request: pytest.FixtureRequest) -> Forward:
    if request.param == "in_torch":
        return pool
    return request.getfixturevalue("compiled").roi_align


@pytest.fixture(params=["compiled", "in_torch"])
def backward(request: pytest.FixtureRequest) -> Forward:
    if request.param == "in_torch":
        return spread
    return request.getfixturevalue("compiled")._roi_align_backward


def boxes(generator: torch.Generator, count: int, images: int, size: float) -> Tensor:
    """float32 [R,5], also some that are turned round, outside or empty."""
    corner = (1.6 * torch.rand(count, 2, generator=generator) - 0.3) * size
    extent = (torch.rand(count, 2, generator=generator) - 0.15) * size
    extent[::7] = 0
    index = torch.randint(images, (count, 1), generator=generator).float()
    return torch.cat([index, corner, corner + extent], dim=1)


# ---- results ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("ratio", [0, -1, 2, 3])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_equals_torchvisions(
    forward: Forward, backward: Forward, dtype: Any, aligned: bool, ratio: int, layout: Any
) -> None:
    generator = torch.Generator().manual_seed(ratio + 5)
    images = torch.randn(3, 4, 17, 23, generator=generator).to(dtype).to(memory_format=layout)
    rois = boxes(generator, 30, 3, 40).to(dtype)
    images.requires_grad_()
    expected = torchvision.ops.roi_align(images, rois, (4, 6), 0.5, ratio, aligned)
    found = forward(images.detach(), rois, 0.5, 4, 6, ratio, aligned)
    torch.testing.assert_close(found, expected.detach(), atol=2e-6, rtol=1e-5)
    grad = torch.randn(found.shape, generator=generator).to(dtype)
    (slope,) = torch.autograd.grad(expected, images, grad)
    found = backward(grad, rois, 0.5, 4, 6, 3, 4, 17, 23, ratio, aligned)
    torch.testing.assert_close(found, slope.contiguous(), atol=1e-5, rtol=1e-5)


def test_no_boxes_and_no_images(forward: Forward) -> None:
    assert forward(torch.ones(2, 3, 5, 5), torch.ones(0, 5), 1.0, 2, 2, 0, True).shape[0] == 0
    assert forward(torch.ones(0, 3, 5, 5), torch.ones(0, 5), 1.0, 2, 2, 0, True).shape[0] == 0


def test_images_without_pixels_give_nothing(forward: Forward) -> None:
    rois = torch.tensor([[0.0, 0, 0, 3, 3]])
    assert not forward(torch.ones(1, 2, 0, 5), rois, 1.0, 2, 2, 2, True).any()


@pytest.mark.parametrize("box", [[60, 60, 70, 70], [-50, -50, -40, -40]])
def test_boxes_outside_give_zeros(forward: Forward, box: list[float]) -> None:
    rois = torch.tensor([[0.0, *box]])
    assert not forward(torch.ones(1, 2, 9, 9), rois, 1.0, 3, 3, 2, True).any()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_boxes_that_are_not_finite_give_zeros(forward: Forward, value: float, place: int) -> None:
    rois = torch.tensor([[0.0, 1, 1, 4, 4]])
    rois[0, place] = value
    for aligned in (True, False):
        assert not forward(torch.ones(1, 2, 9, 9), rois, 1.0, 3, 3, 0, aligned).any()


def test_a_huge_box_takes_no_longer_than_its_image(forward: Forward) -> None:
    rois = torch.tensor([[0.0, -1e30, -1e6, 1e30, 1e6]])
    assert forward(torch.ones(1, 1, 9, 9), rois, 1.0, 2, 2, 0, True).isfinite().all()


def test_nan_reaches_the_bins_that_touch_it(forward: Forward) -> None:
    images = torch.ones(1, 1, 12, 12)
    images[0, 0, 5, 7] = float("nan")
    rois = torch.tensor([[0.0, 1, 1, 11, 11], [0.0, 0, 0, 4, 4]])
    expected = torchvision.ops.roi_align(images, rois, (5, 5), 1.0, 2, True)
    found = forward(images, rois, 1.0, 5, 5, 2, True)
    assert 0 < found.isnan().sum() < found.numel() / 2
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(
    forward: Forward, backward: Forward, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 3, 16, 16, generator=generator).to(dtype)
    rois = boxes(generator, 12, 2, 16).round().to(dtype)
    arguments = (1.0, 3, 3, 2, True)
    expected = forward(images.float(), rois.float(), *arguments).to(dtype)
    assert torch.equal(forward(images, rois, *arguments), expected)
    grad, sizes = torch.randn(12, 3, 3, 3, generator=generator).to(dtype), (2, 3, 16, 16)
    whole = backward(grad.float(), rois.float(), 1.0, 3, 3, *sizes, 2, True).to(dtype)
    assert torch.equal(backward(grad, rois, 1.0, 3, 3, *sizes, 2, True), whole)


def test_threads_do_not_change_a_bit(compiled: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    images, rois = torch.randn(2, 64, 30, 30, generator=generator), boxes(generator, 90, 2, 30)
    grad, found, before = torch.randn(90, 64, 7, 7), [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            sizes = (1.0, 7, 7, *images.shape, 0, True)
            found.append(
                (compiled.roi_align(images, rois, 1.0, 7, 7, 0, True),
                 compiled._roi_align_backward(grad, rois, *sizes))
            )  # fmt: skip
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


# ---- a good citizen of torch --------------------------------------------------------------

CHECKED = """
import sys, warnings, torch
warnings.simplefilter("ignore")
from ops.roi_align import LIBRARY, roi_align
assert (LIBRARY is None) == (sys.argv[1] == "fallback"), LIBRARY
images = torch.randn(2, 1, 4, 5, dtype=torch.float64, requires_grad=True)
rois = torch.tensor([[0, 1.1, 1, 4, 3], [1, 0, 0.3, 3, 2], [1, 2, 2, 2, 2]], dtype=torch.float64)
for ratio in (0, 2):
    pool = lambda x: roi_align(x, rois, (2, 3), 1.0, ratio)
    assert torch.autograd.gradcheck(pool, images) and torch.autograd.gradgradcheck(pool, images)
    arguments = images, rois, 1.0, 2, 3, ratio, True
    found = torch.library.opcheck(torch.ops.foundry.roi_align.default, arguments)
    sizes = rois, 1.0, 2, 3, 2, 1, 4, 5, ratio, True
    grad = torch.randn(3, 1, 2, 3, dtype=torch.float64, requires_grad=True)
    found |= torch.library.opcheck(torch.ops.foundry._roi_align_backward.default, (grad, *sizes))
    assert set(found.values()) == {"SUCCESS"}, found
single = images.detach().float().requires_grad_()
with torch.autocast("cpu", torch.bfloat16):
    half = roi_align(single.bfloat16(), rois.float(), (2, 2))
assert half.dtype == torch.bfloat16
assert torch.equal(half, roi_align(single.bfloat16().float(), rois.float(), (2, 2)).bfloat16())

class Pool(torch.nn.Module):
    def forward(self, x, rois):
        return roi_align(2 * x, rois, (2, 2), 0.5) + 1

inputs = single.detach(), rois.float()
expected = Pool()(*inputs)
whole = torch.compile(Pool(), fullgraph=True, backend="aot_eager", dynamic=True)
assert torch.equal(whole(*inputs), expected)
R = torch.export.Dim("R", min=1, max=100)
program = torch.export.export(Pool(), inputs, dynamic_shapes=({}, {0: R}))
more = single.detach(), rois.float().repeat(4, 1)
assert torch.equal(program.module()(*more), Pool()(*more))
traced = torch.jit.trace(Pool(), inputs)
assert torch.equal(traced(*more), Pool()(*more))
print("checked")
"""


@pytest.mark.parametrize("which", ["compiled", "fallback"])
def test_gradients_shapes_autocast_compile_and_export(which: str) -> None:
    if which == "compiled":
        try:
            library.load()
        except library.NoLibrary as error:
            pytest.skip(str(error))
    environment = os.environ | {library.OFF: which}
    done = subprocess.run(
        [sys.executable, "-c", CHECKED, which],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "checked\n", done.stdout + done.stderr
    note = "roi_align is computed by torch's own operations, more slowly: FOUNDRY_OPS says so\n"
    assert done.stderr == (note if which == "fallback" else "")


# ---- bad input ----------------------------------------------------------------------------

IMAGES, ROIS = torch.ones(2, 3, 5, 5), torch.tensor([[0.0, 0, 0, 3, 3]])
BAD = [
    ((IMAGES[0], ROIS, 1.0, 2, 2, 0, True), r"input must be \[N,C,H,W\], got \[3, 5, 5\]"),
    ((IMAGES, ROIS[0], 1.0, 2, 2, 0, True), r"rois must be \[R,5\] .*, got \[5\]"),
    ((IMAGES, ROIS[:, :4], 1.0, 2, 2, 0, True), r"rois must be \[R,5\] .*, got \[1, 4\]"),
    ((IMAGES.long(), ROIS.long(), 1.0, 2, 2, 0, True), "input must be of a floating-point type"),
    ((IMAGES, ROIS.double(), 1.0, 2, 2, 0, True), "rois must be of the type of input, .*loat"),
    ((IMAGES, ROIS.to("meta"), 1.0, 2, 2, 0, True), "meta"),
    ((IMAGES, ROIS, 1.0, 0, 2, 0, True), "pooled size must be at least 1x1, got 0x2"),
    ((IMAGES, ROIS, 1.0, 2, -3, 0, True), "pooled size must be at least 1x1, got 2x-3"),
    ((IMAGES, ROIS, 1.0, 2, 2, 5000, True), "sampling_ratio must be at most 1024, got 5000"),
    ((IMAGES, ROIS + 2, 1.0, 2, 2, 0, True), r"rois\[0, 0\] .* 0 to 1, got 2"),
    ((IMAGES, ROIS - 1, 1.0, 2, 2, 0, True), r"rois\[0, 0\] .* 0 to 1, got -1"),
    ((IMAGES, ROIS * torch.nan, 1.0, 2, 2, 0, True), r"rois\[0, 0\] .* 0 to 1, got -?nan"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_what_does_not_fit_is_said(
    forward: Forward, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        forward(*arguments)


def test_a_gradient_of_another_shape_is_refused(backward: Forward) -> None:
    with pytest.raises(ValueError, match=r"must be \[R,C,PH,PW\] = \[1, 3, 2, 2\], got \[1, 3"):
        backward(torch.ones(1, 3, 2, 1), ROIS, 1.0, 2, 2, 2, 3, 5, 5, 0, True)


def test_a_thousand_random_calls_never_crash(compiled: Any) -> None:
    """Either both implementations give the same, or both refuse."""
    generator = torch.Generator().manual_seed(3)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    answered = 0
    for _ in range(1000):
        shape = [draw(0, 5) for _ in range(4 if draw(0, 9) else draw(1, 6))]
        images = torch.randn(shape, generator=generator)
        rois = torch.randn(draw(0, 4), 5 if draw(0, 9) else draw(0, 8), generator=generator)
        rois *= 10.0 ** draw(-1, 12 if not draw(0, 9) else 2)
        if rois.numel() and draw(0, 9):
            rois[:, 0] = draw(0, max(shape[0], 1))
        scale, ratio = float(torch.randn((), generator=generator)), draw(-2, 4)
        sizes = (draw(0, 5) if not draw(0, 9) else 2, draw(1, 5))
        arguments = images, rois, scale, *sizes, ratio, bool(draw(0, 2))
        outcomes: list[Tensor | None] = []
        for function in (compiled.roi_align, pool):
            try:
                outcomes.append(function(*arguments))
            except ValueError:
                outcomes.append(None)
        one, other = outcomes
        assert (one is None) == (other is None), (shape, rois, sizes)
        if one is not None and other is not None:
            answered += 1
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert 300 < answered < 1000


# ---- compiling ----------------------------------------------------------------------------


COLD = """
import torch
from ops import library
path = library.load()
assert str(path) in torch.ops.loaded_libraries, torch.ops.loaded_libraries
assert [p.name for p in path.parent.iterdir() if p.suffix == ".so"] == [path.name]
print("loaded")
"""


def test_no_place_of_this_machine_is_in_the_library(compiled: Any) -> None:
    content = library.load().read_bytes()
    for place in (ROOT, Path(torch.__file__).parent, Path.home()):
        assert str(place).encode() not in content


def test_what_was_just_compiled_is_known_by_its_own_place(compiled: Any, tmp_path: Path) -> None:
    """Else no export of this process could take the library along."""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("TORCH_EXTENSIONS_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", COLD],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "loaded\n", done.stderr


def test_without_a_compiler_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(library.NoLibrary, match=r"no C\+\+ compiler \(no-such-compiler\)"):
        library.load()
    assert not list(tmp_path.rglob("*.so"))


def test_a_folder_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "file"))
    with pytest.raises(library.NoLibrary, match="Not a directory"):
        library.load()


def test_what_a_compiler_says_first_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "SOURCES", tmp_path)
    (tmp_path / "wrong.cpp").write_text("int main() { return nothing; }\n")
    with pytest.raises(library.NoLibrary, match=r"wrong\.cpp.*error: .*nothing"):
        library.load()
