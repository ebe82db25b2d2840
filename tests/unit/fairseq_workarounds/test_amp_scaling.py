"""Under --amp the optimizer gets the true gradients, skips those that overflow, and keeps the loss scale."""

import copy

import pytest
import torch
from fairseq.optim import AMPOptimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.unit.optim.test_adamw import make, reference

# fairseq asks for a scaler of a GPU first.
pytestmark = pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled:UserWarning")
SCALE = 128.0


@pytest.fixture(params=[(RobertaAdamW, RobertaAdamWConfig), (FairseqAdam, FairseqAdamConfig)], ids=["ours", "fairseq"])
def build(request):
    """A wrapper as --amp builds it, with torch's scaler for the CPU."""

    def build(parameter):
        optimizer = make(
            *request.param, [parameter], weight_decay=0.1, **({"tpu": False} if "F" in optimizer_name else {})
        )
        cfg = OmegaConf.create({"common": {"fp16_init_scale": SCALE, "min_loss_scale": 1e-4}, "optimizer": {}})
        amp = AMPOptimizer(cfg, [parameter], optimizer)
        amp._grad_scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=3)
        return amp

    optimizer_name = request.param[0].__name__
    return build


def update(amp, parameter, step, *, overflow=False):
    amp.zero_grad()
    torch.manual_seed(step)
    gradient = torch.randn(5, 3)
    amp.backward((parameter * gradient).sum())
    if overflow:
        parameter.grad[0, 0] = float("inf")
    norm = amp.clip_grad_norm(0.0)
    seen = parameter.grad.clone()
    amp.step()
    return gradient, seen, norm


def test_the_gradient_that_reaches_the_optimizer_is_the_true_one(build):
    parameter = torch.nn.Parameter(torch.zeros(5, 3))
    amp = build(parameter)
    for step in range(8):
        gradient, seen, norm = update(amp, parameter, step)
        assert torch.allclose(seen, gradient, rtol=1e-6)
        assert torch.allclose(parameter.grad, gradient, rtol=1e-6)
        assert norm == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert amp.scaler.get_scale() == SCALE * 4, "the scale never grew: the test shows less than it says"
    assert torch.allclose(parameter.double(), reference(torch.zeros(5, 3), range(8)), atol=1e-4)


def test_an_overflow_changes_nothing_but_the_scale(build):
    parameter = torch.nn.Parameter(torch.zeros(5, 3))
    amp = build(parameter)
    update(amp, parameter, 0)
    before = parameter.detach().clone()
    update(amp, parameter, 1, overflow=True)
    assert torch.equal(parameter, before)
    assert amp.scaler.get_scale() == SCALE / 2
    update(amp, parameter, 1)
    assert torch.allclose(parameter.double(), reference(torch.zeros(5, 3), range(2)), atol=1e-4)


def test_the_loss_scale_survives_a_checkpoint(build):
    parameter = torch.nn.Parameter(torch.zeros(5, 3))
    amp = build(parameter)
    for step in range(4):
        update(amp, parameter, step)
    state = copy.deepcopy(amp.state_dict())
    other = torch.nn.Parameter(parameter.detach().clone())
    resumed = build(other)
    resumed.load_state_dict(state, {})
    for step in range(4, 8):
        update(amp, parameter, step)
        update(resumed, other, step)
        assert resumed.scaler.get_scale() == amp.scaler.get_scale() > SCALE
    assert torch.equal(parameter, other)
    del state["grad_scaler"]
    resumed.load_state_dict(state, {})  # a checkpoint from before
