"""What a training takes: parameters and FLOPs of built models, bytes that autograd keeps, times of counted steps."""

import re
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch import estimate as estimates
from roberta_plugin.launch.estimate import CUDA_CONTEXT, Shape, activation_bytes, estimate, memory_bytes, update_seconds
from roberta_plugin.launch.recipe import complete, load_recipe
from roberta_plugin.launch.submission import estimate_of
from roberta_plugin.models.flops import half_precision_peak
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.conftest import REPOSITORY
from tests.tiny_models import SequenceTask, TinyTask, options, sequence_model

BASE = Shape()
LARGE = Shape(num_layers=24, dim=1024, ffn_dim=4096, num_heads=16)
OPTIONS = {
    "--task": "roberta_masked_lm",
    "--criterion": "roberta_masked_lm",
    "--arch": "fast_roberta_small",
    "--encoder-ffn-embed-dim": "1000",
    "--tokens-per-sample": "256",
    "--mask-prob": "0.2",
    "--batch-size": "16",
    "--optimizer": "roberta_adamw",
    "--lr-scheduler": "polynomial_decay",
    "--total-num-update": "1000",
    "--max-update": "1000",
}


def parse(*extra, without=(), ranks=1):
    """fairseq's options, OPTIONS but for those left out, and further ones."""
    words = [word for pair in OPTIONS.items() if pair[0] not in without for word in pair]
    parsed = train_arguments.parse(["no-such-data", *words, *extra])
    parsed.distributed_world_size = ranks
    return parsed


def shape_of(model, **changes):
    cfg = model.cfg
    return Shape(
        num_layers=cfg.encoder_layers,
        dim=cfg.encoder_embed_dim,
        ffn_dim=cfg.encoder_ffn_embed_dim,
        num_heads=cfg.encoder_attention_heads,
        vocab_size=model.encoder.sentence_encoder.embed_tokens.num_embeddings,
        max_positions=cfg.max_positions,
        **changes,
    )


def flops_per_token(shape):
    """FLOPs of forward and backward per token of full blocks."""
    blocks = 10_000  # with a whole number of predicted positions
    tokens = blocks * shape.tokens_per_sample
    predicted = shape.predicted_share * tokens
    pairs = tokens * shape.tokens_per_sample
    return shape.flops(tokens=tokens, pairs=pairs, predicted=predicted, sequences=blocks) / tokens


def number(text, unit):
    """The number before a unit in an estimate."""
    return float(re.search(rf"([\d.e+]+) {re.escape(unit)}", text)[1])


@pytest.mark.parametrize(
    ("words", "further"),
    [
        ("", set()),
        ("--encoder-normalize-before --no-layernorm-embedding", {"encoder_normalize_before", "no_layernorm_embedding"}),
        (
            "--untie-weights-roberta --feed-forward geglu --qk-norm",
            {"untie_weights_roberta", "feed_forward", "qk_norm"},
        ),
        (
            "--position-encoding rotary --attention-window 64 --global-attention-every 2",
            {"position_encoding", "attention_window", "global_attention_every"},
        ),
        ("--share-layers all --share-parts ffn --norm rms", {"share_layers", "share_parts", "norm"}),
    ],
)
def test_parameters_are_those_of_the_model_that_the_options_describe(words, further):
    shape = estimates.model_shape(parse(*words.split()))
    assert shape.options.keys() == further
    sizes = {"encoder_layers": 4, "encoder_embed_dim": 512, "encoder_ffn_embed_dim": 1000, "encoder_attention_heads": 8}
    built = {**sizes, **shape.options, "max_positions": 256}
    model = FastRobertaModel.build_model(options(**built), TinyTask(num_symbols=estimates.PAPER_VOCABULARY - 5))
    assert shape.num_parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("size", "number"), [("base", 149_655_232), ("large", 395_881_664)])
def test_modernbert_has_its_published_sizes_and_what_is_given_beside_prevails(size, number):
    """149 and 395 million (Warner et al. 2024); transformers counts the same."""
    words = ("--arch", f"fast_modernbert_{size}", "--global-attention-every", "2", "--feed-forward", "plain")
    without = ("--arch", "--encoder-ffn-embed-dim")
    plain, found = (estimates.model_shape(parse(*given, without=without)) for given in (words, words[:2]))
    assert replace(found, vocab_size=50_368).num_parameters == number
    assert (found.positions.base, found.positions.base_local, found.positions.window) == (160_000.0, 10_000.0, 128)
    assert found.positions.global_every == 3 and found.ffn_matrices == 3
    assert plain.positions.global_every == 2 and plain.ffn_matrices == 2 and plain.positions.window == 128


def test_a_head_of_sequences_is_counted():
    model = sequence_model()
    shape = shape_of(model, sequence_heads=SequenceTask.sequence_heads)
    segments = 2 * shape.dim
    assert shape.num_parameters + segments == sum(parameter.numel() for parameter in model.parameters())
    head = 6 * (24**2 + 2 * 24) / shape.tokens_per_sample
    without = replace(shape, sequence_heads={})
    assert flops_per_token(shape) - flops_per_token(without) == pytest.approx(head)


@pytest.mark.parametrize(("share", "further"), [(1.0, {}), (0.25, {}), (1.0, {"feed_forward": "swiglu"})])
def test_flops_are_those_of_the_products(share, further):
    """Counted in a forward and backward pass of the model itself, the head on a share of the positions."""
    blocks, length = 2, 16
    model = FastRobertaModel.build_model(options(attention_backend="eager", **further), TinyTask()).double()
    tokens = torch.randint(4, 70, (blocks, length))
    masked = torch.arange(length).remainder(round(1 / share)).eq(0).expand(blocks, -1)
    with FlopCounterMode(display=False) as counter:
        scores, _ = model(tokens, masked_tokens=masked)
        scores.sum().backward()
    assert scores.shape[0] == masked.sum() == share * tokens.numel()
    shape = shape_of(model, tokens_per_sample=length, predicted_share=share, options=further)
    assert counter.get_total_flops() == pytest.approx(flops_per_token(shape) * tokens.numel(), rel=1e-9)


def test_base_and_large():
    """0.60 and 2.01 GFLOPs by hand; 125 M and 355 M in the table of fairseq's examples/roberta/README.md."""
    by_hand = 6 * 12 * (4 * 768**2 + 2 * 768 * 3072) + 12 * 12 * 768 * 512 + 0.9 * (768**2 + 768 * 50_265)
    assert flops_per_token(BASE) == pytest.approx(by_hand)
    assert flops_per_token(LARGE) / 1e9 == pytest.approx(2.01, abs=0.005)
    assert [round(shape.num_parameters / 1e6) for shape in (BASE, LARGE)] == [125, 355]


def test_times_are_those_of_the_counted_steps():
    """Within 6 % of each row of the results file for packed blocks: the larger of the GPU's and the host's time."""
    page = (REPOSITORY / "tests" / "benchmarks" / "results" / "gpu_counts_202611.md").read_text()
    rows = re.findall(
        r"^\| (base|large), (\d+) blocks(, no dropout)? \|.* ([\d.]+) \| ([\d.]+) \| [\d.]+ \|$", page, re.M
    )
    assert len(rows) >= 5
    for name, blocks, no_dropout, gpu_ms, host_ms in rows:
        shape = {"base": BASE, "large": LARGE}[name]
        found = 1e3 * update_seconds(shape, int(blocks), drops=not no_dropout)
        assert found == pytest.approx(max(float(gpu_ms), float(host_ms)), rel=0.06), (name, blocks, no_dropout)


def test_small_batches_wait_for_the_host_and_many_passes_share_an_optimizer_step():
    times = [update_seconds(BASE, blocks) for blocks in (1, 2, 64)]
    assert times[0] == times[1] == 18e-6 * (49 + 43.7 * 12) < times[2]
    assert update_seconds(BASE, 32, update_freq=4) < 4 * update_seconds(BASE, 32)


@pytest.mark.parametrize(("nodes", "most"), [(1, 0.36), (128, 0.28)])
def test_the_papers_base_is_promised_at_no_more_than_a_third_of_the_peak(nodes, most):
    flags = {"nodes": nodes, "gpu_type": "h100"}
    recipe = load_recipe(REPOSITORY / "slurm" / "pretrain_base.yaml", flags=flags, train=["no-such-data"])
    words = estimate_of(recipe, complete(recipe))
    flops, hours = number(words, "FLOPs"), number(words, "h on")
    assert "124.7 M parameters" in words and f"{nodes * 8:,} x H100" in words
    assert flops == pytest.approx(0.5e6 * 8192 * 512 * flops_per_token(BASE), rel=1e-2)
    share = flops / (3600 * hours * nodes * 8 * half_precision_peak("H100"))
    assert 0.1 < share < most
    assert number(words, "% of the peak") == pytest.approx(100 * share, abs=1)


def test_another_gpu_takes_longer_by_its_peak_and_an_unknown_one_has_the_references_hours():
    long = parse("--fp16", "--max-update", "1000000")
    hours = [number(estimate(long, gpu=gpu), "h on") for gpu in ("H100", "a100", "abacus", "")]
    assert hours[1] / hours[0] == pytest.approx(989.4 / 312, rel=0.01)
    assert hours[2] == hours[3] == hours[0]
    assert " min on 1 x H100" in estimate(parse("--fp16"), gpu="abacus")


def test_the_estimate_says_no_more_than_it_knows():
    assert re.fullmatch(r"[\d.e+]+ FLOPs with 34.5 M parameters", estimate(parse("--cpu")))
    assert " on 1 x " not in estimate(parse()) and "GB of a GPU's memory" in estimate(parse())
    assert "lower --batch-size" in estimate(parse("--bf16"), gpu_memory_gb=1)
    assert "lower --batch-size" not in estimate(parse("--bf16"), gpu_memory_gb=80)
    assert estimate(parse(without=("--max-update",))) == ""
    named = ("--task", "roberta_sentence_prediction", "--criterion", "roberta_sentence_prediction")
    assert estimate(parse(*named, without=("--task", "--criterion", "--tokens-per-sample", "--mask-prob"))) == ""


def test_recomputation_costs_a_third_more_time_and_saves_memory():
    plain, again = (
        estimate(parse("--bf16", "--max-update", "1000000", *words)) for words in ((), ("--checkpoint-activations",))
    )
    assert number(again, "h on") == pytest.approx(4 / 3 * number(plain, "h on"), rel=0.01)
    shape = estimates.model_shape(parse())
    plain, again = (memory_bytes(shape, parse(*words), blocks=64) for words in ((), ("--checkpoint-activations",)))
    assert again < plain


def test_what_grows_is_counted_as_it_grows():
    """By hand, of 1,000 updates: 200 with 8 of 16 blocks of 128 of 256 tokens, 300 with 16 of 128, 500 whole ones."""
    by_tokens = ("--max-tokens", "4096", "--grow-max-tokens", "0:1024 200:2048 500:4096", "--cpu")
    by_tokens += ("--grow-tokens-per-sample", "0:128 500:256", "--update-freq", "2")
    found = number(estimate(parse(*by_tokens, without=("--batch-size",), ranks=16)), "FLOPs")
    shape = estimates.model_shape(parse())
    short, whole = (flops_per_token(replace(shape, tokens_per_sample=length)) for length in (128, 256))
    expected = (200 * 1024 * short + 300 * 2048 * short + 500 * 4096 * whole) * 2 * 16
    assert found == pytest.approx(expected, rel=0.005)


def test_the_vocabulary_is_the_datas_own(tiny_data_bin, tmp_path):
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(tiny_data_bin / "dict.txt"))
    dictionary.add_symbol("<mask>")
    assert estimates.vocabulary_size([tiny_data_bin]) == len(dictionary)
    (tmp_path / "dict.txt").write_text((tiny_data_bin / "dict.txt").read_text() + "<mask> 1\n")
    assert estimates.vocabulary_size([tmp_path]) == len(dictionary)


BLOCKS, LENGTH = 4, 32
SIZES = {"encoder_layers": 3, "encoder_embed_dim": 128, "encoder_ffn_embed_dim": 512, "max_positions": LENGTH}


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
@pytest.mark.parametrize(
    ("backend", "further"),
    [
        ("eager", {}),
        ("sdpa", {}),
        ("sdpa", {"feed_forward": "geglu"}),
        ("sdpa", {"qk_norm": True}),
        ("sdpa", {"position_encoding": "rotary", "qk_norm": True}),
    ],
)
def test_activations_are_what_autograd_keeps(dtype, size, backend, further):
    """Without dropout, whose masks on a CPU are not those of a GPU; features only."""
    model = FastRobertaModel.build_model(options(**SIZES, attention_backend=backend, **further), TinyTask()).to(dtype)
    tokens = torch.randint(4, 70, (BLOCKS, LENGTH))
    kept = kept_bytes(model, lambda: model(tokens, features_only=True, has_padding=False)[0])
    shape = shape_of(model, tokens_per_sample=LENGTH, predicted_share=0.0, options=further)
    of_token = activation_bytes(shape, size=size, drops=False, is_eager=backend == "eager", recomputes=False)
    joined = shape.num_layers * 3 * shape.dim**2 * size  # q, k and v in one matrix; next to nothing in a large batch
    assert BLOCKS * LENGTH * of_token + joined == pytest.approx(kept, rel=0.05)


def test_recomputation_keeps_a_vector_a_layer():
    model = FastRobertaModel.build_model(options(**SIZES, checkpoint_activations=True), TinyTask()).train()
    tokens = torch.randint(4, 70, (BLOCKS, LENGTH))
    kept = kept_bytes(model, lambda: model(tokens, features_only=True, has_padding=False)[0])
    vectors = SIZES["encoder_layers"] + 1  # and the embeddings
    assert kept == pytest.approx(vectors * 4 * SIZES["encoder_embed_dim"] * BLOCKS * LENGTH, rel=0.05)


def test_half_precision_by_hand():
    """Weights and gradients in 2 bytes, fp32 copies of both, two moments; 2 more for DDP's buckets."""

    def states(*words, ranks=1):
        return (memory_bytes(LARGE, parse(*words, ranks=ranks), blocks=0) - CUDA_CONTEXT) / LARGE.num_parameters

    assert states() == 4 + 4 + 8
    assert states("--fp16") == 2 + 2 + 4 + 4 + 4 + 4
    assert states("--bf16", ranks=8) == states("--fp16") + 2
    assert states("--bf16", "--gradient-as-bucket-view", ranks=8) == states("--fp16")
    assert states("--memory-efficient-bf16") == 2 + 2 + 4 + 4 + 4
    assert states("--memory-efficient-bf16", "--optimizer", "adam") == 2 + 2 + 4 + 4


@pytest.mark.parametrize("is_half", [False, True])
def test_states_are_those_of_the_optimizer(is_half):
    """Weights, gradients and moments; in memory-efficient half precision also our own fp32 masters, without gradients."""
    model = FastRobertaModel.build_model(options(**SIZES), TinyTask())
    model = model.bfloat16() if is_half else model
    optimizer = RobertaAdamW(RobertaAdamWConfig(lr=[1e-3]), list(model.parameters()))
    model(torch.randint(4, 70, (1, LENGTH)))[0].sum().backward()
    optimizer.step()
    tensors = [*model.parameters(), *(parameter.grad for parameter in model.parameters())]
    if is_half:
        masters = optimizer.param_groups[0]["params"]
        tensors += [*masters, *(master.grad for master in masters if master.grad is not None)]
    tensors += [value for state in optimizer.optimizer.state.values() for value in state.values()]
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.numel() > 1)
    parsed = parse(*(["--memory-efficient-bf16"] if is_half else []))
    assert memory_bytes(shape_of(model), parsed, blocks=0) - CUDA_CONTEXT == held


def test_a_layer_is_korthikantis_34_s_b_h():
    """Section 4.1 of Korthikanti et al. 2022, for f = 4 h, 2 bytes and dropout."""
    two, one = (
        activation_bytes(replace(LARGE, num_layers=layers), size=2, drops=True, is_eager=False, recomputes=False)
        for layers in (2, 1)
    )
    assert two - one == 34 * 1024 + 4 * 16
