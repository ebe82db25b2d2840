"""What is logged comes to the host at once, with the same values."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roberta_plugin.fairseq_workarounds.log_transfers import on_host


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
    outputs = [
        {"loss": torch.tensor(1.5), "ntokens": 7, "rows": rows},
        {"loss": torch.tensor(2.5), "n": torch.tensor(3)},
    ]
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
