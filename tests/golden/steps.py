"""The commands of a recording, each in a fork, as a user types them; and the names of the inside that it needs.

Whoever moves `load_model` and `run_model` connects them again in `raw_outputs`, and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaign.forks import Fork, fork, in_child
from tests.conftest import REPOSITORY

CHANGING = ("code", "commit", "seconds", "mtime_ns", "created", "date", "plan_sha256", "roberta_plugin", "version")
SIZES = ("--encoder-layers", "2", "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "64")
SIZES += ("--encoder-attention-heads", "2")


class Work:
    """A subject's folder. Texts are recorded without its name and other things that differ from run to run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def clean(self, text: str) -> str:
        """The text without the paths of this machine, times, and the version of the code."""
        text = text.replace(str(self.folder), "WORK").replace(str(REPOSITORY), "TREE")
        text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?", "TIME", text)
        return re.sub(rf'("(?:{"|".join(CHANGING)})": )[^,}}\n]+', r"\1null", text)

    def roberta(self, *words: object, fails: bool = False) -> str:
        """`roberta WORDS` in a fork; what it printed."""

        def main() -> int:
            from roberta_plugin.cli import main as roberta

            os.chdir(self.folder)
            return roberta([str(word) for word in words])

        done = in_child(main, self.folder)
        assert (done.code != 0) == fails, f"roberta {' '.join(map(str, words))}: {done.code}\n{done.output[-3000:]}"
        return done.output

    def python(self, function: Callable[[], Any]) -> Any:
        """What a function gives in a fork, through JSON."""
        path = self.folder / "answer.json"

        def main() -> int:
            path.write_text(json.dumps(function()))
            return 0

        done = in_child(main, self.folder)
        assert done.code == 0, done.output[-3000:]
        return json.loads(path.read_text())

    def train(self, *words: object, ranks: int = 1) -> dict[str, Any]:
        """`fairseq-train WORDS` in a fork, or one per rank: loss and gradient norm of every update, exactly."""
        arguments = [str(word) for word in words] + ["--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu"]
        if ranks == 1:
            commands = [["fairseq-train", *arguments]]
        else:
            from tests.tiny_corpus import rank_commands

            commands = rank_commands(["fairseq-train", *arguments], ranks)
        notes = [self.folder / f"losses-{rank}.json" for rank in range(ranks)]
        outputs = [self.folder / f"training-{rank}.txt" for rank in range(ranks)]
        children = [
            Fork(fork(lambda command=command, note=note: _train(command, note), output))
            for command, note, output in zip(commands, notes, outputs, strict=True)
        ]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) for child in children]
        assert not any(codes), outputs[0].read_text()[-3000:]
        return json.loads(notes[0].read_text())


def _train(command: Sequence[str], note: Path) -> int:
    import fairseq_cli.train
    from fairseq.trainer import Trainer

    reduce_and_log_stats, losses, norms = Trainer._reduce_and_log_stats, [], []

    def noted(trainer: Any, logging_outputs: Any, sample_size: Any, grad_norm: Any = None) -> Any:
        if grad_norm is not None:
            losses.append(sum(float(output["loss"]) for output in logging_outputs))
            norms.append(float(grad_norm))
        return reduce_and_log_stats(trainer, logging_outputs, sample_size, grad_norm)

    Trainer._reduce_and_log_stats = noted
    sys.argv = list(command)
    fairseq_cli.train.cli_main()
    note.write_text(json.dumps({"losses": losses, "norms": norms}))
    return 0


def log_of(path: Path, key: str) -> list[dict[str, str]]:
    """The JSON lines of a log that have this key."""
    lines = [line for line in path.read_text().splitlines() if line.startswith('{"') and line.endswith("}")]
    return [record for record in map(json.loads, lines) if key in record]


def raw_outputs(checkpoint: Path, data: Path, split: str) -> dict[str, Any]:
    """The arrays that a fine-tuned model gives for a split, by name; those of tokens end to end."""
    from roberta_plugin.experiments.inference import load_model, run_model
    from roberta_plugin.finetuning.prepared import Prepared

    prepared = Prepared.open(data)
    model, task = load_model(checkpoint, prepared)
    outputs = run_model(model, task, prepared.split(split)).values()
    found = {}
    for name, value in outputs.items():
        found[name] = value if isinstance(value, np.ndarray) else np.concatenate(list(value))
    return found


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, plain values and tensors only."""
    import argparse

    import torch

    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(path, weights_only=True, map_location="cpu")
