"""Processes beside rank 0 leave it to speak, and to end the run.

Lightning kills the main process when one that it started ends with an error before it, and every
rank would tell the same error, or what became of its connection to those that have ended.
"""

import os
import time

from cli.run_folder import is_rank_zero

PATIENCE = 15.0  # seconds that rank 0 may need to end
PARENT = os.getppid()  # where Lightning started this process: rank 0


def is_told_elsewhere(patience: float = PATIENCE) -> bool:
    """Whether rank 0 ends as well, and so says why; waits for that on other ranks."""
    if is_rank_zero():
        return False
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if os.getppid() != PARENT:
            return True
        time.sleep(0.05)
    return False
