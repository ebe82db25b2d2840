"""Listeners come in their order, once; and what they change in fairseq."""

import argparse
import ast
import pickle
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import data_utils
from fairseq.file_io import PathManager
from fairseq.logging.progress_bar import SimpleProgressBar, TensorboardProgressBarWrapper

from roberta_plugin import fairseq_workarounds
from roberta_plugin.fairseq_workarounds import hooks
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.refusals import refused
from tests.tiny_corpus import environment, write_data_bin


def printed(code, *arguments, fork_of="packages"):
    """What a program prints, and what it says as errors; it ends well."""
    done = run_python(code, *arguments, cwd=REPOSITORY, environment=environment(), fork_of=fork_of)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


class Owner:
    """Has one function of each kind."""

    @staticmethod
    def static(word):
        return word

    def method(self, word):
        return (self, word)


def adds(letter):
    return lambda fairseqs, *args: fairseqs(*args[:-1], args[-1] + letter)


def test_the_first_listener_is_the_outermost_and_a_second_install_changes_nothing():
    owner = SimpleNamespace(call=lambda word: f"<{word}>")
    listeners = [adds("a"), adds("b")]
    hooks._hook(owner, "call", listeners)
    once = owner.call
    hooks._hook(owner, "call", listeners)
    assert owner.call is once
    assert owner.call("x") == "<xab>"


def test_methods_and_static_methods_stay_so(monkeypatch):
    for name in ("static", "method"):
        monkeypatch.setattr(Owner, name, vars(Owner)[name])  # back at the end
        hooks._hook(Owner, name, [adds("a")])
    owner = Owner()
    assert Owner.static("x") == owner.static("x") == "xa"
    assert owner.method("x") == (owner, "xa")


def test_a_further_listener_comes_first_and_leaves():
    owner = SimpleNamespace(call=lambda word: word)
    hooks._hook(owner, "call", [adds("b")])
    for _ in range(2):
        with pytest.raises(KeyError), hooks.listening(owner, "call", adds("a")):
            assert owner.call("x") == "xab"
            raise KeyError
        assert owner.call("x") == "xb"
    plain = SimpleNamespace(call=lambda word: word)
    with hooks.listening(plain, "call", adds("a")):
        assert plain.call("x") == "xa"
    assert plain.call("x") == "x"


def test_fairseqs_own_function_is_found_behind_the_listeners():
    def own(word):
        return word

    found = []
    owner = SimpleNamespace(call=own)
    hooks._hook(owner, "call", [adds("a"), lambda fairseqs, word: found.append(hooks.function_behind(fairseqs))])
    owner.call("x")
    assert found == [own]


def test_every_function_of_the_table_is_there_and_has_one_place():
    tables = (fairseq_workarounds.LISTENERS, fairseq_workarounds.OF_TRAININGS)
    names = [(str(owner), name) for table in tables for owner, name in table]
    assert len(names) == len(set(names)) > 20
    for table in tables:
        for (owner, name), listeners in table.items():
            assert listeners
            assert owner == hooks.PROGRAM or hasattr(owner, name), name


fairseq_workarounds.install()
FOLDER = REPOSITORY / "roberta_plugin" / "fairseq_workarounds"


def test_every_fault_of_the_list_has_one_file_which_names_it():
    listed = fairseq_workarounds.__doc__ or ""
    by_file: dict[str, list[str]] = {}
    for number, name in re.findall(r"(?m)^(\d+)\. [^(]*\(`(\w+)`\)", listed):
        by_file.setdefault(name, []).append(number)
    numbers = [number for found in by_file.values() for number in found]
    assert sorted(map(int, numbers)) == list(range(1, len(numbers) + 1)) and len(numbers) >= 17
    for path in FOLDER.glob("*.py"):
        text = path.read_text()
        head = re.match(r"Faults? ([\d, and]+):", ast.get_docstring(ast.parse(text)) or "")
        own = re.findall(r"\d+", head[1]) if head else []
        if path.stem != "__init__":
            assert own == by_file.get(path.stem, []), f"{path.name} says {own}, the list {by_file.get(path.stem)}"
            assert set(re.findall(r"see fault (\d+)", text)) <= set(own), path.name


class Unlisted:
    """A class that no checkpoint of fairseq holds."""


def test_checkpoints_with_a_namespace_load_and_others_are_still_refused(tmp_path):
    torch.save({"args": argparse.Namespace(arch="x"), "weight": torch.ones(2)}, tmp_path / "good.pt")
    assert torch.load(tmp_path / "good.pt")["args"].arch == "x"
    torch.save({"args": Unlisted()}, tmp_path / "bad.pt")
    refused("Unlisted", torch.load, tmp_path / "bad.pt", error=pickle.UnpicklingError)


def test_a_copy_refuses_to_overwrite_unless_told(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    refused("overwrite=True", PathManager.copy, str(tmp_path / "a"), str(tmp_path / "b"), error=FileExistsError)
    assert (tmp_path / "b").read_text() == "b"


TWICE = """
import sys
import fairseq_cli.train
import roberta_plugin
from roberta_plugin import fairseq_workarounds

def everything():
    \"\"\"All attributes of fairseq's modules and of their classes.\"\"\"
    owners = [module for name, module in list(sys.modules.items()) if name.split(".")[0] in ("fairseq", "fairseq_cli")]
    owners += [value for owner in owners for value in vars(owner).values() if isinstance(value, type)]
    return {(id(owner), name): value for owner in owners for name, value in vars(owner).items()}

assert fairseq_cli.train.train.listeners, "nothing is installed"
before = everything()
fairseq_workarounds.install()
after = everything()
changed = [name for (owner, name), value in before.items() if after[owner, name] is not value]
assert before.keys() == after.keys() and not changed, changed
print("the same")
"""


def test_installing_twice_changes_nothing():
    assert printed(TWICE)[0].splitlines()[-1:] == ["the same"]


BF16 = f"""
import sys
import fairseq_cli.train as train
seen = []
train.distributed_utils.call_main = lambda cfg, main, **options: seen.append((cfg.common.bf16, cfg.common.tpu))
sys.argv = ["fairseq-train", DATA, "--user-dir", {str(REPOSITORY / "roberta_plugin")!r}, "--bf16",
    "--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_tiny",
    "--lr", "0.1", "--batch-size", "4", *EXTRA]
train.cli_main()
print(seen)
"""


@pytest.mark.parametrize(("extra", "expected"), [([], "[(True, False)]"), (["--tpu"], "[(True, True)]")])
def test_bf16_is_no_tpu_unless_asked_for(tiny_data_bin, extra, expected):
    code = BF16.replace("EXTRA", repr(extra)).replace("DATA", repr(str(tiny_data_bin)))
    assert printed(code, fork_of="fairseq")[0].splitlines()[-1] == expected


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
    torch.multiprocessing.start_processes(work, args=(sys.argv[1],), nprocs=2, start_method="fork")
    print("both")
"""


def test_a_checkpoint_reaches_the_other_ranks(tmp_path):
    assert printed(BROADCAST, str(tmp_path / "meet"), fork_of="fairseq")[0].splitlines()[-1] == "both"


def test_a_stray_validation_split_is_found_in_every_folder_that_the_task_reads(tmp_path):
    a, b = (write_data_bin(tmp_path / name, num_documents=2) for name in "ab")
    stray = write_data_bin(tmp_path / "stray", num_documents=2)
    (stray / "valid.idx").rename(stray / "valid1.idx")
    subsets = {"ignore_unused_valid_subsets": False, "combine_valid_subsets": False, "valid_subset": "valid"}
    dataset = SimpleNamespace(disable_validation=False, **subsets)
    colon = [write_data_bin(tmp_path / name, num_documents=2) for name in ("20:30", "20:31")]
    (colon[1] / "valid.idx").rename(colon[1] / "valid1.idx")
    for task, data, strays in (
        ("roberta_masked_lm", f"{a}@3,{b}@1", False),
        ("roberta_masked_lm", f"{a},{stray}", True),
        ("roberta_masked_lm", f"{a}:{b},{stray}", True),
        ("roberta_masked_lm", str(colon[0]), False),
        ("roberta_masked_lm", str(colon[1]), True),
        ("roberta_sentence_prediction", str(colon[0]), False),
        ("roberta_sentence_prediction", str(colon[1]), True),
    ):
        cfg = SimpleNamespace(dataset=dataset, task=SimpleNamespace(_name=task, data=data))
        with pytest.raises(ValueError, match="valid1") if strays else nullcontext():
            data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)


HELP = f"""
import sys
import fairseq_cli.train as train
sys.argv = ["fairseq-train", "--user-dir", {str(REPOSITORY / "roberta_plugin")!r}, "--task", "roberta_masked_lm",
    "--optimizer", "roberta_adamw", *EXTRA, "--help"]
train.cli_main()
"""


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (["--arch", "roberta_base"], ["--mask-whole-words", "--quant-noise-pq", "--layer-lr-decay", "  data "]),
        ([], ["--mask-whole-words", "--attention-backend", "--max-update"]),
    ],
    ids=["fairseq's model", "no model"],
)
def test_help_has_the_options_of_what_was_chosen(extra, expected):
    shown, _ = printed(HELP.replace("EXTRA", repr(extra)), fork_of="fairseq")
    assert [option for option in expected if option not in shown] == []
    assert shown.count("usage:") == 1
    for owner, option in (("RobertaMaskedLMTask", "--mask-whole-words"), ("RobertaAdamW", "--layer-lr-decay")):
        group = shown.partition(f"options of roberta_plugin's {owner}:")[2].partition("\n\n")[0]
        assert option in group
        assert "--max-update" not in group


def test_each_run_of_a_process_has_tensorboard_files_of_its_own(tmp_path, monkeypatch):
    """As the jobs of `fairseq-hydra-train -m` have, each in its own current folder."""
    for job in ("0", "1"):
        (tmp_path / job).mkdir()
        monkeypatch.chdir(tmp_path / job)
        bar = TensorboardProgressBarWrapper(SimpleProgressBar([]), "logs")
        for _ in range(2):
            bar.print({"loss": 1.0}, tag="train", step=1)
    assert [len(list((tmp_path / job / "logs" / "train").glob("events*"))) for job in ("0", "1")] == [1, 1]


LOGGING = """
import logging
import sys
sys.argv[0] = NAME
import roberta_plugin.cli
roberta_plugin.register()
import roberta_plugin.hub as hub
roots = logging.getLogger()
assert (roots.level, roots.handlers) == (logging.WARNING, []), (roots.level, roots.handlers)
logging.getLogger("anybody").info("of no interest")
logging.basicConfig(level=logging.INFO)
logging.getLogger("anybody").info("of interest")
"""


@pytest.mark.parametrize("name", ["script.py", "roberta"])
def test_importing_the_plugin_changes_no_logging(name):
    """As a script and as the command `roberta`, which registers later."""
    _, said = printed(LOGGING.replace("NAME", repr(name)))
    assert said.splitlines()[-1] == "INFO:anybody:of interest"
    assert [line for line in said.splitlines() if line.startswith(("INFO:", "DEBUG:"))] == said.splitlines()[-1:]


IMPORTS = """
import importlib
import logging
import sys
importlib.import_module(sys.argv[1])
root = logging.getLogger()
assert (root.level, root.handlers) == (logging.WARNING, []), (root.level, root.handlers)
"""


@pytest.mark.parametrize("module", ["hub", "data.block_dataset", "launch.update_hook"])
def test_importing_one_module_changes_no_logging(module):
    """test_architecture.py checks that the other modules import fairseq in the same way."""
    printed(IMPORTS, f"roberta_plugin.{module}")


def test_a_set_up_made_before_the_import_stays():
    code = "import logging, sys\nlogging.basicConfig(level=logging.ERROR, stream=sys.stdout)\nimport roberta_plugin\n"
    code += "root = logging.getLogger()\nprint(root.level, len(root.handlers), root.handlers[0].stream is sys.stdout)"
    assert printed(code)[0].splitlines()[-1] == "40 1 True"
