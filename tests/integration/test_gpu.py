"""`fairseq-train` on a GPU: each precision learns, and a resumed training ends in the same bits."""

import os
import subprocess

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.tiny_corpus import environment, logged, train_command

PRECISIONS = {"fp32": [], "bf16": ["--bf16"], "fp16": ["--fp16"], "amp": ["--amp"]}
EXACT = ("--optimizer", "roberta_adamw", "--attention-backend", "eager")  # flash attention's sums have no fixed order


def train(data, save_dir, device, *options):
    """Run it to its end; what it logged."""
    arguments = train_command(
        data, save_dir, "--max-update", "12", "--total-num-update", "12", "--save-interval-updates", "6", *options
    )
    env = environment()
    if device != "cpu":
        arguments.remove("--cpu")
        env["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    done = subprocess.run(arguments, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def tensors(path):
    state = torch.load(path, weights_only=False, map_location="cpu")
    moments = [moment for entry in state["last_optimizer_state"]["state"].values() for moment in entry.values()]
    return [*state["model"].values(), *(torch.as_tensor(moment) for moment in moments)]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_resumed_training_ends_in_the_same_bits(precision, tiny_data_bin, tmp_path, gpu):
    if gpu == "cpu" and precision in ("fp16", "amp"):
        pytest.skip(f"--{precision} is for GPUs")
    options = [*EXACT, *PRECISIONS[precision], "--update-freq", "2", "--fp16-init-scale", "8"]
    train(tiny_data_bin, tmp_path / "whole", gpu, *options)
    part = tmp_path / "whole" / "checkpoint_1_6.pt"
    train(tiny_data_bin, tmp_path / "parts", gpu, *options, "--restore-file", str(part))
    found, expected = (tensors(tmp_path / name / "checkpoint_last.pt") for name in ("parts", "whole"))
    assert len(found) == len(expected) > 60
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    losses = [float(record["loss"]) for record in logged(tmp_path / "whole", "train_inner")]
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        ["--sample-break-mode", "complete"],
        ["--sample-break-mode", "complete", "--no-pack-sequences"],
        ["--sample-break-mode", "complete", "--compile-layers"],
        ["--sample-break-mode", "complete", "--checkpoint-activations"],
        ["--pack-sequences", "--max-tokens", "256", "--pad-to-multiple", "256"],
        ["--memory-efficient-bf16"],
    ],
    ids=" ".join,
)
def test_the_fast_paths_learn(options, tiny_data_bin, tmp_path, gpu):
    if gpu == "cpu" and "--compile-layers" in options:
        pytest.skip("compiling for a CPU takes minutes")
    log = train(tiny_data_bin, tmp_path / "run", gpu, "--bf16", "--optimizer", "roberta_adamw", *options)
    losses = [float(record["loss"]) for record in logged(tmp_path / "run", "train_inner")]
    assert losses[-1] < losses[0] - 0.1
    assert "attention backend: " in log
    if gpu != "cpu" and options[0] == "--sample-break-mode":
        assert ("blocks are packed end to end" in log) == ("--no-pack-sequences" not in options)
