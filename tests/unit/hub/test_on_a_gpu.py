"""What the hub reads of a model, on a CUDA device without values: no device is mixed."""

import pytest
import torch

from roberta_plugin.hub import running
from roberta_plugin.hub.batching import Batch
from tests.fake_cuda import Watch, fake_cuda, moved
from tests.tiny_models import make_batch, our_model

LENGTHS = (17, 9, 1, 13)
READERS = {
    "features": running.features,
    "first": running.first_features,
    "classes": lambda model, batch: running.head_outputs(model, batch, "task"),
    "spans": lambda model, batch: running.head_outputs(model, batch, "span"),
    "tags": lambda model, batch: running.head_outputs(model, batch, "tags"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("what", READERS)
def test_what_is_read_is_on_the_device_of_the_model(what, dtype):
    model, tokens = our_model(), make_batch(LENGTHS)[0]
    model.register_classification_head("task", num_classes=3)
    model.register_head("span", "span")
    model.register_head("tags", "token", num_classes=2)
    with fake_cuda() as mode, Watch(may_wait=True), torch.inference_mode():
        batch = Batch(moved(tokens, mode), list(LENGTHS), list(range(4)))
        found = READERS[what](moved(model, mode, dtype).eval(), batch)
    for tensor in found if isinstance(found, tuple | list) else [found]:
        assert tensor.device.type == "cuda"
