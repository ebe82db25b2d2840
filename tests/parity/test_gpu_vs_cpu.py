"""A training step on a GPU beside the same one on a CPU in fp32: every precision, padded and packed, recomputed or not."""

import pytest
import torch

from tests.tiny_models import gathered, make_batch, on_device, our_model
from tests.unit.models.test_encoder import packed_batch

SIZES = {"encoder_embed_dim": 64, "encoder_attention_heads": 4}
TOLERANCES = {"fp32": 1e-3, "bf16": 0.06, "fp16": 0.02, "amp": 0.06}


def step(device, *, precision, kind, dropout=0.0, **options):
    """The loss and all gradients, fp32, on the CPU."""
    model = our_model(**SIZES, dropout=dropout, attention_dropout=dropout, **options)
    model = model.to({"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)).to(device).train()
    tokens, masked, targets = make_batch((15, 15, 15) if kind == "full" else (17, 9, 1, 13))
    predicted, layout = gathered(masked, targets), {"has_padding": kind == "padded"}
    if kind == "packed":
        tokens, packing, predicted = packed_batch(tokens, masked, targets, multiple=64)
        layout = {"packing": on_device(packing, device)}
    predicted = on_device(predicted, device)
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "amp"):
        loss, _ = model(tokens.to(device), predicted=predicted, **layout)
    loss.backward()
    return loss.item(), [parameter.grad.float().cpu() for parameter in model.parameters()]


@pytest.mark.gpu
@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("kind", ["padded", "full", "packed"])
@pytest.mark.parametrize("precision", TOLERANCES)
def test_a_step_agrees_with_fp32_on_a_cpu(precision, kind, recompute, gpu):
    if precision == "fp16" and gpu == "cpu":
        pytest.skip("fp16 is for GPUs")
    expected, gradients = step("cpu", precision="fp32", kind=kind, attention_backend="eager")
    found, theirs = step(gpu, precision=precision, kind=kind, checkpoint_activations=recompute)
    assert found == pytest.approx(expected, rel=TOLERANCES[precision])
    for one, other in zip(theirs, gradients, strict=True):
        # the gradient of a key's bias is 0 but for rounding
        assert float((one - other).norm()) <= TOLERANCES[precision] * float(other.norm()) + 0.02 * len(other) ** 0.5
    assert sum(float(gradient.norm()) > 1 for gradient in gradients) > 20


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["padded", "full", "packed"])
def test_dropout_in_bf16_keeps_the_loss(kind, gpu):
    expected, _ = step("cpu", precision="fp32", kind=kind)
    torch.manual_seed(1)
    losses = [step(gpu, precision="bf16", kind=kind, dropout=0.1)[0] for _ in range(8)]
    assert sum(losses) / len(losses) == pytest.approx(expected, rel=0.3)


@pytest.mark.gpu
def test_a_classification_head_on_a_gpu(gpu):
    results = []
    for device in ("cpu", gpu):
        model = our_model(**SIZES)
        torch.manual_seed(3)
        model.register_classification_head("task", num_classes=3)
        logits = model.to(device)(make_batch()[0].to(device), head="task", has_padding=True)[0]
        logits.logsumexp(1).sum().backward()
        results.append([logits.detach().cpu(), model.classification_heads["task"].dense.weight.grad.cpu()])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
