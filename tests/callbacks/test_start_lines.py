"""What is only known when training starts is said then, once."""

from pathlib import Path

import pytest

from callbacks.start_lines import StartLines
from datamodules.contract import part
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer


def test_lines_are_made_when_the_loaders_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = TinyImages(batch_size=47)
    said = StartLines(lambda: ["a note", *part(data, "loading")])
    trainer = tiny_trainer(tmp_path, callbacks=[said])
    trainer.fit(tiny_classifier(data), datamodule=data)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "a note",
        "1 training image is left out of each epoch: too few for a batch",
        "loading: 0 workers (as asked)",
    ]
