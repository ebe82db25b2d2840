"""Promises broken on purpose, each in a copy of the tree: the part of the campaign that guards it must notice.

A break is a piece of code that occurs once, and what takes its place. One that does not fit the code any more fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.outcome import Table
from tests.conftest import REPOSITORY

BAD_CASES = "Bad cases:\n\n- "


@dataclass(frozen=True)
class Break:
    """A promise that the copy does not keep."""

    name: str
    path: str
    """Of the file below roberta_plugin/."""
    before: str
    after: str
    guard: Sequence[str]
    """Arguments of the campaign: the part that must notice, and what it is to attack."""


HUB = ("corruption", "--only", "checkpoint -> hub", "--cases", "24")
FP32 = ("kills", "--only", "pretraining, fp32", "--kills")
HOSTILE = ("hostile", "--only", "RobertaHub.from_pretrained")
BREAKS = (
    Break(
        "no checksum of checkpoints",
        "checkpoint_files.py",
        "wrong = archive.testzip() if used is None else _wrong_part(archive, used)",
        "wrong = None",
        HUB,
    ),
    Break(
        "checkpoints written in place, no rename",
        "files.py",
        'temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")\n',
        "temporary = path\n    temporary.unlink(missing_ok=True)\n",
        (*FP32, "18"),
    ),
    Break("no fsync", "files.py", "os.fsync(file.fileno())", "pass", (*FP32, "6")),
    Break(
        "resumed one block early",
        "fairseq_workarounds/epoch_iterator.py",
        "self._begin_after(int(seen))",
        "self._begin_after(int(seen) - 1)",
        (*FP32, "3"),
    ),
    Break(
        "moments dropped on resume",
        "optim/adamw.py",
        "super().load_state_dict(_for_fused_adamw(state_dict, settings), optimizer_overrides)",
        'state_dict = {**state_dict, "state": {}}\n'
        "        super().load_state_dict(_for_fused_adamw(state_dict, settings), optimizer_overrides)",
        (*FP32, "3"),
    ),
    Break(
        "masks drawn by what this process has drawn before",
        "data/masked_lm_dataset.py",
        "masked = self.masker.mask(tokens, seed=self._seed_of_shard,",
        'self.drawn = getattr(self, "drawn", 0) + 1\n'
        "        masked = self.masker.mask(tokens, seed=self._seed_of_shard + self.drawn,",
        (*FP32, "3"),
    ),
    Break(
        "masters saved as bf16",
        "fairseq_workarounds/half_precision.py",
        "[master.detach() for master in _masters(optimizer)]",
        "[master.detach().bfloat16().float() for master in _masters(optimizer)]",
        ("kills", "--only", "pretraining, bf16", "--kills", "3"),
    ),
    Break(
        "the older checkpoint is lost before the new one is whole",
        "fairseq_workarounds/checkpoints.py",
        "            with atomic_write(path) as file:\n",
        "            path.unlink(missing_ok=True)\n            with atomic_write(path) as file:\n",
        (*FP32, "18"),
    ),
    Break(
        "unfinished files stay",
        "checkpoint_files.py",
        "            path.unlink()\n",
        "",
        (*FP32, "12"),
    ),
    Break(
        "no lock of the save folder",
        "fairseq_workarounds/checkpoints.py",
        "        lock_save_dir(Path(cfg.save_dir))",
        "        pass",
        ("environment", "--only", "two trainings"),
    ),
    Break(
        "no watch of lost ranks",
        "fairseq_workarounds/heartbeats.py",
        "if _watch or not seconds or",
        "if True or _watch or not seconds or",
        ("environment", "--only", "rank 1 stopped for good"),
    ),
    Break(
        "a full disk is not waited for",
        "fairseq_workarounds/checkpoints.py",
        "if wait is None or cause.errno not in _PASSING:",
        "if True:",
        ("environment", "--only", "full for a moment"),
    ),
    Break(
        "another dict.txt is taken",
        "finetuning/identity.py",
        'before, now = {"dict.txt": trained.get("vocabulary")}, {"dict.txt": ours.get("vocabulary")}',
        "before, now = {}, {}",
        ("environment", "--only", "other words"),
    ),
    Break(
        "secrets are written",
        "launch/resources.py",
        "return _SECRET.search(name.upper()) is not None",
        "return False",
        ("environment", "--only", "secret"),
    ),
    Break(
        "any model of fairseq is built",
        "models/checkpoints.py",
        "if name not in (*OUR_MODELS, *FAIRSEQ_MODELS):",
        # The list of options is a second guard, which alone suffices.
        "if name not in (*OUR_MODELS, *FAIRSEQ_MODELS):\n"
        '        return argparse.Namespace(**{**saved, "arch": name, "max_positions": 64})\n'
        "    if False:",
        HOSTILE,
    ),
    Break(
        "pickled objects are loaded",
        "checkpoint_files.py",
        "weights_only=True, mmap=is_mapped)",
        "weights_only=False, mmap=is_mapped)",
        HOSTILE,
    ),
    Break("memory is not measured", "checkpoint_files.py", "    check_claims(path, content)\n", "", HOSTILE),
    Break(
        "a torn status file is taken for none",
        "json_files.py",
        '        raise ValueError(f"{path} {defect}: {remedy}.") from error\n',
        "        return None\n",
        ("corruption", "--only", "run folder -> jobs", "--cases", "12"),
    ),
)


def run_breaks(inputs: Path, folder: Path, *, processes: int, only: str = "") -> Table:
    """Break each promise in a copy, and run its guard there, `processes` at a time."""
    table = Table(
        "Deliberate breaks",
        ["noticed", "NOT NOTICED", "failed"],
        bad=["NOT NOTICED", "failed"],
        explanation="A promise of the package is broken in a copy of the tree, and the part of the campaign that guards "
        "it runs there. *Failed*: the campaign itself failed, or the break does not fit the code.",
    )
    chosen = [each for each in BREAKS if only in each.name]
    with ThreadPoolExecutor(processes) as pool:
        for each, (outcome, said) in zip(
            chosen, pool.map(lambda each: tried(each, inputs, folder), chosen), strict=True
        ):
            table.add(each.name, outcome, said)
            table.notes.append(f"{each.name}: {outcome.lower()} by {said}")
    return table


def tried(each: Break, inputs: Path, folder: Path) -> tuple[str, str]:
    """Whether the guard notices a break, and the guard with its first bad case."""
    copy = folder / each.name.replace(" ", "-").replace(",", "")
    begun = time.monotonic()
    try:
        for name in ("roberta_plugin", "tests"):
            shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        apply(each, copy)
        words = [sys.executable, "-m", "tests.campaign", *each.guard, "--inputs", str(inputs), "--processes", "1"]
        variables = {**os.environ, "PYTHONPATH": str(copy), "TMPDIR": str(folder)}
        done = subprocess.run(words, cwd=copy, env=variables, capture_output=True, text=True, timeout=1200)
        said = f"`{' '.join(each.guard)}` in {time.monotonic() - begun:.0f} s"
        _, _, cases = done.stdout.partition(BAD_CASES)
        if done.returncode != int(bool(cases)):  # 1 is also the code of a traceback
            return "failed", f"{said}: {done.stderr[-500:]}"
        return ("noticed" if cases else "NOT NOTICED"), f"{said}: {(cases or 'no bad case').splitlines()[0][:200]}"
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return "failed", str(error)[:500]
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def apply(each: Break, tree: Path) -> None:
    """Break the tree; an error if the code has changed."""
    path = tree / "roberta_plugin" / each.path
    text = path.read_text()
    assert text.count(each.before) == 1, f"{each.path} has {text.count(each.before)} times: {each.before!r}"
    path.write_text(text.replace(each.before, each.after))
