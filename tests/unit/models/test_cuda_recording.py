"""How torch's CUDA graphs are called, with a stand-in for torch.cuda that notes the calls."""

from contextlib import contextmanager
from unittest.mock import MagicMock

import pytest
import torch

from roberta_plugin.models.cuda_recording import CudaRecorder

GPU = torch.device("cuda", 1)


class FakeCuda:
    """Streams, and a list of what waits for what and what is recorded where."""

    def __init__(self):
        self.calls, self.streams, self.device_now = [], [], torch.device("cuda", 0)
        self.now = self.Stream("default")
        self.graph_pool_handle, self.CUDAGraph = object, MagicMock

    def Stream(self, device):  # noqa: N802  (as torch names it)
        stream = MagicMock(name=f"stream of {device}")
        stream.wait_stream = lambda other: self.calls.append(("waits", stream, other))
        self.streams.append(stream)
        return stream

    def current_stream(self):
        return self.now

    def set_stream(self, stream):
        self.now = stream

    @contextmanager
    def device(self, device):
        before, self.device_now = self.device_now, device
        yield
        self.device_now = before

    @contextmanager
    def stream(self, stream):
        before, self.now = self.now, stream
        try:
            yield
        finally:
            self.now = before

    @contextmanager
    def graph(self, graph, *, pool, stream, capture_error_mode):
        self.calls.append(("records", pool, stream, capture_error_mode, self.device_now))
        self.now = stream
        yield
        self.now = self.streams[0]  # as in torch, not after an error in the end of the recording


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


def test_all_recordings_share_one_memory_and_two_streams_on_the_device_of_the_layers(cuda):
    recorder = CudaRecorder(GPU)
    for _ in range(3):
        recorder.warm_up(lambda: None)
        recorder.record(lambda: None)
    assert len(cuda.streams) == 3, "the default one, one to warm up and one to record"
    recorded = [call for call in cuda.calls if call[0] == "records"]
    assert len(set(recorded)) == 1
    assert recorded[0][3:] == ("thread_local", GPU)


def test_a_warm_up_that_fails_is_waited_for_before_its_memory_is_used_again(cuda):
    recorder = CudaRecorder(GPU)
    default, warm_up = cuda.streams[:2]
    with pytest.raises(torch.OutOfMemoryError):
        recorder.warm_up(MagicMock(side_effect=[None, torch.OutOfMemoryError("CUDA out of memory")]))
    assert cuda.calls == [("waits", warm_up, default), ("waits", default, warm_up)]
    assert cuda.now is default


def test_a_recording_that_fails_leaves_the_current_stream(cuda):
    recorder = CudaRecorder(GPU)
    with pytest.raises(RuntimeError):
        recorder.record(MagicMock(side_effect=RuntimeError("cannot end")))
    assert cuda.now is cuda.streams[0]
