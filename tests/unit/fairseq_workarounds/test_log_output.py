"""What a training logs: the same values, read at once, without warnings that nobody can act on."""

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.logging.progress_bar import SimpleProgressBar, WandBProgressBarWrapper
from fairseq.tasks import setup_task
from fairseq.trainer import Trainer
from torch.utils._python_dispatch import TorchDispatchMode

from roberta_plugin import register
from roberta_plugin.fairseq_workarounds.log_output import on_host
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.tiny_corpus import environment, run, train_command


class Waits(TorchDispatchMode):
    """Counts what would wait for a GPU: numbers that are read one by one, and shapes that depend on values."""

    NAMES = ("_local_scalar_dense", "nonzero", "masked_select", "item", "equal", "is_nonzero")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ in self.NAMES:
            self.found.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_numbers_come_to_the_host_together():
    rows = torch.arange(6.0).view(2, 3)
    outputs = [{"loss": torch.tensor(1.5), "ntokens": 7, "rows": rows}]
    outputs.append({"loss": torch.tensor(2.5), "n": torch.tensor(3)})
    with Waits() as waits:
        found = on_host(outputs)
    assert waits.found == []
    assert found[0]["loss"] == 1.5 and found[0]["ntokens"] == 7 and found[0]["rows"] is rows
    assert found[1] == {"loss": 2.5, "n": 3}
    assert torch.is_tensor(outputs[0]["loss"]), "the caller's own dict has changed"
    assert on_host([]) == []


def test_the_guard_counts():
    with Waits() as waits:
        float(torch.tensor(1.0))
        bool(torch.tensor(True))
        torch.ones(3)[torch.tensor([True, False, True])]
    assert len(waits.found) >= 2
    assert on_host([{"loss": torch.tensor(float("nan"))}])[0]["loss"] != pytest.approx(0.0)


@pytest.mark.parametrize("wraps", [True, False], ids=["ours", "fairseq's own"])
def test_an_update_waits_for_its_gradient_and_once_for_its_log(wraps, tiny_data_bin, tmp_path, monkeypatch):
    """Of a real trainer in bf16: how many batches an update has changes nothing.

    fairseq looks twice whether the norm of the gradient is finite; the second time it is on the host already.
    """
    register()
    if not wraps:
        monkeypatch.setattr(Trainer, "_reduce_and_log_stats", Trainer._reduce_and_log_stats.__wrapped__)
    options = ["--bf16", "--optimizer", "roberta_adamw", "--total-num-update", "9"]
    parser = fairseq_options.get_training_parser()
    command = train_command(tiny_data_bin, tmp_path / "run", *options)
    arguments = fairseq_options.parse_args_and_arch(parser, command[1:])
    cfg = convert_namespace_to_omegaconf(arguments)
    task = setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    batches = trainer.get_train_iterator(1).next_epoch_itr()
    trainer.begin_epoch(1)
    counts = []
    with metrics.aggregate(new_root=True):
        for num_batches in (1, 1, 3):
            samples = [next(batches) for _ in range(num_batches)]
            with Waits() as waits:
                trainer.train_step(samples)
            counts.append(len(waits.found))
    assert counts[1] == counts[2] == (2 if wraps else 4)


FOREIGN = ("hydra", "version_base", "ConfigStore", "pin_memory", "autocast", "Warning:", "DEBUG")


def test_a_training_prints_no_foreign_warning(tmp_path, tiny_data_bin):
    options = ("--max-update", "2", "--total-num-update", "2", "--log-format", "simple", "--num-workers", "1")
    done = run(train_command(tiny_data_bin, tmp_path / "save", *options), fork_of="fairseq")
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    assert [line for line in printed.splitlines() if any(word in line for word in FOREIGN)] == []
    for own in ("| fairseq_cli.train | task: RobertaMaskedLMTask", "| fairseq.trainer |", "| done training in"):
        assert own in printed, f"fairseq's line is missing: {own}"
    assert "| roberta_plugin.models.roberta | attention backend:" in printed


SCRIPT = """
import warnings
import roberta_plugin
roberta_plugin.register()
number = len(warnings.filters)
roberta_plugin.register()
from roberta_plugin.fairseq_workarounds import log_output
log_output.filter_warnings()
assert len(warnings.filters) == number
warnings.warn("something of torch", FutureWarning)
warnings.warn("`torch.cuda.amp.autocast(args...)` is deprecated.", FutureWarning)
warnings.warn_explicit("`torch.cuda.amp.autocast(args...)` is deprecated.", FutureWarning, "x", 1, "fairseq.trainer")
"""


def test_other_warnings_get_through():
    """Also those on the list that another program causes itself."""
    printed = run_python(SCRIPT, cwd=REPOSITORY, environment=environment()).stderr
    assert "FutureWarning: something of torch" in printed
    assert printed.count("torch.cuda.amp.autocast(args...)` is deprecated.") == 1
    assert "x:1" not in printed


def test_a_user_who_asks_for_all_warnings_gets_them():
    asked = "import warnings\nwarnings.simplefilter('default')"  # what `python -W default` does
    assert "x:1: FutureWarning" in run_python(asked + SCRIPT, cwd=REPOSITORY, environment=environment()).stderr


def test_options_of_a_resumed_run_may_change_at_the_tracker(tmp_path, monkeypatch):
    """W&B's server sends the config of the first start; offline, `config` is what it would send."""
    wandb = pytest.importorskip("wandb", reason="needs Weights & Biases: pip install wandb")
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true", "CONSOLE": "off"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    run = wandb.init(project="tiny", config={"distributed_init_method": "tcp://node1:4000"})
    try:
        bar = WandBProgressBarWrapper(SimpleProgressBar([]), "tiny", run_name="base")
        bar.update_config({"distributed_init_method": "tcp://node2:4000"})
        assert run.config["distributed_init_method"] == "tcp://node2:4000"
    finally:
        run.finish()
