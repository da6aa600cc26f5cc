"""Texts on two ranks: each is seen once, in batches of similar length, and counts once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fresh_process import run_script

ROOT = Path(__file__).resolve().parents[2]

RANKS = """
import json, sys
from collections import defaultdict
import pytorch_lightning as pl
import torch
from datamodules.text_files import TextFiles
from tests.tiny import tiny_classifier, tiny_trainer

class Seen(pl.Callback):
    batches = defaultdict(list)  # ids of the texts of each batch, by split and epoch

    def note(self, split, trainer, batch):
        tokens, lengths = batch[0].values()
        rows = [row[:n].tolist() for row, n in zip(tokens, lengths)]
        self.batches[f"{split} {trainer.current_epoch}"].append(rows)

    def on_train_batch_start(self, trainer, module, batch, index):
        self.note("train", trainer, batch)

    def on_validation_batch_start(self, trainer, module, batch, index, loader=0):
        self.note("val", trainer, batch)

    def on_test_batch_start(self, trainer, module, batch, index, loader=0):
        self.note("test", trainer, batch)

if __name__ == "__main__":
    root, devices, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    data = TextFiles(root + "/data", cache_dir=root, batch_size=8, **options)
    module = tiny_classifier(data, "text_cnn", {"dropout": 0.0})
    trainer = tiny_trainer(root, devices=devices, strategy="ddp" if devices > 1 else "auto",
                           max_epochs=2, callbacks=[Seen()])
    if devices > 1:
        trainer.fit(module, datamodule=data)
        if trainer.global_rank == 0:
            torch.save(module.state_dict(), root + "/weights.pt")
    else:
        module.load_state_dict(torch.load(root + "/weights.pt"))
        trainer.validate(module, datamodule=data, verbose=False)
    reports = {"val": module.reports["val"]}
    trainer.test(module, datamodule=data, verbose=False)
    reports["test"] = module.reports["test"]
    found = {split: [r.outcomes.num_samples, r.outcomes.confusion().tolist(), r.scalars]
             for split, r in reports.items()}
    with open(f"{root}/{devices}-{trainer.global_rank}.json", "w") as file:
        json.dump({"seen": Seen.batches, "reports": found}, file)
    trainer.strategy.barrier()  # nobody waits for rank 1 once rank 0 has ended
"""


def text(number: int) -> str:
    """No two are equal; 3 to 12 tokens."""
    return f"number {number} {'says' if number % 2 else 'means'}" + " word" * (number * 7 % 10)


def write_splits(folder: Path, **counts: int) -> None:
    """Tables with so many rows a split."""
    folder.mkdir()
    start = 0
    for split, count in counts.items():
        rows = [json.dumps({"text": text(i), "label": i % 2}) for i in range(start, start + count)]
        (folder / f"{split}.jsonl").write_text("\n".join(rows))
        start += count


def run_ranks(folder: Path, devices: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """What each rank saw and reported."""
    script = folder / "ranks.py"
    script.write_text(RANKS)
    words = script, folder, devices, json.dumps(options)
    done = run_script(*words, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    files = [folder / f"{devices}-{rank}.json" for rank in range(devices)]
    return [json.loads(file.read_text()) for file in files]


def texts_seen(ranks: list[dict[str, Any]], stage: str) -> Counter[tuple[int, ...]]:
    """How often each text came, over all ranks."""
    batches = [batch for rank in ranks for batch in rank["seen"].get(stage, [])]
    return Counter(tuple(row) for batch in batches for row in batch)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"batch_tokens": 96}], ids=["texts", "tokens"])
def test_two_ranks_see_each_text_once_and_report_what_one_does(
    tmp_path: Path, options: dict[str, int]
) -> None:
    write_splits(tmp_path / "data", train=80, val=9, test=13)
    two = run_ranks(tmp_path, 2, options)
    (one,) = run_ranks(tmp_path, 1, options)
    for epoch in (0, 1):
        train = texts_seen(two, f"train {epoch}")
        assert set(train.values()) == {1}
        assert 78 <= len(train) <= 80  # what two ranks cannot share equally is left out
        assert texts_seen(two, f"val {epoch}") == texts_seen([one], "val 0")
        first, second = (rank["seen"][f"train {epoch}"] for rank in two)
        assert [len(batch) for batch in first] == [len(batch) for batch in second]
        for shares in zip(first, second, strict=True):
            lengths = [len(row) for share in shares for row in share]
            assert max(lengths) - min(lengths) <= 3  # similar length
            assert len(lengths) * max(lengths) <= options.get("batch_tokens", 8 * 12)
    assert texts_seen(two, "test 2") == texts_seen([one], "test 0")
    assert sum(texts_seen(two, "test 2").values()) == 13
    assert sum(texts_seen(two, "val 1").values()) == 9
    for rank in two:
        for split, (num_samples, confusion, scalars) in one["reports"].items():
            assert rank["reports"][split][:2] == [num_samples, confusion]
            assert rank["reports"][split][2] == pytest.approx(scalars)


def train(*arguments: str) -> str:
    """What train.py prints."""
    result = run_script("train.py", "--accelerator", "cpu", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_command_learns_on_two_ranks_and_one_gives_the_same_report(tmp_path: Path) -> None:
    write_splits(tmp_path / "data", train=160, val=9, test=13)
    settings = ["--data", "text_files", "--data.root", str(tmp_path / "data"), "--devices", "2"]
    settings += ["--data.cache_dir", str(tmp_path), "--data.batch_tokens", "96"]
    settings += ["--strategy", "ddp", "--runs_dir", str(tmp_path / "runs"), "--max_epochs", "4"]
    settings += ["--model", "text_cnn", "--export.enabled", "false", "--optimizer.lr", "0.01"]
    output = train(*settings)
    assert "2 x cpu" in output
    assert output.count("epoch 4/4") == 1
    assert output.count("160 train, 9 val, 13 test texts") == 1
    (best,) = tmp_path.glob("runs/*/*/checkpoints/best.ckpt")
    report = output[output.index("test, 13 samples") :].splitlines()
    assert "test accuracy 1.0000" in "\n".join(report)
    alone = train("--test_only", str(best), "--devices", "1")
    end = next(i for i, line in enumerate(report) if line.startswith("test accuracy"))
    assert alone[alone.index("test, 13 samples") :].splitlines()[: end + 1] == report[: end + 1]
