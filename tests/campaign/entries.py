"""The commands that `corruption` feeds with damaged files."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.subjects import OUTPUT, SIZES, digest, files, trained_state
from tests.conftest import REPOSITORY


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
    """Whether there are checksums of the files, so that damage must not go unnoticed."""
    without_checksums: Sequence[str] = ()
    """Those of the victims of which there are none all the same."""
    is_verb: bool = True
    """Whether it is a `roberta` command, which shows no traceback."""
    is_inspection: bool = False
    """Whether it is `roberta inspect`, which must find all damage."""


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
    """Open the folder, which holds the checkpoint and its data, and fill a mask; all parameters are compared."""
    from tests.campaign.hostile import hub_class

    hub = hub_class().from_pretrained(str(folder), "checkpoint_last.pt", str(folder))
    print(hub.fill_mask("good <mask> good"), digest(hub.model.state_dict()))
    return 0


def resume(checkpoint: Path, out: Path, data: Path) -> int:
    """Two more updates from a checkpoint."""
    options = ["--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", *SIZES]
    options += ["--tokens-per-sample", "64", "--batch-size", "4", "--optimizer", "roberta_adamw", "--lr", "1e-3"]
    options += ["--max-update", "5", "--disable-validation", "--num-workers", "0", "--save-dir", str(out)]
    return fairseq_train(data, *options, "--restore-file", checkpoint)


def jobs(folder: Path, out: Path) -> int:
    """`roberta jobs` of a run; 1 if it says that a file is unreadable."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = roberta("jobs", folder)
    print(said.getvalue())
    return code or int("unreadable" in said.getvalue())


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
        | {"is_verb": False, "result": losses, "has_checksums": True, "without_checksums": ["manifest.json"]},
        {"name": "data-bin -> inspect", "folder": "small", "victims": data_bin, "result": printed}
        | {"main": lambda data, out: roberta("inspect", data), "is_inspection": True}
        | {"has_checksums": True, "without_checksums": ["manifest.json"]},
        {"name": "tokenizer -> binarize", "folder": "tokenizer", "victims": bpe, "result": numbers}
        | {
            "main": lambda data, out: roberta(
                "binarize", "--train", text, "--tokenizer", data, OUTPUT, out / "bin", "--workers", "1", "--no-progress"
            )
        }
        | {"has_checksums": False},
        {"name": "prepared -> fairseq-train", "folder": "prepared", "victims": prepared, "main": finetune_updates}
        | {"is_verb": False, "result": losses, "has_checksums": True, "without_checksums": ["prepared.json"]},
        {"name": "prepared -> evaluate", "folder": "prepared", "victims": prepared, "result": numbers}
        | {"main": lambda data, out: roberta(*evaluate, "--data", data, OUTPUT, out)}
        | {"has_checksums": True, "without_checksums": ["prepared.json"]},
        {"name": "prepared -> inspect", "folder": "prepared", "victims": prepared, "result": printed}
        | {"main": lambda data, out: roberta("inspect", data), "is_inspection": True}
        | {"has_checksums": True, "without_checksums": ["prepared.json"]},
        {"name": "checkpoint -> hub", "folder": "hub", "victims": ["checkpoint_last.pt", *bpe], "main": fill_mask}
        | {"is_verb": False, "result": printed, "has_checksums": True, "without_checksums": bpe},
        {"name": "checkpoint -> fairseq-train", "folder": "resumed", "victims": ["checkpoints/checkpoint_last.pt"]}
        | {
            "main": lambda run, out: resume(
                run / "checkpoints/checkpoint_last.pt", out / "checkpoints", inputs / "small"
            )
        }
        | {"is_verb": False, "result": lambda out, said: trained_state(out), "has_checksums": True},
        {"name": "checkpoint -> export", "folder": "hub", "victims": ["checkpoint_last.pt"], "result": numbers}
        | {"main": lambda run, out: roberta("export", run, "--to", "huggingface", OUTPUT, out / "model")}
        | {"has_checksums": True},
        {"name": "run folder -> jobs", "folder": "launched", "victims": ["jobs.json", "status.json"], "main": jobs}
        | {"result": lambda out, said: re.sub(r"[^ ]+ days, [^ ]+ ago", "", said), "has_checksums": False},
        {"name": "TSV -> prepare", "folder": "glue/SST-2", "victims": ["train.tsv", "dev.tsv"]}
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
