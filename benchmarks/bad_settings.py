"""Flags that are misspelt, of a wrong type or out of range, and configuration files likewise."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.bad_case import RAN, Case, nothing
from cli.flags import all_flags

SHORT = ("--fast_dev_run", "--gradient_check.before_fit", "false")
GROUPED = (
    "optimizer.lr", "optimizer.name", "optimizer.weight_decay", "schedule.name", "schedule.warmup",
    "loss.label_smoothing", "loss.class_weights", "early_stopping.monitor",
    "early_stopping.patience", "lr_finder.num_steps", "ema.decay", "checkpoint.enabled",
    "export.formats", "gradient_check.every", "model.width", "model.dropout", "data.batch_size",
    "data.crop_padding",
)  # fmt: skip
VALUES = ("nonsense", "-7", "1e30", "nan", "[]", "{}", "")
OFTEN = {  # what Trainer reads in a special way
    "devices": ("0", "-2", "[0,0]", "[7]", "1.5", "1,2", "auto,auto"),
    "limit_train_batches": ("0", "-1", "1.5", "0.0001", "true"),
    "limit_val_batches": ("-1", "1.01"),
    "overfit_batches": ("-1", "0.0001", "1e9"),
    "val_check_interval": ("0", "2.0", "1000000", "00:00:00:01", "x:y"),
    "max_time": ("1", "99:99", "00:00:00:00", "-1:0:0:0"),
    "max_epochs": ("0", "-1", "1.5"),
    "max_steps": ("0", "-2"),
    "accumulate_grad_batches": ("0", "1000"),
    "gradient_clip_val": ("0", "-1", "inf"),
    "precision": ("8", "64", "16", "bf16-true", "16-true", "64-true"),
    "accelerator": ("gpu", "tpu", "mps", "cuda", "cup"),
    "strategy": ("ddp", "fsdp", "deepspeed_stage_2", "model_parallel", "dpd", "ddp_spawn"),
    "float32_matmul_precision": ("high", "exact"),
    "log_every_n_steps": ("0", "-1"),
    "early_stopping.patience": ("auto", "never", "0"),
    "gradient_clip_algorithm": ("norm",),
    "loss.class_weights": ("[1,2]", "[-1,1,1,1,1,1,1,1,1,1]", "balanced"),
    "export.formats": ("onxx", "int8", "all", ","),
    "export.max_drop": ("-5", "nan"),
    "wandb.log_bundle": ("maybe",),
    "profiler": ("simple", "advanced", "pytorch", "none"),
    "num_nodes": ("0", "-1", "2"),
    "seed": ("-1", "99999999999999999999", "1.5"),
    "runs_dir": ("/proc/none", "/dev/null", "\0"),
    "experiment": ("../../outside", "/tmp/absolute", "a/b", "\0", "x" * 300, "."),
    "resume": ("none.ckpt", "/dev/null", ".", "auto"),
    "test_only": ("none.ckpt", "."),
    "config": ("none.yaml", ".", "/dev/null"),
    "data": ("digit", "os.path", "datamodules.digits", "datamodules.digits.read_digits", "a.b", ""),
    "model": ("small_cn", "subprocess.Popen", "torch.nn.Linear", "bilstm", "lightning_modules.x.Y"),
    "fast_dev_run": ("-1", "1.5", "100"),
    "deterministic": ("maybe", "warn"),
    "data.root": ("/nowhere", "", "\0"),
    "check_data": ("slow", "full", "off"),
    "reload_dataloaders_every_n_epochs": ("1", "-1"),
    "check_val_every_n_epoch": ("0", "-1"),
}  # fmt: skip


OTHERS = (  # of predict.py and export.py
    "--top_k 0", "--threads -1", "--formats none", "--timeout x", "--max_drop x", "--batch_size 0",
    "--fromat csv", "--format xml", "--output", "--min_agreement", "--max_drop=-5",
    "--min_agreement 1000", "--timeout inf", "--requested onxx", "--samples none", "--formats ,",
    "--keep none", "--header maybe", "--skip_timing --fail_if_slower", "--separator ;;",
)  # fmt: skip


def misspelt(name: str) -> str:
    group, dot, last = name.rpartition(".")
    return f"{group}{dot}{last[:1]}{last[2:]}x"


def flag_cases() -> Iterator[Case]:
    for name in (*all_flags(), *GROUPED):
        given: tuple[str, ...] = (f"--{misspelt(name)}=1", *SHORT)
        yield Case("flags", f"misspelt --{name}", "train", given, nothing, refused=True)
    for place, name in enumerate((*all_flags(), *GROUPED)):
        if name in ("print_config", "config"):
            continue
        for value in (VALUES[place % len(VALUES)], VALUES[(place + 3) % len(VALUES)]):
            given = (*SHORT, f"--{name}={value}")
            yield Case("flags", f"--{name} {value!r}", "train", given, nothing)
    for name, values in OFTEN.items():
        for value in values:
            title = f"--{name} {value[:40]!r}"
            yield Case("flags", title, "train", (*SHORT, f"--{name}={value}"), nothing)
    for words in ("gpu", "--", "-x", "--=3", "--max_epochs", "--=", "---seed 3", "--seed=1=2"):
        yield Case("flags", f"words {words!r}", "train", (*SHORT, *words.split()), nothing)
    for program, needed in (("predict", "--model x y.png"), ("export", "--ckpt x")):
        for extra in OTHERS:
            given = (*needed.split(), *extra.split())
            yield Case("flags", f"{program} {extra}", program, given, nothing, refused=True)
        yield Case("flags", f"{program} without arguments", program, (), nothing, refused=True)


def nested(levels: int) -> str:
    """Ten times ten times … by references: small to write, endless to expand."""
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels):
        inner = ", ".join(f"k{n}: *a{level - 1}" for n in range(10))
        lines.append(f"a{level}: &a{level} {{{inner}}}")
    return "\n".join(lines)


def nested_lists(levels: int) -> str:
    lines = ["data.mean: &a0 [0.5, 0.5]"]
    for level in range(1, levels):
        lines.append(f"data.m{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join([*lines, f"data.std: *a{levels - 1}"])


CONTENTS = {
    "an unknown key": "max_epoch: 3", "a wrong type": "max_epochs: many", "a list": "- 1\n- 2",
    "a scalar": "5", "text": "just text", "not closed": "a: [1", "tabs": "\ta: 1", "empty": "",
    "only a comment": "# nothing", "a nested unknown": "optimizer: {lrr: 1}",
    "a number as a key": "1: 2", "a null key": "~: 2", "a list as a key": "? [1, 2]\n: 3",
    "a date": "experiment: 2020-01-01", "an octal": "seed: 0777", "sexagesimal": "seed: 1:30",
    "null everywhere": "optimizer: ~\nmodel: ~\ndata: ~\nseed: ~", "a group as a number":
    "data: 5", "a mapping as a name": "model: {name: {x: 1}}", "a list as a name":
    "model: [small_cnn]", "the same key twice": "seed: 1\nseed: 2", "another file":
    "config: a.yaml", "large": "seed: " + "9" * 5000, "binary": "seed: !!binary aGVsbG8=",
    "a set": "seed: !!set {1, 2}", "two documents": "seed: 1\n---\nseed: 2",
    "nothing but anchors": "&a *a", "a loop": "a: &a [*a]",
    "a mapping that holds itself": "optimizer: &a {lr: 1, x: *a}", "deep": "[" * 5000,
    "deep mappings": "{a: " * 5000, "a merge": "<<: {seed: 1}", "print": "print_config: true",
    "yes": "compile: yes", "infinity": "optimizer.lr: .inf", "not a number": "optimizer.lr: .nan",
    "a name with spaces": "'max epochs': 3", "an option in a name": "'seed=1 --runs_dir': x",
    "help": "help: true", "the same key nested and dotted": "optimizer: {lr: 1}\noptimizer.lr: 2",
    "the same key short": "model: small_cnn\nmodel.name: bilstm",
}  # fmt: skip


def config_files() -> Iterator[tuple[str, str | bytes]]:
    yield from CONTENTS.items()
    yield "mappings without end", nested(12)
    yield "lists without end", nested_lists(12)
    yield "Latin-1", "experiment: caf\xe9".encode("latin-1")
    yield "UTF-16", "seed: 1".encode("utf-16")
    yield "a byte order mark", "seed: 1".encode("utf-8-sig")
    yield "NUL bytes", bytes(50)
    yield "a picture", b"\x89PNG\r\n\x1a\n" + bytes(range(256))


HOSTILE = {
    "apply": f"a: !!python/object/apply:builtins.open ['{RAN}', 'w']",
    "new": "a: !!python/object/new:os.system ['touch ran']",
    "name": "model: !!python/name:os.system",
    "module": "a: !!python/module:antigravity",
    "a data source outside": "data: os.system",
    "a network outside": "model: subprocess.Popen",
    "permission in the file": "allow_external_code: true\nmodel: torch.nn.Linear",
    "a class path": "data: {class_path: subprocess.Popen, init_args: {args: [touch, ran]}}",
}


def config_cases() -> Iterator[Case]:
    files = [(False, name, text) for name, text in config_files()]
    files += [(True, name, text) for name, text in HOSTILE.items()]
    for refused, name, text in files:

        def prepare(folder: Path, text: str | bytes = text) -> None:
            content = text if isinstance(text, bytes) else text.encode()
            (folder / "a.yaml").write_bytes(content)

        arguments = ("--config", "a.yaml", *SHORT)
        yield Case("configs", name, "train", arguments, prepare, refused)
