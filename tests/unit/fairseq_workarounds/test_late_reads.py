"""Updates that do not wait for the GPU: the same weights and the same log, no wait, and an end where gradients are not finite."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.fairseq_workarounds import late_reads
from tests.benchmarks.trainer_waits import waits_of_update
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.refusals import refused
from tests.tiny_corpus import environment, logged, same_weights, train_command
from tests.unit.models.test_gpu_steps import make_optimizer

OPTIONS = ("--optimizer", "roberta_adamw", "--max-update", "9", "--total-num-update", "9", "--log-interval", "3")
OPTIONS += (
    "--validate-interval-updates",
    "8",
    "--save-interval-updates",
    "5",
    "--clip-norm",
    "0.5",
    "--bf16",
    "--batch-size",
    "16",
)
TIMES = ("wall", "ups", "wps", "tflops", "stall", "mfu", "hfu")

PROGRAM = """
import json, logging, sys
import roberta_plugin
roberta_plugin.register()
import fairseq_cli.train
roberta_plugin.register()
import torch
from fairseq.logging import metrics
from roberta_plugin.fairseq_workarounds import late_reads

READS = []
class Late(late_reads.HostCopy):
    def read(self):
        READS.append(self)
        return super().read()

late_reads.HostCopy = Late
for is_late, words in json.loads(sys.argv[1]):
    late_reads.is_on_gpu = lambda trainer, is_late=is_late: is_late
    metrics.reset()
    fairseq_cli.train.should_stop_early.__dict__.clear()
    sys.argv[1:] = words
    fairseq_cli.train.cli_main()
    for logger in map(logging.getLogger, list(logging.root.manager.loggerDict)):
        for handler in logger.handlers[:]:
            if isinstance(handler, logging.FileHandler):  # of this training's log
                logger.removeHandler(handler)
print("late reads:", len(READS))
"""


def without_times(entries):
    return [{name: value for name, value in entry.items() if not name.endswith(TIMES)} for entry in entries]


def test_weights_and_log_are_the_same(tiny_data_bin, tmp_path):
    """At log intervals, validations, checkpoints and ends of epochs."""
    trainings = [
        (is_late, train_command(tiny_data_bin, tmp_path / name, *OPTIONS)[1:])
        for name, is_late in (("at-once", False), ("late", True))
    ]
    done = run_python(PROGRAM, json.dumps(trainings), cwd=REPOSITORY, environment=environment(), fork_of="plugin")
    assert done.returncode == 0, done.stderr
    assert "late reads: 9" in done.stdout
    for kind in ("train_inner", "train", "valid"):
        at_once, late = (without_times(logged(tmp_path / name, kind)) for name in ("at-once", "late"))
        assert at_once == late != []
    same_weights(tmp_path / "at-once", tmp_path / "late")


@pytest.mark.parametrize(("has_ranks", "before"), [(False, 2), (True, 7)], ids=["one GPU", "ranks"])
def test_an_update_waits_for_nothing(has_ranks, before):
    """Of fairseq's own trainer, on a GPU without values."""
    assert waits_of_update(has_ranks=has_ranks) == []
    assert len(waits_of_update(has_ranks=has_ranks, reads_late=False)) == before, "the guard counts nothing"


def test_a_step_with_gradients_that_are_not_finite_leaves_all_as_it_was():
    parameters = [torch.nn.Parameter(torch.randn(5, 3)), torch.nn.Parameter(torch.randn(4))]
    optimizer = make_optimizer("fp32", parameters)
    states = []
    for gradient in (1.0, math.nan):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, gradient)
        optimizer.skips = optimizer.clip_grad_norm(0.0).isfinite().logical_not().float()
        optimizer.step()
        moments = [value.clone() for state in optimizer.optimizer.state.values() for value in state.values()]
        states.append([*(parameter.detach().clone() for parameter in parameters), *moments])
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)
    assert optimizer.skips is None


def trainer_with(norms, monkeypatch):
    """A trainer whose updates have these norms."""
    monkeypatch.setattr(late_reads, "may_read_late", lambda _: True)
    sections = {"common": {"log_interval": 100}, "optimization": {"lr": [0.1], "clip_norm": 0.0}}
    sections |= {"lr_scheduler": {}, "checkpoint": {"save_dir": "runs/x"}}
    sections["common"] |= {"fp16": False}
    cfg = SimpleNamespace(**{name: SimpleNamespace(**values) for name, values in sections.items()})
    optimizer, counts = SimpleNamespace(skips=None), iter(range(1000))
    trainer = SimpleNamespace(cfg=cfg, optimizer=optimizer, get_lr=lambda: 0.1, updates=0, logged=[])
    trainer.get_num_updates = lambda: trainer.updates

    def update():
        seen = late_reads.clip_grad_norm(lambda *_: torch.tensor(norms[next(counts)]), trainer, 0.0)
        assert not seen.is_cuda and seen.isfinite()
        trainer.updates += 1
        late_reads.reduce_and_log_stats(
            lambda *given: trainer.logged.append(given[1][0]["loss"]), trainer, [{"loss": torch.tensor(1.5)}], 1.0, seen
        )

    trainer.update = update
    return trainer


def test_the_update_after_one_that_diverged_ends_the_training(monkeypatch):
    trainer = trainer_with([1.0, 2.0, math.inf, 1.0], monkeypatch)
    for _ in range(3):
        trainer.update()
    assert trainer.optimizer.skips == 1.0
    refused("^Update 3: the gradients are NaN or infinite", trainer.update, error=FloatingPointError)


def test_no_checkpoint_is_written_after_an_update_that_diverged(monkeypatch):
    trainer = trainer_with([1.0, math.nan], monkeypatch)
    trainer.update(), trainer.update()
    written = []
    refused(
        "^Update 2", late_reads.save_checkpoint, lambda *_: written.append(1), None, trainer, error=FloatingPointError
    )
    assert written == [] and trainer.logged == [1.5, 1.5]


@pytest.mark.parametrize("size", [0.0, 7.0])
def test_a_sum_of_sample_sizes_divides_without_a_look_at_it(size, monkeypatch):
    monkeypatch.setattr(late_reads, "is_on_gpu", lambda _: True)
    given = torch.tensor(size, dtype=torch.float64)
    _, (found, number) = late_reads.aggregate_logging_outputs(lambda *_: ([], (given, 3)), None)
    quotient = 4 / (found or 1.0)
    assert quotient == 4 / (size or 1.0) and number == 3
