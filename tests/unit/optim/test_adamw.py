"""AdamW against a plain float64 reference, and states that move between fairseq's adam and ours."""

import copy
import math

import pytest
import torch
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig, parse_betas


def make(cls, config, parameters, **options):
    cfg = OmegaConf.structured(config())
    OmegaConf.set_struct(cfg, False)
    return cls(
        OmegaConf.merge(cfg, {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, **options}), parameters
    )


def gradients(step):
    torch.manual_seed(step)
    return torch.randn(5, 3)


def run(optimizer, parameter, steps):
    for step in steps:
        parameter.grad = gradients(step)
        optimizer.step()


def reference(start, steps, *, lr=0.01, betas=(0.9, 0.98), eps=1e-6, decay=0.1):
    """Algorithm 1 of Kingma & Ba with decoupled decay, in float64."""
    value, first, second = start.double(), torch.zeros(5, 3).double(), torch.zeros(5, 3).double()
    for step in steps:
        gradient = gradients(step).double()
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
        corrected_first = first / (1 - betas[0] ** (step + 1))
        corrected_second = second / (1 - betas[1] ** (step + 1))
        value = value - lr * decay * value - lr * corrected_first / (corrected_second.sqrt() + eps)
    return value


def test_updates_follow_the_formula():
    torch.manual_seed(9)
    parameter = torch.nn.Parameter(torch.randn(5, 3))
    start = parameter.detach().clone()
    run(make(RobertaAdamW, RobertaAdamWConfig, [parameter], weight_decay=0.1), parameter, range(20))
    assert torch.allclose(parameter.double(), reference(start, range(20)), atol=1e-6)
    assert not torch.allclose(parameter, start, atol=0.05)


def test_it_is_as_good_as_equal_to_fairseqs_adam():
    torch.manual_seed(9)
    ours = torch.nn.Parameter(torch.randn(5, 3))
    theirs = copy.deepcopy(ours)
    run(make(RobertaAdamW, RobertaAdamWConfig, [ours], weight_decay=0.1), ours, range(50))
    run(make(FairseqAdam, FairseqAdamConfig, [theirs], weight_decay=0.1, tpu=False), theirs, range(50))
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("source", ["ours", "fairseq"])
def test_a_saved_state_goes_on_exactly(source):
    torch.manual_seed(9)
    parameter = torch.nn.Parameter(torch.randn(5, 3))
    start = parameter.detach().clone()
    if source == "ours":
        first = make(RobertaAdamW, RobertaAdamWConfig, [parameter], weight_decay=0.1)
    else:
        first = make(FairseqAdam, FairseqAdamConfig, [parameter], weight_decay=0.1, tpu=False)
    run(first, parameter, range(10))
    second = make(RobertaAdamW, RobertaAdamWConfig, [parameter], weight_decay=0.1)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.param_groups[0]["fused"]
    run(second, parameter, range(10, 20))
    assert torch.allclose(parameter.double(), reference(start, range(20)), atol=1e-5)


@pytest.mark.parametrize("value", ["(0.9)", "0.9, 1.0", "(a, b)", [0.9, -0.1]])
def test_betas_that_are_none_are_refused(value):
    with pytest.raises(ValueError, match="--adam-betas must be two numbers"):
        parse_betas(value)
    assert parse_betas("(0.9,0.98)") == parse_betas([0.9, 0.98]) == (0.9, 0.98)
    assert not math.isclose(*parse_betas("(0.9,0.98)"))
