"""The folder of a demo run: paths of its files, finished steps, and a lock against a second run.

A step is done if `steps.json` lists it with the current values of the settings it depends on. The file is replaced
atomically after each step, so a killed run resumes with the step it was in.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.files import atomic_write
from roberta_plugin.locks import try_lock
from roberta_plugin.settings import check_values, setting

LOCK_PATIENCE_S = 20  # a training whose parent was killed needs a moment to end


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """The user's settings; a change repeats the steps that depend on it."""

    minutes: float = setting(5.0, "time limit of the pretraining, without start-up", smallest=0.05, largest=24 * 60)
    vocab_size: int = setting(4000, "number of tokens of the tokenizer", smallest=300, largest=50000)
    max_megabytes: float = setting(0.0, "limit on the text to use, 0: no limit", smallest=0)
    seed: int = setting(1, "seed of weights, masks and order")

    def __post_init__(self) -> None:
        """Refuse invalid values, naming the option."""
        check_values(self)


class DemoFolder:
    """Paths and finished steps of one demo run."""

    def __init__(self, path: Path, settings: DemoSettings) -> None:
        self.path = path.absolute()
        self.settings = settings
        self.corpus = self.path / "corpus"
        self.tokenizer = self.path / "tokenizer"
        self.data_bin = self.path / "data-bin"
        self.checkpoints = self.path / "checkpoints"
        self.train_log = self.path / "train.log"
        self.lock_descriptor = -1
        self._steps_file = self.path / "steps.json"

    def settings_of(self, names: Sequence[str]) -> dict[str, Any]:
        """The settings of these names, for the record of a step that depends on them."""
        return {name: getattr(self.settings, name) for name in names}

    def result_of(self, step: str, *, depends_on: Sequence[str]) -> dict[str, Any] | None:
        """The result of a step that is done with the current settings; None if it is not."""
        entry = self._read().get(step)
        if entry is None or entry["settings"] != self.settings_of(depends_on):
            return None
        result: dict[str, Any] = entry["result"]
        return result

    def forget(self, steps: Sequence[str]) -> None:
        """Record that these steps must run again, because a step they depend on is about to run."""
        self._write({name: entry for name, entry in self._read().items() if name not in steps})

    def mark_done(self, step: str, result: dict[str, Any], *, depends_on: Sequence[str], seconds: float) -> None:
        """Record that the step is done."""
        entry = {"settings": self.settings_of(depends_on), "seconds": round(seconds, 1), "result": result}
        self._write({**self._read(), step: entry})

    def results(self) -> dict[str, dict[str, Any]]:
        """The results of all finished steps, and their times under "seconds"."""
        entries = self._read()
        return {name: entry["result"] for name, entry in entries.items()} | {
            "seconds": {name: entry["seconds"] for name, entry in entries.items()}
        }

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process and the training it starts.

        Raises:
            ValueError: if another run holds it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as file:
            deadline = time.monotonic() + LOCK_PATIENCE_S
            while not try_lock(file.fileno()):
                if time.monotonic() > deadline:
                    raise ValueError(
                        f"Another `roberta demo` is running in {self.path}: wait for it or choose another --output-dir."
                    )
                time.sleep(0.2)
            self.lock_descriptor = file.fileno()
            yield

    def _read(self) -> dict[str, Any]:
        if not self._steps_file.is_file():
            return {}
        entries: dict[str, Any] = json.loads(self._steps_file.read_text(encoding="utf-8"))
        return entries

    def _write(self, entries: dict[str, Any]) -> None:
        with atomic_write(self._steps_file, "w") as file:
            json.dump(entries, file, indent=2)
