"""Refuses calibration samples that would give wrong ranges without any other sign."""

from collections.abc import Mapping

import numpy as np

MIN_CALIBRATION = 200
MAX_RATIO = 3  # of calibration statistics to those of the training inputs


def check_calibration(
    samples: Mapping[str, np.ndarray],
    normalisation: Mapping[str, list[float]] | None,
    training_size: int | None,
) -> str:
    """Refuses samples that would give wrong ranges without any other sign.

    Args:
        samples: Input name -> array; images are [N,C,H,W].
        normalisation: Mean and std of each channel of the training inputs, in 0..1.
        training_size: Samples in the whole training split, which may be fewer than are asked for.

    Returns:
        What was used, in words.

    Raises:
        ValueError: Too few samples, values that are not finite, or other statistics.
    """
    count = len(next(iter(samples.values())))
    if count < MIN_CALIBRATION and count != training_size:
        raise ValueError(
            f"{count} calibration samples; at least {MIN_CALIBRATION} are needed "
            "(or all training samples where there are fewer)"
        )
    for name, array in samples.items():
        if not np.isfinite(array).all():
            raise ValueError(f"calibration input {name!r} holds values that are not finite")
        if array.ndim == 4 and normalisation is not None:
            check_statistics(name, array, normalisation)
    return f"{count} samples" + (" (all there are)" if count < MIN_CALIBRATION else "")


def check_statistics(
    name: str, images: np.ndarray, normalisation: Mapping[str, list[float]]
) -> None:
    """Compares each channel's mean and std with those of the training inputs.

    Raises:
        ValueError: The mean is more than 3 std away, or the std is not within a factor of 3.
    """
    scaled = images.astype(np.float64) / 255  # [N,C,H,W]
    means, stds = scaled.mean(axis=(0, 2, 3)), scaled.std(axis=(0, 2, 3))
    for channel, (mean, std) in enumerate(
        zip(normalisation["mean"], normalisation["std"], strict=True)
    ):
        found_mean, found_std = means[channel], stds[channel]
        far = abs(found_mean - mean) > MAX_RATIO * std
        if far or not std / MAX_RATIO <= found_std <= std * MAX_RATIO:
            raise ValueError(
                f"calibration input {name!r}, channel {channel}: mean {found_mean:.3g} and std "
                f"{found_std:.3g}, but training inputs have mean {mean:.3g} and std {std:.3g}"
            )
