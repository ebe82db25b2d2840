"""The commands of the documents, run as they are written, on small data in a folder of their own.

What takes long on a laptop is made short by `SHORTER`; paths of the repository become absolute; nothing else is changed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.tiny_corpus import environment, write_data_bin

pytestmark = pytest.mark.integration

EXAMPLES = REPOSITORY / "examples"
HYDRA = {
    "common": {"cpu": "true", "bf16": "false", "log_interval": "1"},
    "model": dict.fromkeys(("encoder_embed_dim", "encoder_ffn_embed_dim"), "32")
    | {"encoder_layers": "1", "encoder_attention_heads": "2"},
    "task": {"tokens_per_sample": "64"},
    "dataset": {"batch_size": "4", "num_workers": "0"},
    "optimization": {"update_freq": "[1]"},
    "distributed_training": {"distributed_world_size": "1"},
}


def shell(script: str, folder: Path) -> str:
    """Run `script` by bash in `folder`, with the commands of this environment; return what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**environment(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def usage_lines(path: Path, command: str) -> list[str]:
    """The commands that the comments at the head of a script or a config give."""
    return re.findall(rf"^#   ({command} .*)$", path.read_text(), flags=re.MULTILINE)


def test_the_hydra_example_trains_and_resumes_from_any_folder_by_the_command_of_its_header(tiny_data_bin, tmp_path):
    """On a mixture, with validation; the data are named by paths relative to the current folder."""
    shutil.copytree(tiny_data_bin, tmp_path / "A")
    write_data_bin(tmp_path / "B", num_documents=5, seed=7)
    (literal,) = usage_lines(EXAMPLES / "pretrain" / "base.yaml", "fairseq-hydra-train")
    small = [f"{group}.{name}={value}" for group, options in HYDRA.items() for name, value in options.items()]
    called = literal.replace("examples/pretrain", str(EXAMPLES / "pretrain")).replace("DATA-BIN", "\"'A@3,B@1'\"")
    assert called != literal

    shell(f"{called} {shlex.join(small)} optimization.max_update=5", tmp_path)
    printed = shell(f"{called} {shlex.join(small)} optimization.max_update=8", tmp_path)

    assert "Loaded checkpoint runs/base/checkpoints/checkpoint_last.pt (epoch 1 @ 5 updates)" in printed
    assert "valid_loss" in printed
    state = torch.load(tmp_path / "runs" / "base" / "checkpoints" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 8
    assert state["cfg"]["task"]["_name"] == "roberta_masked_lm"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A", "B", "runs"]


def test_the_shell_recipe_trains_from_any_folder(tiny_data_bin, tmp_path):
    shutil.copytree(tiny_data_bin, tmp_path / "corpus")
    small = "--cpu --distributed-world-size 1 --max-update 2 --batch-size 4 --num-workers 0 --tokens-per-sample 64"
    small += " --encoder-layers 1 --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    script = shlex.quote(str(EXAMPLES / "pretrain" / "base.sh"))
    shell(f"UPDATE_FREQ=1 {script} corpus {small} --arch fast_roberta_tiny", tmp_path)
    assert (tmp_path / "runs" / "base" / "checkpoints" / "checkpoint_last.pt").is_file()


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_without_arguments_show_their_usage(script):
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
