"""What the predictor of a bundle leaves behind on a machine: nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exporters.test_bundle_files import onnx_with_external_data

ROOT = Path(__file__).resolve().parents[2]
OPEN = "import sys; from pathlib import Path; from exporters.runtime import open_session\n"
OPEN += "open_session(Path(sys.argv[1]), 1)"


@pytest.mark.slow
def test_no_device_id_and_no_events_are_left_in_the_home(tmp_path: Path) -> None:
    home, model = tmp_path / "home", tmp_path / "model.onnx"
    home.mkdir()
    (tmp_path / "weights").write_bytes(bytes(16))
    onnx_with_external_data(model, "weights")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    command = [sys.executable, "-c", OPEN, str(model)]
    subprocess.run(command, cwd=ROOT, env=kept | {"HOME": str(home)}, check=True, timeout=60)
    assert [*home.rglob("*")] == []
