"""The commands that `corruption` feeds with damaged files, each run in a forked child of a process that has imported all."""

from __future__ import annotations

import io
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.subjects import OUTPUT, SIZES, files
from tests.conftest import REPOSITORY

TIMEOUT_S = 60.0
HANG, CRASH = -1000, -2000


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A command, and the files that it reads."""

    name: str
    folder: Path
    """What is copied and damaged."""
    victims: Sequence[str]
    """Files below `folder` that are damaged, one at a time."""
    main: Callable[[Path, Path], int]
    """Copy of the folder, an empty folder to write to -> exit code; it prints its error to stderr."""
    result: Callable[[Path, str], object]
    """Folder that was written to, output -> what must be the same if there is no error."""
    has_checksums: bool
    """Whether the files are of ours, with checksums that `roberta inspect` compares."""


@dataclass(frozen=True)
class Outcome:
    """How a command in a child ended."""

    code: int
    output: str


def in_child(main: Callable[[], int], folder: Path) -> Outcome:
    """Run `main` in a forked child with its output in a file and a limit on time and memory."""
    path = folder / "output.txt"
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), write_through=True)
            sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), write_through=True)
            resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
            code = main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            os._exit(code or 0)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Outcome(HANG, path.read_text(errors="replace"))
        time.sleep(0.005)
    code = CRASH if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return Outcome(code, path.read_text(errors="replace"))


def roberta(*arguments: object) -> int:
    """`roberta ARGUMENTS` in this process."""
    from roberta_plugin.cli import main

    return main([str(argument) for argument in arguments])


def fairseq_train(*arguments: object) -> int:
    """`fairseq-train ARGUMENTS` in this process."""
    import fairseq_cli.train

    sys.argv = ["fairseq-train", *map(str, arguments), "--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu"]
    fairseq_cli.train.cli_main()
    return 0


def losses(folder: Path, output: str) -> object:
    """The losses that fairseq-train has logged."""
    return [line.split('"loss": ')[1].split(",")[0] for line in output.splitlines() if '"loss": ' in line]


def numbers(folder: Path, output: str) -> object:
    """All files that were written."""
    return files(folder, skip=("output", "lock", "."))


def printed(folder: Path, output: str) -> object:
    """The output itself, without the names of folders."""
    return "\n".join(line for line in output.splitlines() if "/" not in line)


def pretrain(data: Path, out: Path) -> int:
    """Three updates and a validation with defaults."""
    options = ["--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", *SIZES]
    options += ["--tokens-per-sample", "32", "--batch-size", "16", "--optimizer", "roberta_adamw", "--lr", "1e-3"]
    options += ["--max-update", "3", "--log-format", "json", "--log-interval", "1", "--num-workers", "0"]
    return fairseq_train(data, *options, "--save-dir", out)


def finetune_updates(data: Path, out: Path) -> int:
    """Three updates of fine-tuning on prepared data."""
    options = ["--task", "roberta_sentence_prediction", "--criterion", "roberta_sentence_prediction", *SIZES]
    options += ["--arch", "fast_roberta_tiny", "--batch-size", "16", "--optimizer", "roberta_adamw", "--lr", "1e-3"]
    options += ["--max-update", "3", "--log-format", "json", "--log-interval", "1", "--num-workers", "0"]
    return fairseq_train(data, *options, "--save-dir", out)


def fill_mask(folder: Path, out: Path) -> int:
    """Fill a mask by the hub; the folder holds the checkpoint and its data."""
    from tests.campaign.hostile import hub_class

    hub = hub_class().from_pretrained(str(folder), "checkpoint_last.pt", str(folder))
    print([round(filling.probability, 4) for filling in hub.fill_mask("good <mask> good")])
    return 0


def all_entries(inputs: Path) -> list[Entry]:
    """Every command with the folder it reads; `corruption.write_inputs` has made the folders."""
    data_bin = ["train.bin", "train.idx", "valid.bin", "valid.idx", "dict.txt", "manifest.json"]
    bpe = ["encoder.json", "vocab.bpe", "dict.txt"]
    prepared = sorted(path.name for path in (inputs / "prepared").iterdir() if path.is_file())
    tokenizer, text = inputs / "tokenizer", inputs / "small.txt"
    evaluate = ("evaluate", "--checkpoint", inputs / "tuned.pt")
    entry = dict[str, object]
    settings: list[entry] = [
        {"name": "data-bin -> fairseq-train", "folder": "small", "victims": data_bin, "main": pretrain}
        | {"result": losses, "has_checksums": True},
        {"name": "data-bin -> inspect", "folder": "small", "victims": data_bin, "result": printed}
        | {"main": lambda data, out: roberta("inspect", data), "has_checksums": True},
        {"name": "tokenizer -> binarize", "folder": "tokenizer", "victims": bpe, "result": numbers}
        | {
            "main": lambda data, out: roberta(
                "binarize", "--train", text, "--tokenizer", data, OUTPUT, out / "bin", "--workers", "1", "--no-progress"
            )
        }
        | {"has_checksums": False},
        {"name": "prepared -> fairseq-train", "folder": "prepared", "victims": prepared, "main": finetune_updates}
        | {"result": losses, "has_checksums": True},
        {"name": "prepared -> evaluate", "folder": "prepared", "victims": prepared, "result": numbers}
        | {"main": lambda data, out: roberta(*evaluate, "--data", data, OUTPUT, out), "has_checksums": True},
        {"name": "prepared -> inspect", "folder": "prepared", "victims": prepared, "result": printed}
        | {"main": lambda data, out: roberta("inspect", data), "has_checksums": True},
        {"name": "checkpoint -> hub", "folder": "hub", "victims": ["checkpoint_last.pt", *bpe], "main": fill_mask}
        | {"result": printed, "has_checksums": True},
        {"name": "TSV -> prepare", "folder": "glue/SST-2/SST-2", "victims": ["train.tsv", "dev.tsv"]}
        | {
            "main": lambda data, out: roberta(
                "prepare", "SST-2", "--raw", data, "--tokenizer", tokenizer, OUTPUT, out / "data", "--max-length", "64"
            )
        }
        | {"result": numbers, "has_checksums": False},
        {"name": "JSON -> prepare", "folder": "squad", "victims": ["train-v2.0.json", "dev-v2.0.json"]}
        | {
            "main": lambda data, out: roberta(
                "prepare", "squad2", "--raw", data, "--tokenizer", tokenizer, OUTPUT, out / "data", "--max-length", "96"
            )
        }
        | {"result": numbers, "has_checksums": False},
        {"name": "compressed text -> binarize", "folder": "text"}
        | {"victims": ["a.txt.gz", "a.txt.zst", "a.txt.xz", "a.jsonl"], "has_checksums": False}
        | {"main": binarize_each, "result": numbers},
        {"name": "grid file -> sweep", "folder": "yaml", "victims": ["grid.yaml"], "result": printed}
        | {
            "main": lambda data, out: roberta("sweep", data / "grid.yaml", OUTPUT, out, "--dry-run"),
            "has_checksums": False,
        },
        {"name": "recipe -> launch", "folder": "yaml", "victims": ["recipe.yaml"], "result": printed}
        | {
            "main": lambda data, out: roberta("launch", "--config", data / "recipe.yaml", "--dry-run"),
            "has_checksums": False,
        },
    ]
    return [Entry(**{**setting, "folder": inputs / str(setting["folder"])}) for setting in settings]  # type: ignore[arg-type]


def binarize_each(data: Path, out: Path) -> int:
    """`roberta binarize` of a folder's text files."""
    words = ["--train", *sorted(data.iterdir()), "--tokenizer", data.parent / "tokenizer-for-text"]
    return roberta("binarize", *words, OUTPUT, out / "bin", "--workers", "1", "--no-progress")
