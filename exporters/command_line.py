"""How a command answers what a user can cause: one line on stderr, and an exit code.

Copied into every bundle; imports nothing but the standard library.
"""

import argparse
import difflib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Answers a wrong argument with one line, the nearest valid flag, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        wrong = next((word for word in message.split() if word.startswith("--")), "")
        near = difflib.get_close_matches(wrong.split("=")[0], self._option_string_actions, 1)
        hint = f"; did you mean {near[0]}?" if near and "unrecognized" in message else ""
        self.exit(2, f"error: {message}{hint}\n")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def share(text: str) -> float:
    """A probability."""
    try:
        if 0 <= float(text) <= 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected a probability from 0 to 1, got {text!r}")


def run_command(
    command: Callable[[], int], debug: bool = False, interrupted: str = "interrupted"
) -> int:
    """Turns what a user can cause into one line on stderr and an exit code.

    Args:
        debug: Shows before that line where in the code it comes from.
        interrupted: What Ctrl-C is answered with.
    """
    if sys.stdout is None:  # the shell's `>&-`
        print("error: standard output is closed", file=sys.stderr)
        return 1
    sys.stdout.reconfigure(  # type: ignore[union-attr]
        encoding="utf-8", errors="backslashreplace"
    )
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has stopped, as `head` does
        code, message = 0, None
    except KeyboardInterrupt:
        code, message = 128 + signal.SIGINT, interrupted
    except (ValueError, TypeError, OSError) as error:
        if debug:
            traceback.print_exc()
        code, message = 1, str(error)
    if message is not None:
        print(f"error: {message}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # what is left cannot be written, and must not be tried again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
