"""Each workaround repairs the fault that it names, and only that."""

import argparse
import os
import pickle
import subprocess
import sys

import pytest
import torch
from fairseq.file_io import PathManager

from roberta_plugin import fairseq_workarounds
from roberta_plugin.fairseq_workarounds import checkpoint_writing
from tests.conftest import REPOSITORY


class Unlisted:
    """A class that no checkpoint of fairseq holds."""


def test_checkpoints_with_a_namespace_load_and_others_are_still_refused(tmp_path):
    torch.save({"args": argparse.Namespace(arch="x"), "weight": torch.ones(2)}, tmp_path / "good.pt")
    assert torch.load(tmp_path / "good.pt")["args"].arch == "x"
    torch.save({"args": Unlisted()}, tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError, match="Unlisted"):
        torch.load(tmp_path / "bad.pt")


def test_a_copy_that_fails_half_way_leaves_the_old_file_whole(tmp_path, monkeypatch):
    new, last = tmp_path / "checkpoint_1_10.pt", tmp_path / "checkpoint_last.pt"
    new.write_bytes(b"new" * 1000)
    last.write_bytes(b"old")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"old"
    monkeypatch.undo()
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"new" * 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, last.name]


def test_a_copy_refuses_to_overwrite_unless_told(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        PathManager.copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "b"


def test_installing_twice_changes_nothing():
    before = PathManager.copy
    fairseq_workarounds.install()
    assert PathManager.copy is before is checkpoint_writing.atomic_copy


BF16 = f"""
import sys
import fairseq_cli.train as train
seen = []
train.distributed_utils.call_main = lambda cfg, main, **options: seen.append((cfg.common.bf16, cfg.common.tpu))
sys.argv = ["fairseq-train", "unused", "--user-dir", {str(REPOSITORY / "roberta_plugin")!r}, "--bf16",
    "--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny", *EXTRA]
train.cli_main()
print(seen)
"""


@pytest.mark.parametrize(("extra", "expected"), [([], "[(True, False)]"), (["--tpu"], "[(True, True)]")])
def test_bf16_is_no_tpu_unless_asked_for(extra, expected):
    code = BF16.replace("EXTRA", repr(extra))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == expected


BROADCAST = """
import sys
import torch
import torch.distributed as dist
from fairseq.distributed import utils
from omegaconf import OmegaConf
import roberta_plugin

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    sent = {"cfg": OmegaConf.create({"lr": [0.1]}), "weight": torch.arange(3)} if rank == 0 else None
    group = dist.group.WORLD
    got = utils.broadcast_object(sent, src_rank=0, group=group, dist_device=torch.device("cpu"))
    assert got["cfg"].lr == [0.1] and got["weight"].tolist() == [0, 1, 2]
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, args=(sys.argv[1],), nprocs=2)
    print("both")
"""


def test_a_checkpoint_reaches_the_other_ranks(tmp_path):
    (tmp_path / "script.py").write_text(BROADCAST)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "meet")]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "both"


LOGGING = """
import logging
import sys
sys.argv[0] = NAME
import roberta_plugin.cli
roberta_plugin.register()
import roberta_plugin.models.hub_interface as hub
roots = logging.getLogger()
assert (roots.level, roots.handlers) == (logging.WARNING, []), (roots.level, roots.handlers)
logging.getLogger("anybody").info("of no interest")
logging.basicConfig(level=logging.INFO)
logging.getLogger("anybody").info("of interest")
"""


@pytest.mark.parametrize("name", ["script.py", "roberta"])
def test_importing_the_plugin_changes_no_logging(name):
    """As a script and as the command `roberta`, which registers later."""
    code = LOGGING.replace("NAME", repr(name))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "INFO:anybody:of interest"
    assert [line for line in done.stderr.splitlines() if line.startswith(("INFO:", "DEBUG:"))] == [
        "INFO:anybody:of interest"
    ]


def test_a_set_up_made_before_the_import_stays():
    code = "import logging, sys\nlogging.basicConfig(level=logging.ERROR, stream=sys.stdout)\nimport roberta_plugin\n"
    code += "root = logging.getLogger()\nprint(root.level, len(root.handlers), root.handlers[0].stream is sys.stdout)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert done.stdout.splitlines()[-1] == "40 1 True", done.stderr
