"""Troubles that people have with other templates and that no single file here can rule out."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import predict
from datamodules.findings import texts
from datamodules.lazy_loader import keep_batch
from datamodules.order import EpochBatchSampler
from datamodules.packed_images import ImageDataset
from datamodules.packed_texts import TextDataset
from datamodules.sample_augmentation import SampleAugmentation
from datamodules.text_files import TextFiles
from lightning_modules.classifier import Classifier
from lightning_modules.networks import NETWORKS
from preprocessing.inputs import values_of
from tests.fresh_process import run_script
from tests.same_bits import assert_equal
from tests.tiny import TinyImages, tiny_classifier, tiny_split, tiny_trainer
from tests.tiny_sources import write_texts
from train import main

ROOT = Path(__file__).resolve().parents[1]
TEXT_NETWORKS = ("text_cnn", "bilstm", "text_transformer", "bag_of_embeddings")


def text_data(folder: Path, **arguments) -> TextFiles:
    root = write_texts(folder / "given", "{label}/{number}.txt")
    return TextFiles(str(root), cache_dir=str(folder / "cache"), **arguments)


def write_checkpoint(model: Classifier, path: Path) -> Path:
    torch.save({"state_dict": model.state_dict(), "description": model.description}, path)
    return path


class VectorNorm(nn.Module):
    """BatchNorm on a vector, which cannot train on a batch of one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        """[N,1,8,8] -> logits [N,3]."""
        return self.head(self.layers(images))


def test_nine_images_in_batches_of_four_train_batchnorm(tmp_path: Path) -> None:
    data = TinyImages(batch_size=4, num_train=9, num_val=5)
    model = tiny_classifier(data)
    model.model.network = VectorNorm()
    trainer = tiny_trainer(tmp_path, max_epochs=2)
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)
    assert trainer.global_step == 4  # two whole batches an epoch
    assert data.loading[0].startswith("1 training image is left out of each epoch: too few")
    assert model.reports["test"].outcomes.num_samples == 5  # evaluation leaves nothing out


RANKS = """
import sys
import torch
from tests.tiny import TinyImages, tiny_classifier, tiny_trainer

if __name__ == "__main__":
    devices = int(sys.argv[1])
    data = TinyImages(batch_size=4, num_val=5)
    module = tiny_classifier(data)
    trainer = tiny_trainer(sys.argv[2], devices=devices, strategy="ddp" if devices > 1 else "auto")
    trainer.test(module, datamodule=data, verbose=False)
    report = module.reports["test"]
    torch.save((report.outcomes.num_samples, report.outcomes.confusion().tolist(), report.scalars),
               f"{sys.argv[2]}/{devices}-{trainer.global_rank}.pt")
    trainer.strategy.barrier()  # nobody waits for rank 1 once rank 0 has ended
"""


@pytest.mark.slow
def test_five_samples_on_two_ranks_count_as_on_one(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    for devices in (1, 2):
        done = run_script(script, devices, tmp_path, environment={"PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stderr
    one, *two = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    assert one[0] == 5
    for other in two:
        assert other[0] == 5
        assert other[1] == one[1]
        assert other[2] == pytest.approx(one[2])


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["augmented images", "texts"])
def test_workers_of_every_start_method_give_the_same_batches(
    tmp_path: Path, kind: str, start_method: str
) -> None:
    """Nothing that goes to a worker is a lambda or closure."""
    if kind == "texts":
        dataset = TextDataset(text_data(tmp_path).corpus.splits["train"])
    else:
        augmentation = SampleAugmentation(0.5, 10.0, 0.3, 5)
        dataset = ImageDataset(tiny_split(20, 1), 3, 2, augmentation)
    sampler = EpochBatchSampler(20, 5, seed=0)
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=2,
        multiprocessing_context=start_method,
        collate_fn=keep_batch,
    )
    for found, wanted in zip(loader, sampler, strict=True):
        expected = dataset.__getitems__(wanted)
        assert all(map(torch.equal, flat(found), flat(expected)))


def flat(batch) -> list[Tensor]:
    return [tensor for part in batch for tensor in values_of(part)]


@pytest.mark.parametrize("network", TEXT_NETWORKS)
def test_empty_short_and_endless_texts_are_predicted(tmp_path: Path, network: str, capsys) -> None:
    """One at a time and together; a class is given for each."""
    assert network in NETWORKS
    data = text_data(tmp_path, max_length=32)
    data.setup()
    checkpoint = write_checkpoint(tiny_classifier(data, network), tmp_path / "x.ckpt")
    texts = {"empty": "", "short": "a", "spaces": " \n\t ", "long": "says number " * 5000}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    files = [str(tmp_path / f"{name}.txt") for name in texts]
    answers = []
    for batch_size in ("1", "4"):
        arguments = ["--model", str(checkpoint), "--format", "csv", "--batch_size", batch_size]
        assert predict.main([*arguments, *files]) == 0
        output = capsys.readouterr()
        assert "texts without a token: 2" in output.err
        assert "texts longer than the model takes: 1" in output.err
        answers.append(output.out.splitlines()[-4:])
    alone, together = ([float(row.rpartition(",")[2]) for row in rows] for rows in answers)
    assert alone == pytest.approx(together, abs=2e-5)
    assert np.isfinite(alone).all()


def test_the_share_of_texts_that_are_cut_is_told(tmp_path: Path) -> None:
    root = write_texts(tmp_path / "given", "{label}/{number}.txt")
    (root / "a" / "0.txt").write_text("word " * 10_000)
    data = TextFiles(str(root), cache_dir=str(tmp_path / "cache"), max_length=32)
    data.setup()
    assert any(
        "of the texts of" in note and "cut to 32 tokens" in note for note in texts(data.findings)
    )
    assert max(split.lengths.max() for split in data.corpus.splits.values()) == 32


@pytest.mark.slow
def test_a_fresh_process_needs_no_training_text_for_new_words(tmp_path: Path) -> None:
    """Vocabulary, labels and length come with the checkpoint."""
    root = write_texts(tmp_path / "given", "{label}/{number}.txt")
    arguments = ["--data", "text_files", "--data.root", str(root), "--model", "bag_of_embeddings"]
    arguments += ["--data.cache_dir", str(tmp_path / "cache"), "--runs_dir", str(tmp_path / "runs")]
    arguments += ["--max_epochs", "1", "--optimizer.lr", "0.01", "--export.enabled", "false"]
    assert main([*arguments, "--gradient_check.before_fit", "false"]) == 0
    (checkpoint,) = (tmp_path / "runs").glob("*/*/checkpoints/last.ckpt")
    shutil.rmtree(root)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "new.txt").write_text("entirely unheard vocabulary says c")
    new = tmp_path / "new.txt"
    done = run_script("predict.py", "--model", checkpoint, "--format", "csv", new)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split(",")[2] in ("a", "b", "c")


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit", [["--max_steps", "80"], ["--max_time", "00:00:00:01"]], ids=["steps", "time"]
)
def test_a_trial_that_a_limit_ended_goes_on_as_one_long_run(
    tmp_path: Path, limit: list[str]
) -> None:
    """In the middle of an epoch, with averaged weights and half an epoch between validations."""
    arguments = ["--max_epochs", "3", "--data.batch_size", "64", "--optimizer.lr", "0.01"]
    arguments += ["--schedule.name", "constant", "--schedule.warmup", "0", "--ema.enabled", "true"]
    arguments += ["--val_check_interval", "0.5", "--export.enabled", "false", "--runs_dir"]
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    assert main([*arguments, whole]) == 0
    assert main([*arguments, parts, *limit]) == 0
    (trial,) = Path(parts).glob("*/*/checkpoints/last.ckpt")
    stopped = torch.load(trial, weights_only=True)
    assert stopped["exact_resume"]["position"] > 0
    unlimited = [limit[0], "-1" if limit[0] == "--max_steps" else "null"]
    assert main([*arguments, parts, "--resume", str(trial), *unlimited]) == 0
    (long,) = Path(whole).glob("*/*/checkpoints/last.ckpt")
    expected, found = (torch.load(path, weights_only=True) for path in (long, trial))
    assert stopped["global_step"] < found["global_step"]
    for name in ("state_dict", "current_model_state", "optimizer_states", "exact_resume"):
        assert_equal(found[name], expected[name], name)
    tables = [(path.parents[1] / "metrics.csv").read_text() for path in (long, trial)]
    assert tables[0] == tables[1]


BROKEN_ON_RANK_1 = """
import torch
from lightning_modules.networks.small_cnn import SmallCNN

class Net(SmallCNN):
    def __init__(self, in_channels: int, image_size: tuple[int, int], num_classes: int) -> None:
        super().__init__(in_channels, image_size, num_classes, width=4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images):
        self.calls += self.training
        if torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
            images = torch.where(self.calls == 8, torch.inf, images.float())
        return super().forward(images)
"""


@pytest.mark.slow
def test_a_fault_of_one_rank_is_replayed_on_all(tmp_path: Path) -> None:
    """Rank 0 starts the ranks again; all of them end, and one message says what was found."""
    (tmp_path / "broken_net.py").write_text(BROKEN_ON_RANK_1)
    arguments = ["--accelerator", "cpu", "--devices", "2", "--max_epochs", "1"]
    arguments += ["--model", "broken_net.Net", "--allow_external_code", "--checkpoint_every", "5"]
    arguments += ["--lr_finder.enabled", "false", "--gradient_check.enabled", "false"]
    done = run_script(
        *("train.py", *arguments, "--runs_dir", tmp_path / "runs"),
        environment={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr.count("error: a loss, a gradient or a weight became NaN") == 1
    assert "Traceback" not in done.stderr
    found = "reproduced: step 7, batch 7 of epoch 0: first value that is not finite in the forward"
    assert done.stdout.count(found) == 1


UNUSED = """
from torch import nn
from lightning_modules.networks.small_cnn import SmallCNN

class Net(SmallCNN):
    def __init__(self, in_channels: int, image_size: tuple[int, int], num_classes: int) -> None:
        super().__init__(in_channels, image_size, num_classes, width=4)
        self.unused = nn.Linear(2, 2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_checked", ["true", "false"])
def test_a_parameter_without_gradient_on_two_ranks_is_one_message(
    tmp_path: Path, is_checked: str
) -> None:
    """Also where DDP itself finds it, in the second step."""
    (tmp_path / "unused_net.py").write_text(UNUSED)
    arguments = ["--accelerator", "cpu", "--devices", "2", "--runs_dir", str(tmp_path / "runs")]
    arguments += ["--model", "unused_net.Net", "--allow_external_code"]
    arguments += ["--lr_finder.enabled", "false", "--gradient_check.enabled", is_checked]
    done = run_script("train.py", *arguments, environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == (
        "error: no gradient reaches network.unused.weight, network.unused.bias: several processes "
        "would wait for it for ever; remove what the forward pass does not use, or, where that is "
        "meant, add --strategy ddp_find_unused_parameters_true\n"
    )
