"""No part of a training step waits for a GPU to learn a value.

On torch's meta device tensors have shapes and no values: whatever would read one raises. It takes the paths of a GPU,
since it is not a CPU.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.fairseq_workarounds.log_output import on_host
from roberta_plugin.models import attention_kernels
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.tiny_models import gathered, make_batch, our_model
from tests.unit.fairseq_workarounds.test_log_output import Waits
from tests.unit.models.test_encoder import packed_batch
from tests.unit.optim.test_adamw import make


def to_meta(value):
    if isinstance(value, dict):
        return {name: to_meta(entry) for name, entry in value.items()}
    return value.to("meta") if torch.is_tensor(value) else value


def make_sample(kind, lengths=(17, 9, 1, 13)):
    """A batch as the loader makes it: padded, without padding, or packed."""
    tokens, masked, targets = make_batch((15, 15, 15) if kind == "full" else lengths)
    predicted, net_input = gathered(masked, targets), {"src_tokens": tokens, "has_padding": kind == "padded"}
    if kind == "packed":
        row, packing, of_row = packed_batch(tokens, masked, targets, multiple=64)
        predicted, net_input = {**of_row, "number": len(targets)}, {"src_tokens": row, "packing": packing}
    sizes = {"ntokens": int(tokens.ne(1).sum()), "nsentences": len(tokens), "npairs": 500}
    return {"net_input": net_input, "predicted": predicted, "target": net_input["src_tokens"], **sizes}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["padded", "full", "packed"])
def test_forward_backward_loss_and_step_read_no_value(kind, dtype, monkeypatch):
    monkeypatch.setattr(attention_kernels.TorchFlashAttention, "assert_supported", lambda *_, **__: None)
    dtype = torch.bfloat16 if kind == "packed" else dtype
    backend = "torch_flash" if kind == "packed" else "sdpa"
    model = our_model(attention_backend=backend, dropout=0.1, attention_dropout=0.1).to(dtype).to("meta").train()
    criterion = RobertaMaskedLMCriterion(SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1)))
    loss, _, log = criterion(model, to_meta(make_sample(kind)))
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    on_device = [name for name, value in log.items() if torch.is_tensor(value)]
    assert on_device == ["loss"], "more to bring to the host than there has to be"
    with pytest.raises((RuntimeError, NotImplementedError)):
        float(loss.detach())


@pytest.mark.parametrize("max_norm", [0.0, 1.0])
def test_the_norm_and_the_step_of_the_optimizer_read_no_value(max_norm):
    """Counted on a CPU: torch's fused step has no version for tensors without values."""
    parameter = torch.nn.Parameter(torch.randn(5, 3))
    optimizer = make(RobertaAdamW, RobertaAdamWConfig, [parameter])
    for scale in (1.0, 4.0, torch.tensor(4.0)):
        parameter.grad = torch.randn(5, 3)
        with Waits() as waits:
            optimizer.clip_grad_norm(max_norm)
            optimizer.step(scale=scale)
        assert waits.found == []


def test_our_logging_reads_no_value_once_all_are_on_the_host():
    model = our_model().train()
    criterion = RobertaMaskedLMCriterion(SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1)))
    outputs = [criterion(model, make_sample("padded"))[2] for _ in range(2)]
    with Waits() as waits, metrics.aggregate(new_root=True) as meters:
        criterion.reduce_metrics(on_host(outputs))
        found = meters.get_smoothed_values()
    assert waits.found == []
    expected = sum(output["loss"].item() for output in outputs) / sum(output["sample_size"] for output in outputs)
    assert found["loss"] == pytest.approx(expected / math.log(2), abs=1e-3)
