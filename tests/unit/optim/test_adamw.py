"""AdamW against a plain float64 reference, states that move between fairseq's adam and ours, rates of layers."""

import copy
import logging
import math

import pytest
import torch
from fairseq import utils as fairseq_utils
from fairseq.optim import FP16Optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import (
    PolynomialDecayLRSchedule,
    PolynomialDecayLRScheduleConfig,
)
from omegaconf import OmegaConf

from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig, parse_betas, set_layer_depths
from roberta_plugin.optim.stages import LinearStages, LinearStagesConfig, parse, share_at
from tests.refusals import refused
from tests.tiny_models import fairseq_model, our_model


def make(cls, config, parameters, **options):
    cfg = OmegaConf.structured(config())
    OmegaConf.set_struct(cfg, False)
    given = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, **options}
    return cls(OmegaConf.merge(cfg, given), parameters)


def ours(*parameters, **options):
    return make(RobertaAdamW, RobertaAdamWConfig, list(parameters), **options)


def fairseqs(*parameters, **options):
    return make(FairseqAdam, FairseqAdamConfig, list(parameters), **options, tpu=False)


def new_parameter(**where):
    torch.manual_seed(9)
    return torch.nn.Parameter(torch.randn(5, 3, **where))


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


def test_updates_follow_the_formula_and_are_as_good_as_equal_to_fairseqs():
    parameter, theirs = new_parameter(), new_parameter()
    start = parameter.detach().clone()
    optimizer = ours(parameter, weight_decay=0.1)
    run(optimizer, parameter, range(20))
    assert torch.allclose(parameter.double(), reference(start, range(20)), atol=1e-6)
    run(optimizer, parameter, range(20, 50))
    run(fairseqs(theirs, weight_decay=0.1), theirs, range(50))
    assert torch.allclose(parameter, theirs, atol=1e-5)
    assert not torch.allclose(parameter, start, atol=0.05)


@pytest.mark.parametrize("source", [ours, fairseqs])
def test_a_saved_state_goes_on_exactly(source):
    parameter = new_parameter()
    start = parameter.detach().clone()
    first = source(parameter, weight_decay=0.1)
    run(first, parameter, range(10))
    second = ours(parameter, weight_decay=0.1)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.param_groups[0]["fused"]
    run(second, parameter, range(10, 20))
    assert torch.allclose(parameter.double(), reference(start, range(20)), atol=1e-5)


def test_a_state_has_the_same_entries_before_and_after_it_was_loaded():
    """Checkpoints of a run that was killed equal those of one that was not."""
    parameter = torch.nn.Parameter(torch.randn(5, 3))
    optimizer = ours(parameter)
    run(optimizer, parameter, range(2))
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(copy.deepcopy(state))
    assert optimizer.state_dict()["param_groups"] == state["param_groups"]


def test_betas_that_are_none_are_refused():
    for value in ("(0.9)", "0.9, 1.0", "(a, b)", [0.9, -0.1]):
        refused("--adam-betas must be two numbers", parse_betas, value)
    assert parse_betas("(0.9,0.98)") == parse_betas([0.9, 0.98]) == (0.9, 0.98)


@pytest.mark.parametrize("layers", [{}, {"layer_lr_decay": 0.5}], ids=["plain", "by layer"])
def test_norms_and_biases_do_not_decay_on_request(layers):
    torch.manual_seed(9)
    matrix, vector = torch.nn.Parameter(torch.randn(5, 3)), torch.nn.Parameter(torch.randn(5))
    for parameter in (matrix, vector):
        parameter.optim_overrides = {"layers_above": 0}
    start, given = copy.deepcopy((matrix, vector)), {"weight_decay": 0.1, "no_decay_norms_and_biases": True, **layers}
    optimizer = ours(vector, matrix, **given)
    for parameter in (matrix, vector):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.allclose(matrix, start[0] * (1 - 0.01 * 0.1))
    assert torch.equal(vector, start[1])

    run(optimizer, matrix, range(3))
    again = ours(vector, matrix, **given)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert [group["weight_decay"] for group in again.param_groups] == [0.1, 0.0]
    assert again.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    message = "--no-decay-norms-and-biases was given in one of the two"
    refused(message, ours(vector, matrix).load_state_dict, optimizer.state_dict())
    refused("--no-decay-norms-and-biases finds no matrix", ours, vector, **given)


def layered(num=3):
    """Parameters that tell 0, 1, 2 ... layers above them, in an order of their own."""
    torch.manual_seed(9)
    parameters = [torch.nn.Parameter(torch.randn(5, 3)) for _ in range(num)]
    for above, parameter in enumerate(parameters):
        parameter.optim_overrides = {"layers_above": above}
    return parameters[::-1]


def test_layers_learn_at_their_own_rates():
    """Each group follows the formula with its share of the rate, also after the schedule has set another."""
    parameters = layered()
    starts = [parameter.detach().clone() for parameter in parameters]
    optimizer = ours(*parameters, weight_decay=0.1, layer_lr_decay=0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.005, 0.0025]
    optimizer.set_lr(0.02)
    assert optimizer.get_lr() == pytest.approx(0.02)
    for step in range(5):
        for parameter in parameters:
            parameter.grad = gradients(step)
        optimizer.step()
    for above, parameter, start in zip((2, 1, 0), parameters, starts, strict=True):
        assert torch.allclose(parameter.double(), reference(start, range(5), lr=0.02 * 0.5**above), atol=1e-6)
    assert not torch.allclose(starts[0], parameters[0], atol=0.01)


def test_without_decay_there_is_one_group():
    optimizer = ours(*(torch.nn.Parameter(torch.randn(2)) for _ in range(3)))
    assert len(optimizer.param_groups) == 1 and len(optimizer.param_groups[0]["params"]) == 3
    assert optimizer.get_lr() == 0.01


def test_layer_rates_survive_a_checkpoint_and_follow_the_new_option_which_is_logged(caplog):
    caplog.set_level(logging.INFO)
    parameters = layered()
    optimizer = ours(*parameters, layer_lr_decay=0.5)
    for parameter in parameters:
        parameter.grad = gradients(0)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    for decay in (0.5, 0.1):
        resumed = ours(*parameters, layer_lr_decay=decay)
        resumed.load_state_dict(copy.deepcopy(state))
        assert ("--layer-lr-decay: shares" in caplog.text) == (decay == 0.1)
        resumed.set_lr(0.04)
        assert [group["lr"] for group in resumed.param_groups] == pytest.approx([0.04 * decay**n for n in range(3)])
        moments = [resumed.optimizer.state[parameter]["exp_avg"] for parameter in parameters]
        assert all(torch.equal(moment, moments[0]) and moment.any() for moment in moments)
    assert "--layer-lr-decay: shares of the learning rate are [1.0, 0.1," in caplog.text
    assert "before [1.0, 0.5, 0.25]" in caplog.text
    message = "has 3 groups of parameters and this one 1: --layer-lr-decay"
    refused(message, ours(*parameters).load_state_dict, state)


def test_parameters_without_a_layer_are_refused():
    parameters = [*layered(), torch.nn.Parameter(torch.randn(2))]
    refused("give --fp16-no-flatten-grads or --bf16", ours, *parameters, layer_lr_decay=0.9)


def test_master_copies_of_fairseqs_wrapper_keep_their_layer():
    """What --bf16 and --fp16-no-flatten-grads do to parameters."""
    copies = FP16Optimizer.build_fp32_params(None, layered(), flatten=False)
    optimizer = ours(*copies, layer_lr_decay=0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.005, 0.0025]
    assert optimizer.param_groups[0]["params"][0] is copies[-1]


def trained(make=ours, **options):
    parameter = new_parameter()
    optimizer = make(parameter, **options)
    run(optimizer, parameter, range(3))
    return parameter, copy.deepcopy(optimizer.state_dict())


def test_options_given_at_a_resume_take_effect_and_are_logged(caplog):
    parameter, state = trained(weight_decay=0.1)
    resumed = ours(parameter, weight_decay=0.5, adam_betas="(0.5, 0.6)", adam_eps=1e-3)
    with caplog.at_level(logging.INFO):
        resumed.load_state_dict(state)
    group = resumed.param_groups[0]
    assert (group["weight_decay"], group["betas"], group["eps"]) == (0.5, (0.5, 0.6), 1e-3)
    assert "--weight-decay is 0.5 from here on; the checkpoint was trained with 0.1." in caplog.text
    assert "--adam-betas is (0.5, 0.6) from here on; the checkpoint was trained with (0.9, 0.98)." in caplog.text
    assert "--adam-eps is 0.001 from here on; the checkpoint was trained with 1e-06." in caplog.text
    before = parameter.detach().double()
    resumed.set_lr(0.01)
    parameter.grad = torch.zeros(5, 3)
    for moments in resumed.optimizer.state.values():
        moments["exp_avg"].zero_()
    resumed.step()
    assert torch.allclose(parameter.double(), before * (1 - 0.01 * 0.5), rtol=1e-6)


def test_the_same_options_are_not_logged_and_overrides_win(caplog):
    parameter, state = trained(weight_decay=0.1)
    resumed = ours(parameter, weight_decay=0.1)
    with caplog.at_level(logging.INFO):
        resumed.load_state_dict({**state, "param_groups": [{**state["param_groups"][0], "betas": [0.9, 0.98]}]})
    assert not caplog.text
    resumed.load_state_dict(state, {"weight_decay": 0.7})
    assert resumed.param_groups[0]["weight_decay"] == 0.7


@pytest.mark.parametrize("source", [ours, fairseqs, "fairseq with apex"])
def test_step_counters_lie_where_the_parameters_are(source):
    """The fused kernel of a GPU reads them there. Parameters without memory stand for those on another device."""
    _, state = trained(ours if source is ours else fairseqs)
    if source == "fairseq with apex":  # whose version keeps one counter a group, and none a parameter
        for moments in state["state"].values():
            state["param_groups"][0]["step"] = moments.pop("step")
    optimizer = ours(torch.nn.Parameter(torch.zeros(5, 3)))
    parameter = torch.nn.Parameter(torch.empty(5, 3, device="meta"))
    optimizer.param_groups[0]["params"] = [parameter]
    optimizer.load_state_dict(state)
    moments = optimizer.optimizer.state[parameter]
    places = {name: tensor.device.type for name, tensor in moments.items()}
    assert places == dict.fromkeys(("step", "exp_avg", "exp_avg_sq"), "meta")
    here = torch.nn.Parameter(torch.zeros(5, 3))
    optimizer = ours(here)
    optimizer.load_state_dict(state)
    assert optimizer.optimizer.state[here]["step"].item() == 3
    assert "step" not in optimizer.param_groups[0]
    run(optimizer, here, [3])
    assert optimizer.optimizer.state[here]["step"].item() == 4


@pytest.mark.parametrize("max_norm", [0.0, 0.5, 1e9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_clipped_as_fairseq_clips_them(max_norm, dtype):
    parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in ((5, 3), (7,), (2, 2, 2))]
    without = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)).to(dtype)
    theirs = copy.deepcopy(parameters)
    for parameter, same in zip(parameters, theirs, strict=True):
        same.grad = parameter.grad.clone()
    optimizer = ours(*parameters, without)
    found, expected = optimizer.clip_grad_norm(max_norm), fairseq_utils.clip_grad_norm_([*theirs, without], max_norm)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    for parameter, same in zip(parameters, theirs, strict=True):
        torch.testing.assert_close(parameter.grad, same.grad)
    doubled, smaller = optimizer.clip_grad_norm(max_norm, lambda norm: 2 * norm), min(float(found), max_norm or 1e9)
    assert doubled == pytest.approx(2 * smaller, rel=1e-2)
    optimizer.zero_grad()
    assert optimizer.clip_grad_norm(max_norm) == 0


@pytest.mark.parametrize("scale", [4.0, torch.tensor(4.0)], ids=["number", "tensor"])
def test_the_step_divides_gradients_by_a_scale(scale):
    parameter = new_parameter()
    start = parameter.detach().clone()
    optimizer = ours(parameter, weight_decay=0.1)
    for step in range(6):
        parameter.grad = 4 * gradients(step)
        optimizer.step(scale=scale)
    assert torch.allclose(parameter.double(), reference(start, range(6)), atol=1e-6)
    assert not hasattr(optimizer.optimizer, "grad_scale")


@pytest.mark.gpu
@pytest.mark.parametrize("source", [ours, fairseqs])
def test_a_state_goes_on_on_a_gpu(source, gpu):
    """Step counters too: the fused kernel reads them there."""
    parameter = new_parameter(device=gpu)
    start = parameter.detach().cpu().clone()
    first, second = source(parameter, weight_decay=0.1), ours(parameter, weight_decay=0.1)
    for optimizer, steps in ((first, range(10)), (second, range(10, 20))):
        for step in steps:
            parameter.grad = gradients(step).to(gpu)
            optimizer.clip_grad_norm(0.0)
            optimizer.step()
        second.load_state_dict(copy.deepcopy(first.state_dict())) if optimizer is first else None
    assert second.optimizer.state[parameter]["step"].device.type == torch.device(gpu).type
    assert torch.allclose(parameter.detach().cpu().double(), reference(start, range(20)), atol=1e-5)


@pytest.mark.parametrize("make", [our_model, fairseq_model])
def test_heads_are_on_top_and_embeddings_at_the_bottom(make):
    model = make()
    model.register_classification_head("head", num_classes=2)
    set_layer_depths(model)
    above = {name: parameter.optim_overrides["layers_above"] for name, parameter in model.named_parameters()}
    layer = "encoder.sentence_encoder.layers.{}.fc1.weight"
    assert [above[layer.format(number)] for number in range(3)] == [3, 2, 1]
    assert above["encoder.sentence_encoder.embed_positions.weight"] == 4
    assert above["encoder.sentence_encoder.embed_tokens.weight"] == 4
    (head,) = (name for name in above if name.endswith("heads.head.dense.weight"))
    assert above[head] == above["encoder.lm_head.dense.weight"] == 0
    assert set(above.values()) == {0, 1, 2, 3, 4}


def test_moving_a_model_and_copying_its_parameters_keeps_what_was_told():
    model = our_model()
    set_layer_depths(model)
    model.bfloat16()
    parameters = list(model.parameters())
    copies = FP16Optimizer.build_fp32_params(None, parameters, flatten=False)
    assert [copy.optim_overrides for copy in copies] == [parameter.optim_overrides for parameter in parameters]
    assert len({copy.optim_overrides["layers_above"] for copy in copies}) == 5


def rates(schedule, config, *, of):
    """The rate of each update, as fairseq's trainer sets it."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    cfg = OmegaConf.structured(RobertaAdamWConfig)
    cfg.lr = [1.5e-3]
    optimizer = RobertaAdamW(cfg, [parameter])
    made = schedule(config, optimizer)
    made.step_begin_epoch(1)
    found = []
    for update in range(1, of + 1):
        found.append(optimizer.get_lr())
        made.step_update(update)
    return found


def stages(text, **options):
    cfg = LinearStagesConfig(lr_stages=text, **options)
    cfg.lr = [1.5e-3]
    return cfg


def test_a_warm_up_and_a_linear_decay_are_those_of_polynomial_decay():
    theirs = PolynomialDecayLRScheduleConfig(warmup_updates=30, total_num_update=200)
    theirs.lr = [1.5e-3]
    expected = rates(PolynomialDecayLRSchedule, theirs, of=205)
    assert rates(LinearStages, stages("30:1 200:0"), of=205) == pytest.approx(expected, rel=1e-12, abs=1e-18)


def test_a_constant_rate_jumps_and_the_last_stage_may_fall_by_the_square_root():
    points = parse("10:0.5 20:0.5 20:1, 30:1 50:0")
    for shape, updates, expected in (
        ({}, (5, 10, 19, 20, 29, 40, 50, 99), [0.25, 0.5, 0.5, 1, 1, 0.5, 0, 0]),
        ({"shape": "1-sqrt"}, (5, 20, 30, 35, 50), [0.25, 1, 1, 1 - math.sqrt(0.25), 0]),
    ):
        assert [share_at(points, update, **shape) for update in updates] == pytest.approx(expected)


def test_other_stages_are_refused_by_word():
    texts = {"": "missing", "1000": "'1000'", "10:1 x:0": "'x:0'", "10:-1": "'10:-1'", "20:1 10:0": "10:0"}
    for text, named in texts.items():
        assert named in refused("--lr-stages", parse, text)


def test_a_rate_for_each_epoch_is_refused():
    cfg = stages("10:1")
    LinearStages.check_options(cfg)
    cfg.lr = [1e-3, 2e-3]
    refused(r"--lr 0\.001,0\.002.*--lr-stages", LinearStages.check_options, cfg)
