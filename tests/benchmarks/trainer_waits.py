"""Where an update of fairseq's own trainer waits for the GPU, counted on fake CUDA tensors for `count_gpu_step`."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.tasks import setup_task
from fairseq.trainer import Trainer
from typing_extensions import override

from roberta_plugin import register
from roberta_plugin.fairseq_workarounds import late_reads
from tests.fake_cuda import WaitError, Watch, fake_cuda, moved
from tests.tiny_corpus import train_command, write_data_bin

OPTIONS = ("--bf16", "--optimizer", "roberta_adamw", "--total-num-update", "9", "--log-interval", "100")
NUM_RANKS = 4


class Waits(Watch):
    """Notes where the host would wait, and lets it go on with ones."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def _check_waits(self, *given: Any) -> None:
        try:
            super()._check_waits(*given)
        except WaitError:
            frames = [Path(frame.filename) for frame in traceback.extract_stack()]
            lines = [frame.lineno for frame in traceback.extract_stack()]
            ours = [at for at, path in enumerate(frames) if {"fairseq", "roberta_plugin"} & set(path.parts)]
            self.places.append(f"{frames[ours[-1]].name}:{lines[ours[-1]]}")

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ == "_local_scalar_dense":
            self._check_waits("_local_scalar_dense", args, kwargs or {}, list(args))
            return True if args[0].dtype == torch.bool else 1.0
        return super().__torch_dispatch__(function, types, args, kwargs)


class Ones(late_reads.HostCopy):
    """A copy that has arrived; fake tensors have no numbers."""

    @override
    def read(self) -> list[float]:
        return [1.0] * self._numbers.numel()


@contextmanager
def as_rank(trainer: Trainer) -> Iterator[None]:
    """Let the trainer be one of several, whose sums are its own."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(Trainer, "data_parallel_world_size", NUM_RANKS))
        stack.enter_context(patch.object(distributed_utils, "all_reduce", lambda tensor, **_: tensor))
        trainer._grad_norm_buf = torch.zeros(NUM_RANKS, dtype=torch.double, device="cuda")
        yield


def waits_of_update(*, has_ranks: bool = False, reads_late: bool = True) -> list[str]:
    """Files and lines at which an ordinary update in bf16 waits, the third of a training; without `reads_late`, as in
    fairseq but for its log, which is read at once."""
    register()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        command = train_command(write_data_bin(Path(folder) / "data"), Path(folder) / "run", *OPTIONS)
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), command[1:]))
        task = setup_task(cfg.task)
        trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
        batches = trainer.get_train_iterator(1).next_epoch_itr()
        trainer.begin_epoch(1)
        samples = [next(batches) for _ in range(3)]
        mode = stack.enter_context(fake_cuda())
        moved(trainer._model, mode)
        trainer.device, trainer._optimizer, trainer._lr_scheduler = torch.device("cuda"), None, None
        trainer._num_updates = 1
        stack.enter_context(patch.object(late_reads, "HostCopy", Ones))
        if not reads_late:
            stack.enter_context(patch.object(late_reads, "is_gpu", lambda _: False))
        if has_ranks:
            stack.enter_context(as_rank(trainer))
        metrics.reset()
        stack.callback(metrics.reset)
        for sample in [moved(sample, mode) for sample in samples]:
            with Waits() as waits:
                trainer.train_step([sample])
    return [place for place, before in zip(waits.places, ["", *waits.places], strict=False) if place != before]
