"""Bytes of weights, gradients, optimizer and activations, against what torch really keeps."""

import pytest
import torch

from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from roberta_plugin.planner.flops import Shape
from roberta_plugin.planner.inputs import Precision, Training
from roberta_plugin.planner.memory import (
    CUDA_CONTEXT,
    activation_bytes_per_token,
    joined_projection_bytes,
    largest_batch,
    memory_of,
)
from tests.tiny_models import TinyTask, options
from tests.unit.planner.test_flops import LARGE, shape_of

BLOCKS, LENGTH = 4, 32
SIZES = {"encoder_layers": 3, "encoder_embed_dim": 128, "encoder_ffn_embed_dim": 512, "max_positions": LENGTH}


def trained(shape, **changes):
    """A training of the model; only its memory matters here."""
    sizes = {"batch_sequences": 1, "most_per_gpu": 1, "num_updates": 1, "tokens_per_second": 1.0}
    return Training(**{"shape": shape, "precision": Precision(), **sizes, **changes})


def kept_bytes(model, run):
    """Bytes that autograd keeps for the backward pass, every piece of memory once, weights left out."""
    weights = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    pieces = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            pieces[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run()
    assert output.requires_grad
    return sum(pieces.values())


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_activations_are_what_autograd_keeps(dtype, size, backend):
    """Without dropout, whose masks on a CPU are not those of a GPU; features only."""
    model = FastRobertaModel.build_model(options(**SIZES, attention_backend=backend), TinyTask()).to(dtype)
    tokens = torch.randint(4, 70, (BLOCKS, LENGTH))
    kept = kept_bytes(model, lambda: model(tokens, features_only=True, has_padding=False)[0])
    shape = shape_of(model, tokens_per_sample=LENGTH, predicted_share=0.0)
    training = trained(
        shape, precision=Precision(is_half=size == 2), has_dropout=False, has_eager_attention=backend == "eager"
    )
    expected = BLOCKS * LENGTH * activation_bytes_per_token(training) + joined_projection_bytes(training)
    assert expected == pytest.approx(kept, rel=0.05)


def test_recomputation_keeps_a_vector_a_layer():
    model = FastRobertaModel.build_model(options(**SIZES, checkpoint_activations=True), TinyTask()).train()
    tokens = torch.randint(4, 70, (BLOCKS, LENGTH))
    kept = kept_bytes(model, lambda: model(tokens, features_only=True, has_padding=False)[0])
    shape = shape_of(model, tokens_per_sample=LENGTH, predicted_share=0.0)
    vectors = shape.num_layers + 1  # and the embeddings
    assert kept == pytest.approx(vectors * 4 * shape.dim * BLOCKS * LENGTH, rel=0.05)


def test_fp32_states_are_those_of_the_optimizer():
    model = FastRobertaModel.build_model(options(**SIZES), TinyTask())
    optimizer = RobertaAdamW(RobertaAdamWConfig(lr=[1e-3]), list(model.parameters()))
    model(torch.randint(4, 70, (1, LENGTH)))[0].sum().backward()
    optimizer.step()
    tensors = [*model.parameters(), *(parameter.grad for parameter in model.parameters())]
    moments = [value for state in optimizer.optimizer.state.values() for value in state.values()]
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors + moments if tensor.numel() > 1)
    shape = shape_of(model)
    assert Precision(is_half=False).state_size * shape.num_parameters == held


def test_half_precision_by_hand():
    """Weights and gradients in 2 bytes, fp32 copies of both, two moments; 2 more for DDP's buckets."""
    memory = memory_of(trained(LARGE), batch_size=8, num_gpus=8)
    assert memory.states == (2 + 2 + 4 + 4 + 4 + 4) * LARGE.num_parameters
    assert memory.buckets == 2 * LARGE.num_parameters
    assert memory.total == memory.states + memory.buckets + memory.activations + CUDA_CONTEXT
    in_half = Precision(is_memory_efficient=True)
    efficient = memory_of(trained(LARGE, precision=in_half), batch_size=8, num_gpus=1)
    assert (efficient.states, efficient.buckets) == ((2 + 2 + 4 + 4) * LARGE.num_parameters, 0)


def test_memory_efficient_states_are_those_of_the_optimizer():
    """Weights and gradients in 2 bytes, the optimizer's own fp32 masters and moments, and nothing after a step."""
    model = FastRobertaModel.build_model(options(**SIZES), TinyTask()).bfloat16()
    optimizer = RobertaAdamW(RobertaAdamWConfig(lr=[1e-3]), list(model.parameters()))
    model(torch.randint(4, 70, (1, LENGTH)))[0].sum().backward()
    optimizer.step()
    masters = optimizer.param_groups[0]["params"]
    tensors = [*model.parameters(), *(parameter.grad for parameter in model.parameters()), *masters]
    tensors += [master.grad for master in masters if master.grad is not None]
    tensors += [value for state in optimizer.optimizer.state.values() for value in state.values()]
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.numel() > 1)
    precision = Precision(is_memory_efficient=True, has_own_masters=True)
    assert precision.state_size * shape_of(model).num_parameters == held


def test_a_layer_is_korthikantis_34_s_b_h():
    """Section 4.1 of Korthikanti et al. 2022, for f = 4 h, 2 bytes and dropout."""
    two, one = (
        activation_bytes_per_token(trained(Shape(num_layers=layers, dim=1024, ffn_dim=4096, num_heads=16)))
        for layers in (2, 1)
    )
    assert two - one == 34 * 1024 + 4 * 16


@pytest.mark.parametrize("gpu_bytes", [16e9, 32e9, 80e9])
def test_one_block_more_than_the_largest_batch_does_not_fit(gpu_bytes):
    def memory(batch_size):
        return memory_of(trained(LARGE), batch_size=batch_size, num_gpus=8)

    most = largest_batch(trained(LARGE), num_gpus=8, gpu_bytes=gpu_bytes)
    assert most > 0
    assert memory(most).total <= 0.9 * gpu_bytes < memory(most + 1).total
