"""The compiled roi_align against torchvision's kernel and against the implementation in torch.

`python -m benchmarks.ops` prints times as ratios, forward and backward, with one thread and two:
medians of repeats that alternate. The case is that of a detector: two feature maps of 256 channels
at a sixteenth of 800 x 1088 pixels, 256 boxes, 7 x 7 bins.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torchvision
from torch import Tensor

from ops import library
from ops.roi_align_in_torch import pool, spread

IMAGES, CHANNELS, HEIGHT, WIDTH = 2, 256, 50, 68
NUM_BOXES, BINS, SCALE = 256, 7, 1 / 16

Function = Callable[[], object]


def boxes() -> Tensor:
    """float32 [R,5]: from a pixel to a third of the image."""
    generator = torch.Generator().manual_seed(0)
    corner = torch.rand(NUM_BOXES, 2, generator=generator) * torch.tensor([700.0, 500.0])
    extent = torch.rand(NUM_BOXES, 2, generator=generator) * 300 + 10
    index = torch.randint(IMAGES, (NUM_BOXES, 1), generator=generator).float()
    return torch.cat([index, corner, corner + extent], dim=1)


def cases(ratio: int) -> dict[str, dict[str, Function]]:
    """What is timed, by direction and implementation."""
    images, rois = torch.randn(IMAGES, CHANNELS, HEIGHT, WIDTH), boxes()
    grad = torch.randn(NUM_BOXES, CHANNELS, BINS, BINS)
    ours, theirs = torch.ops.foundry, torch.ops.torchvision
    settings = (SCALE, BINS, BINS, ratio, True)
    sizes = (SCALE, BINS, BINS, IMAGES, CHANNELS, HEIGHT, WIDTH, ratio, True)
    return {
        "forward": {
            "compiled": lambda: ours.roi_align(images, rois, *settings),
            "torchvision": lambda: theirs.roi_align(images, rois, *settings),
            "in torch": lambda: pool(images, rois, *settings),
        },
        "backward": {
            "compiled": lambda: ours._roi_align_backward(grad, rois, *sizes),
            "torchvision": lambda: theirs._roi_align_backward(grad, rois, *sizes),
            "in torch": lambda: spread(grad, rois, *sizes),
        },
    }


def medians(functions: dict[str, Function], repeats: int) -> dict[str, float]:
    """Seconds of each, the first call left out."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    library.load()
    assert torchvision.ops  # registers torchvision's operators
    print(f"{'':28}{'compiled':>10}{'torchvision':>14}{'in torch':>14}")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for ratio in (2, 0):
            for direction, functions in cases(ratio).items():
                found = medians(functions, arguments.repeats)
                own = found["compiled"]
                samples = f"{ratio} samples" if ratio else "adaptive"
                case = f"{direction:9} {threads} thread(s) {samples:10}"
                others = (found[name] / own for name in ("torchvision", "in torch"))
                print(f"{case}{1000 * own:8.1f} ms", *(f"{ratio:11.2f} x" for ratio in others))


if __name__ == "__main__":
    main()
