"""Trainings in half precision resume in the same bits, add up gradients in fp32, and see the true ones under --amp."""

import copy
import io
import logging

import pytest
import torch
from fairseq import utils
from fairseq.dataclass.configs import FairseqConfig
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer, fp16_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from roberta_plugin.fairseq_workarounds import half_precision
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.unit.optim.test_adamw import make, reference

STEPS = 26
OVERFLOWS = (3, 10, 17)
KINDS = {
    "bf16": (FP16Optimizer, {"bf16": True}),
    "fp16": (FP16Optimizer, {"fp16": True}),
    "fp16, not flattened": (FP16Optimizer, {"fp16": True, "fp16_no_flatten_grads": True}),
    "memory-efficient bf16": (MemoryEfficientFP16Optimizer, {"bf16": True, "memory_efficient_bf16": True}),
    "memory-efficient fp16": (MemoryEfficientFP16Optimizer, {"fp16": True, "memory_efficient_fp16": True}),
}
OPTIMIZERS = {"adam": FairseqAdamConfig, "roberta_adamw": RobertaAdamWConfig}


@pytest.fixture(autouse=True)
def flat_parameters_on_the_cpu(monkeypatch):
    """fairseq lays flat fp32 parameters onto the current GPU: the index of the CPU is None."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)


class Training:
    """Made-up gradients, scaled as the loss is, through fairseq's wrapper; some overflow."""

    def __init__(self, kind, optimizer="roberta_adamw", *, weights=None, **options):
        wrapper, common = KINDS[kind]
        cfg = OmegaConf.structured(FairseqConfig)
        OmegaConf.set_struct(cfg, False)
        cfg.common = OmegaConf.merge(cfg.common, common, {"fp16_scale_window": 4, "fp16_init_scale": 8})
        values = {"_name": optimizer, "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.1, **options}
        settings = OmegaConf.structured(OPTIMIZERS[optimizer])
        OmegaConf.set_struct(settings, False)
        cfg.optimizer = OmegaConf.merge(settings, {**values, "lr": [1e-2]})
        if optimizer == "adam":
            cfg.optimizer.tpu = False
        torch.manual_seed(0)
        self.dtype = torch.bfloat16 if "bf16" in kind else torch.float16
        starts = weights or [torch.randn(40, 30), torch.randn(30), torch.randn(7, 5)]
        self.parameters = [torch.nn.Parameter(start.to(self.dtype)) for start in starts]
        self.optimizer = wrapper.build_optimizer(cfg, self.parameters)

    def run(self, steps):
        for step in steps:
            scaler = self.optimizer.scaler
            self.optimizer.zero_grad()
            generator = torch.Generator().manual_seed(step)
            gradients = [torch.randn(p.shape, generator=generator).to(self.dtype) for p in self.parameters]
            # The loss whose gradients these are; the wrapper scales it.
            self.optimizer.backward(sum((p * g).sum() for p, g in zip(self.parameters, gradients, strict=True)))
            if scaler and step in OVERFLOWS:
                self.parameters[0].grad[0] = float("inf")
            self.optimizer.multiply_grads(1 / 3)
            try:
                self.optimizer.clip_grad_norm(0.0)
                self.optimizer.step()
            except OverflowError:
                assert step in OVERFLOWS
        return self

    def saved(self):
        """Weights and the optimizer's state as a checkpoint brings them back."""
        file = io.BytesIO()
        state = {"model": self.parameters, "optimizer": self.optimizer.state_dict()}
        torch.save(utils.move_to_cpu(state), file)
        file.seek(0)
        return torch.load(file)

    def resumed(self, kind, optimizer="roberta_adamw", **options):
        saved = self.saved()
        other = Training(kind, optimizer, weights=[weight.detach() for weight in saved["model"]], **options)
        other.optimizer.load_state_dict(saved["optimizer"], {})
        return other

    def everything(self):
        state = self.saved()
        tensors = list(state["model"]) + state["optimizer"].get("fp32_params", [])
        for moments in state["optimizer"]["state"].values():
            tensors += [torch.as_tensor(moments[name]) for name in ("step", "exp_avg", "exp_avg_sq")]
        scaler = self.optimizer.scaler
        return tensors, {} if scaler is None else dict(vars(scaler))


def assert_same_bits(one, other):
    assert len(one[0]) == len(other[0]) > 6
    assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    assert one[1] == other[1]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_training_goes_on_in_the_same_bits(kind, optimizer):
    """Resumed right after an overflow, in the middle of a window of the loss scale, and after it has grown."""
    whole = Training(kind, optimizer).run(range(STEPS))
    parts = Training(kind, optimizer)
    for begin, end in ((0, 6), (6, 11), (11, 16), (16, STEPS)):
        parts = parts.run(range(begin, end)).resumed(kind, optimizer)
    assert_same_bits(whole.everything(), parts.everything())
    scaler = whole.optimizer.scaler
    assert scaler is None or scaler.loss_scale != 8, "the loss scale never changed: the test shows less than it says"


@pytest.mark.parametrize("kind", ["bf16", "fp16", "fp16, not flattened"])
def test_without_the_masters_it_would_not(kind, caplog):
    """The guard of the test above; and what a checkpoint from before does: it loads, and the log says what is lost."""
    whole = Training(kind).run(range(STEPS))
    saved = Training(kind).run(range(12)).saved()
    assert saved["optimizer"].pop("fp32_params")
    second = Training(kind, weights=[weight.detach() for weight in saved["model"]])
    with caplog.at_level(logging.WARNING):
        second.optimizer.load_state_dict(saved["optimizer"])
    assert "has no fp32 master weights" in caplog.text
    masters = torch.cat([master.flatten() for master in second.saved()["optimizer"]["fp32_params"]])
    assert torch.equal(masters, torch.cat([weight.float().flatten() for weight in second.parameters]))
    second.run(range(12, STEPS))
    assert not torch.equal(whole.saved()["optimizer"]["fp32_params"][0], second.saved()["optimizer"]["fp32_params"][0])
    for one, other in zip(whole.parameters, second.parameters, strict=True):
        assert torch.allclose(one.float(), other.float(), atol=0.05)


@pytest.mark.parametrize("kind", ["bf16", "fp16", "memory-efficient bf16"])
def test_masters_of_other_weights_are_not_put_over_them(kind, caplog):
    """Someone has averaged or edited the model of a checkpoint: its weights count."""
    saved = Training(kind).run(range(3)).saved()
    changed = [weight.detach() * 1.25 for weight in saved["model"]]
    other = Training(kind, weights=changed)
    with caplog.at_level(logging.WARNING):
        other.optimizer.load_state_dict(saved["optimizer"])
    assert "do not match its model weights" in caplog.text
    kept = [weight.to(other.dtype) for weight in changed]
    assert all(torch.equal(p, weight) for p, weight in zip(other.parameters, kept, strict=True))
    masters = torch.cat([master.flatten() for master in other.saved()["optimizer"]["fp32_params"]])
    assert torch.equal(masters, torch.cat([weight.float().flatten() for weight in kept]))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_memory_efficient_training_makes_the_same_updates(precision, monkeypatch):
    """Bit for bit those of the ordinary path, whatever part of the parameters is dealt with at a time."""
    from roberta_plugin.optim import adamw

    ordinary = Training(f"{precision}, not flattened" if precision == "fp16" else precision).run(range(STEPS))
    for numbers in (1, 1230, 10**9):
        monkeypatch.setattr(adamw, "_NUMBERS_AT_A_TIME", numbers)
        efficient = Training(f"memory-efficient {precision}").run(range(STEPS))
        assert_same_bits(ordinary.everything(), efficient.everything())
    assert all(parameter.grad.dtype == efficient.dtype for parameter in efficient.parameters)
    assert all(master.grad is None for master in efficient.optimizer.wrapped_optimizer.param_groups[0]["params"])


def test_memory_efficient_updates_agree_with_float64():
    """bf16 weights alone would lose nearly every one of these updates: a rate of 1e-4."""
    training = Training("memory-efficient bf16")
    training.optimizer.set_lr(1e-4)
    start = [parameter.detach().double() for parameter in training.parameters]
    first = [torch.zeros_like(value) for value in start]
    second = [torch.zeros_like(value) for value in start]
    training.run(range(STEPS))
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        for i, value in enumerate(start):
            gradient = torch.randn(value.shape, generator=generator).bfloat16().double() / 3
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.98 * second[i] + 0.02 * gradient**2
            mean, square = first[i] / (1 - 0.9 ** (step + 1)), second[i] / (1 - 0.98 ** (step + 1))
            start[i] = value * (1 - 1e-4 * 0.1) - 1e-4 * mean / (square.sqrt() + 1e-6)
    for master, expected in zip(training.saved()["optimizer"]["fp32_params"], start, strict=True):
        assert torch.allclose(master.double(), expected, rtol=0, atol=1e-5)
    moved = [(p.float() != e.float()).float().mean() for p, e in zip(training.parameters, start, strict=True)]
    assert max(moved) > 0.5, "bf16 could hold these weights: the test shows nothing about masters"


@pytest.mark.parametrize(("before", "after"), [("bf16", "memory-efficient bf16"), ("memory-efficient bf16", "bf16")])
def test_ordinary_and_memory_efficient_training_take_over_from_each_other(before, after):
    whole = Training(before).run(range(STEPS))
    parts = Training(before).run(range(12)).resumed(after).run(range(12, STEPS))
    assert_same_bits(whole.everything(), parts.everything())


def test_fairseqs_adam_in_bf16_is_taken_over_with_its_masters():
    parts = Training("bf16", "adam").run(range(12))
    masters = copy.deepcopy(parts.saved()["optimizer"]["fp32_params"])
    taken = parts.resumed("bf16").saved()["optimizer"]["fp32_params"]
    assert all(torch.equal(a, b) for a, b in zip(masters, taken, strict=True))


NUM_BATCHES = 128
WITH_MASTERS = ["bf16", "fp16", "fp16, not flattened"]


def gradients_of(training, batch):
    """Gradients that mostly agree, as those of early training do."""
    generator = torch.Generator().manual_seed(batch)
    return [(1 + torch.rand(p.shape, generator=generator)).to(training.dtype) for p in training.parameters]


def accumulate(kind, *, num_batches=NUM_BATCHES, model=None, monkeypatch=None):
    """The wrapper's fp32 gradients of an update, and the sum in float64."""
    training = Training(kind)
    optimizer = training.optimizer
    if optimizer.scaler is not None:
        optimizer.scaler.loss_scale = 1.0
    optimizer.zero_grad()
    expected = [torch.zeros(p.shape, dtype=torch.float64) for p in training.parameters]
    for batch in range(num_batches):
        parts = gradients_of(training, batch)
        for total, part in zip(expected, parts, strict=True):
            total += part.double()
        if model is not None:
            model.require_backward_grad_sync = batch == num_batches - 1
            half_precision.before_backward(optimizer, model)
        optimizer.backward(sum((p * g).sum() for p, g in zip(training.parameters, parts, strict=True)))
    optimizer.clip_grad_norm(0.0)
    return [total.double() for _, total in half_precision._gradients(optimizer)], expected, training


def largest_error(found, expected):
    return max(float(((a - b).abs() / b).max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", WITH_MASTERS)
def test_many_batches_add_up_in_fp32(kind):
    found, expected, _ = accumulate(kind)
    assert largest_error(found, expected) < 1e-6


def test_fairseqs_own_sums_lose_what_these_keep(monkeypatch):
    """The guard of the test above."""
    ordinary = fp16_optimizer._FP16OptimizerMixin
    monkeypatch.setattr(ordinary, "backward", ordinary.backward.__wrapped__)
    found, expected, _ = accumulate("bf16")
    assert largest_error(found, expected) > 0.01


class Wrapped:
    """A model in torch's DistributedDataParallel, as far as it is asked."""


@pytest.mark.parametrize("kind", WITH_MASTERS)
def test_among_ranks_the_sum_is_rounded_once(kind, monkeypatch):
    """The last backward pass finds it in the model's gradients, and a wrapper adds these up among the ranks."""
    monkeypatch.setattr(half_precision, "has_ranks", lambda: True)
    found, expected, training = accumulate(kind, model=Wrapped())
    assert all(p.grad is not None for p in training.parameters)
    rounding = 2.0**-8 if kind == "bf16" else 2.0**-11
    assert 0 < largest_error(found, expected) <= 2 * rounding


def test_wrappers_of_models_are_asked_in_their_own_words(monkeypatch):
    monkeypatch.setattr(half_precision, "has_ranks", lambda: True)
    answers = [{"require_backward_grad_sync": False}, {"require_backward_grad_sync": True}]
    answers += [{"accumulate_grads": True}, {"accumulate_grads": False}, {}]
    found = []
    for answer in answers:
        model = Wrapped()
        vars(model).update(answer)
        found.append(half_precision.adds_up_among_ranks(model))
    assert found == [False, True, False, True, None]
    monkeypatch.setattr(half_precision, "has_ranks", lambda: False)
    assert half_precision.adds_up_among_ranks(Wrapped()) is False


@pytest.mark.parametrize("kind", WITH_MASTERS)
def test_one_batch_and_missing_gradients_are_as_before(kind):
    """A parameter that no batch needs has a gradient of 0, also after an update in which it had another."""
    training = Training(kind)
    optimizer = training.optimizer
    for used in (3, 1):
        optimizer.zero_grad()
        parts = gradients_of(training, used)
        loss = sum((p * g).sum() for p, g in list(zip(training.parameters, parts, strict=True))[:used])
        optimizer.backward(loss)
        optimizer.clip_grad_norm(0.0)
        totals = [total for _, total in half_precision._gradients(optimizer)]
        scale = 1.0 if optimizer.scaler is None else optimizer.scaler.loss_scale
        for number, (total, part) in enumerate(zip(totals, parts, strict=True)):
            assert torch.equal(total, scale * part.float() * (number < used))


def test_the_factor_of_one_update_is_not_that_of_the_next():
    training = Training("bf16")
    norms = []
    for _ in range(3):
        training.optimizer.zero_grad()
        parts = gradients_of(training, 0)
        training.optimizer.backward(sum((p * g).sum() for p, g in zip(training.parameters, parts, strict=True)))
        training.optimizer.multiply_grads(1 / 8)
        norms.append(float(training.optimizer.clip_grad_norm(0.0)))
        training.optimizer.step()
    assert norms[0] == norms[1] == norms[2]


# fairseq asks for a scaler of a GPU first.
pytestmark = pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled:UserWarning")
SCALE = 128.0


@pytest.fixture(params=[(RobertaAdamW, RobertaAdamWConfig), (FairseqAdam, FairseqAdamConfig)], ids=["ours", "fairseq"])
def build(request):
    """A wrapper as --amp builds it, with torch's scaler for the CPU."""

    def build(parameter):
        options = {"tpu": False} if request.param[0] is FairseqAdam else {}
        optimizer = make(*request.param, [parameter], weight_decay=0.1, **options)
        cfg = OmegaConf.create({"common": {"fp16_init_scale": SCALE, "min_loss_scale": 1e-4}, "optimizer": {}})
        amp = AMPOptimizer(cfg, [parameter], optimizer)
        amp._grad_scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=3)
        return amp

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


@pytest.mark.parametrize(("wrapper", "common"), [
    (FP16Optimizer, {"fp16": True, "fp16_no_flatten_grads": True}),
    (MemoryEfficientFP16Optimizer, {"fp16": True, "memory_efficient_fp16": True}),
])  # fmt: skip
@pytest.mark.parametrize(("ranks", "update_freq", "given", "window"), [
    (1, 1, None, 2**14), (8, 4, None, 512), (1024, 1, None, 256), (1024, 17, None, 256), (1024, 17, 5, 5),
])  # fmt: skip
def test_the_loss_scale_of_many_ranks_grows_every_256_updates(wrapper, common, ranks, update_freq, given, window):
    """fairseq's window of 1,024 x 17 is 0, by which its scaler divides."""
    cfg = OmegaConf.structured(FairseqConfig)
    OmegaConf.set_struct(cfg, False)
    cfg.common = OmegaConf.merge(cfg.common, common, {"fp16_scale_window": given})
    cfg.distributed_training.distributed_world_size, cfg.optimization.update_freq = ranks, [update_freq]
    settings = OmegaConf.structured(RobertaAdamWConfig)
    OmegaConf.set_struct(settings, False)
    cfg.optimizer = OmegaConf.merge(settings, {"_name": "roberta_adamw", "lr": [1e-2]})
    scaler = wrapper.build_optimizer(cfg, [torch.nn.Parameter(torch.ones(3, dtype=torch.float16))]).scaler
    assert scaler.scale_window == window
    scaler.update()
