"""The copy of a state writes the bytes that the state itself would have written."""

import collections
import io

import pytest
import torch

from roberta_plugin.fairseq_workarounds import host_copy
from roberta_plugin.fairseq_workarounds.host_copy import HostMemory


def saved(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def a_state():
    """Views, shared and empty tensors, several types, all containers."""
    flat = torch.randn(1000)
    tied = torch.randn(7, 5)
    return {
        "model": collections.OrderedDict(a=flat[:600].view(20, 30), b=flat[600:], tied=tied, head=tied, t=tied.t()),
        "optimizer": {"state": {0: {"step": torch.tensor(3), "m": torch.randn(33).bfloat16()}}, "lr": [1e-3]},
        "rest": (torch.zeros(0), torch.tensor([True, False]), {torch.tensor(5)}, "text", None),
    }


def test_the_copy_is_saved_in_the_same_bytes():
    state = a_state()
    assert saved(HostMemory().copy(state)) == saved(state)


def test_the_copy_keeps_what_was_and_the_state_goes_on():
    state = a_state()
    before = saved(state)
    copied = HostMemory().copy(state)
    for tensor in (*state["model"].values(), state["optimizer"]["state"][0]["m"]):
        tensor.add_(1)
    assert saved(state) != before
    assert saved(copied) == before


def test_memory_is_kept_for_the_next_copy_and_grows_where_it_must():
    memory, state = HostMemory(), {"weight": torch.randn(300, 40), "bias": torch.randn(300)}
    memory._reserve(state)
    size = memory.size
    first, second = memory.copy(state), memory.copy({**state, "bias": torch.zeros(300)})
    assert size >= sum(tensor.nbytes for tensor in state.values())
    assert (memory.size, first["weight"].data_ptr()) == (size, second["weight"].data_ptr())
    assert not second["bias"].any()
    larger = {**state, "more": torch.randn(5000)}
    assert saved(memory.copy(larger)) == saved(larger)
    assert memory.size > size


def test_tensors_that_are_not_bytes_in_a_row_are_copied_too():
    sparse = torch.eye(3).to_sparse()
    copied = HostMemory().copy({"sparse": sparse})["sparse"]
    sparse.mul_(2)
    assert torch.equal(copied.to_dense(), torch.eye(3))


def test_memory_that_is_not_there_is_asked_for_by_name():
    with pytest.raises(MemoryError, match=r"1152921504\.6 GB of host memory.*leave out --background-checkpoints"):
        host_copy._allocate(2**60)


@pytest.mark.gpu
def test_a_gpus_state_comes_into_page_locked_memory(gpu):
    state = {"weight": torch.randn(300, 40, device=gpu, dtype=torch.bfloat16), "step": torch.tensor(3.0)}
    copied = HostMemory().copy(state)
    assert copied["weight"].device.type == "cpu"
    assert copied["weight"].is_pinned()
    assert torch.equal(copied["weight"], state["weight"].cpu())
    assert copied["step"] == 3
