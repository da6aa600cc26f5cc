"""Measured comparisons: `python -m benchmarks.NAME` prints ratios taken side by side in one run."""
