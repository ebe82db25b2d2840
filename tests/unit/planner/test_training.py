"""What a training needs: FLOPs and memory against built models, recipes and machines as files."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from roberta_plugin.launch.recipe import LaunchSettings
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from roberta_plugin.planner.plan import as_markdown, plan
from roberta_plugin.planner.training import (
    ACHIEVED,
    CUDA_CONTEXT,
    LATENCY_S,
    PAPER_VOCABULARY,
    Machine,
    Precision,
    Shape,
    Training,
    activation_bytes_per_token,
    all_reduce_seconds,
    estimate_memory,
    flops_per_token,
    joined_projection_bytes,
    largest_batch,
    read_machine,
    read_training,
    speed_in_log,
    vocabulary_size,
)
from tests.conftest import REPOSITORY
from tests.nodes import DGX_1, DGX_H100, NODES
from tests.tiny_models import TinyTask, options
from tests.tiny_pairs import pair_model

V100 = DGX_1
ONE, HALF = {"tokens_per_second": 1}, {"utilization": 0.5}
BASE = Shape()
LARGE = Shape(num_layers=24, dim=1024, ffn_dim=4096, num_heads=16)


def model_shape(model, **changes):
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
def test_parameters_are_those_of_the_model_that_the_recipe_describes(words, further):
    shape = read(*words.split()).shape
    assert shape.options.keys() == further
    sizes = {"encoder_layers": 4, "encoder_embed_dim": 512, "encoder_ffn_embed_dim": 1000, "encoder_attention_heads": 8}
    given = {**sizes, **shape.options, "max_positions": 256}
    model = FastRobertaModel.build_model(options(**given), TinyTask(num_symbols=PAPER_VOCABULARY - 5))
    assert shape.num_parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("size", "number"), [("base", 149_655_232), ("large", 395_881_664)])
def test_modernbert_has_its_published_sizes_and_what_is_given_beside_prevails(size, number):
    """149 and 395 million (Warner et al. 2024); transformers counts the same."""
    words = ("--arch", f"fast_modernbert_{size}", "--global-attention-every", "2", "--feed-forward", "plain")
    without = ("--arch", "--encoder-ffn-embed-dim")
    plain, found = (read(*given, without=without).shape for given in (words, words[:2]))
    assert replace(found, vocab_size=50_368).num_parameters == number
    assert (found.positions.base, found.positions.base_local, found.positions.window) == (160_000.0, 10_000.0, 128)
    assert found.positions.global_every == 3 and found.ffn_matrices == 3
    assert plain.positions.global_every == 2 and plain.ffn_matrices == 2 and plain.positions.window == 128


def test_parameters_of_pairs_are_those_of_the_model():
    model = pair_model()
    shape = model_shape(model, predicts_next_sentence=True, num_segments=2)
    assert shape.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    shorter = dataclasses.replace(shape, predicts_next_sentence=False)
    head = 6 * (24**2 + 2 * 24) / shape.tokens_per_sample
    assert flops_per_token(shape) - flops_per_token(shorter) == pytest.approx(head)


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
    shape = model_shape(model, tokens_per_sample=length, predicted_share=share, options=further)
    assert counter.get_total_flops() == pytest.approx(flops_per_token(shape) * tokens.numel(), rel=1e-9)


def test_base_and_large():
    """0.60 and 2.01 GFLOPs by hand; 125 M and 355 M in the table of fairseq's examples/roberta/README.md."""
    by_hand = 6 * 12 * (4 * 768**2 + 2 * 768 * 3072) + 12 * 12 * 768 * 512 + 0.9 * (768**2 + 768 * 50_265)
    assert flops_per_token(BASE) == pytest.approx(by_hand)
    assert flops_per_token(LARGE) / 1e9 == pytest.approx(2.01, abs=0.005)
    assert [round(shape.num_parameters / 1e6) for shape in (BASE, LARGE)] == [125, 355]


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


def read(*extra, nodes=2, batch_sequences=512, without=(), speed=ONE):
    """The training of a recipe with these options beside OPTIONS, but for those that are left out."""
    words = [word for pair in OPTIONS.items() if pair[0] not in without for word in pair]
    sizes = {"nodes": nodes, "gpus_per_node": 8, "batch_sequences": batch_sequences}
    recipe = LaunchSettings(output_dir=Path("runs/x"), train=("no-such-data", *words, *extra), **sizes)
    return read_training(recipe, machine=V100, **speed)


def test_the_recipe_says_what_is_trained():
    training = read("--bf16", speed={"tokens_per_second": 5000})
    shape = training.shape
    assert (shape.num_layers, shape.dim, shape.ffn_dim, shape.num_heads) == (4, 512, 1000, 8)
    assert (shape.tokens_per_sample, shape.max_positions, shape.predicted_share) == (256, 256, 0.2)
    assert shape.vocab_size == PAPER_VOCABULARY
    assert (training.batch_sequences, training.most_per_gpu, training.num_updates) == (512, 16, 1000)
    assert training.tokens_per_second == 5000
    assert (training.precision.is_half, training.precision.is_memory_efficient) == (True, False)
    assert training.has_dropout
    assert not training.recompute
    assert not training.has_eager_attention


def test_the_batch_is_the_same_for_any_number_of_gpus_in_the_recipe():
    assert read(nodes=1) == read(nodes=4)
    assert read("--update-freq", "3", batch_sequences=None).batch_sequences == 16 * 3 * 16


def test_what_grows_is_planned_at_its_largest_and_counted_as_it_grows():
    """By hand, of 1,000 updates: 200 with 8 of 16 blocks of 128 of 256 tokens, 300 with 16 of 128, 500 whole ones."""
    by_tokens = ("--max-tokens", "4096", "--grow-max-tokens", "0:1024 200:2048 500:4096")
    by_tokens += ("--grow-tokens-per-sample", "0:128 500:256", "--update-freq", "2")
    training = read(*by_tokens, without=("--batch-size",), batch_sequences=None, speed=HALF)
    assert (training.batch_sequences, training.most_per_gpu, training.tokens_per_update) == (16 * 2 * 16, 16, 131072)
    short, whole = (flops_per_token(replace(training.shape, tokens_per_sample=length)) for length in (128, 256))
    expected = (200 * 1024 * short + 300 * 2048 * short + 500 * 4096 * whole) * 2 * 16
    assert training.flops == pytest.approx(expected)
    constant = replace(training, growth=1.0)
    grown, even = (plan(each, num_gpus=16, machine=V100) for each in (training, constant))
    assert grown.memory == even.memory and grown.step == even.step
    waiting = even.exposed * (1 + even.saving) * 1000 / 86_400
    assert (grown.days - waiting) / (even.days - waiting) == pytest.approx(training.growth)
    assert "tokens per update at most (" in as_markdown(training, [grown], V100)
    by_batch = read("--grow-tokens-per-sample", "0:128 500:256", speed=HALF)
    assert by_batch.growth == pytest.approx(0.5 + 0.25 * short / whole)
    assert read(speed=HALF).growth == 1


def test_options_that_cost_memory_or_save_it():
    extra = ("--memory-efficient-fp16", "--dropout", "0", "--checkpoint-activations", "--attention-backend", "eager")
    training = read(*extra)
    assert training.precision.is_memory_efficient and training.precision.state_size == 16
    assert read(*extra, "--optimizer", "adam").precision.state_size == 12
    assert not training.has_dropout and training.recompute and training.has_eager_attention and training.overlaps
    assert not read().precision.is_half
    assert not read("--ddp-backend", "legacy_ddp").overlaps


NAMES = ("--task", "roberta_sentence_prediction", "--criterion", "roberta_sentence_prediction", "--lora-rank", "8")
PRETRAINING = ("--task", "--criterion", "--tokens-per-sample", "--mask-prob")


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ((), {"speed": {}}, "one of --tokens-per-second, --log"),
        ((), {"speed": {**ONE, **HALF}}, "one of --tokens-per-second"),
        (("--tokens-per-sample", "0"), {"speed": HALF}, "--tokens-per-sample must be from 3 to"),
        (("--max-update", "-1"), {"speed": HALF}, "--max-update must be 0 or more, got -1"),
        ((), {"without": ("--max-update",)}, "no --max-update"),
        ((), {"without": ("--batch-size",), "batch_sequences": None}, "no --batch-size"),
        (NAMES, {"without": PRETRAINING}, "The task roberta_sentence_prediction has no --tokens-per-sample"),
    ],
)
def test_what_is_refused_and_how(words, changes, message):
    with pytest.raises(ValueError, match=message):
        read(*words, **changes)


def test_the_vocabulary_is_the_datas_own(tiny_data_bin, tmp_path):
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(tiny_data_bin / "dict.txt"))
    dictionary.add_symbol("<mask>")
    assert vocabulary_size([tiny_data_bin]) == len(dictionary)
    (tmp_path / "dict.txt").write_text((tiny_data_bin / "dict.txt").read_text() + "<mask> 1\n")
    assert vocabulary_size([tmp_path]) == len(dictionary)


def log_of(path, speeds, devices):
    lines = [f"INFO | fairseq_cli.train | training on {devices} devices (GPUs/TPUs)"]
    for update, speed in enumerate(speeds):
        record = {"num_updates": str(update), "wps": str(speed)}
        lines.append(f"INFO | train_inner | {json.dumps(record)}")
    path.write_text("\n".join(lines))
    return path


def test_the_speed_is_the_logs_median_for_one_device_or_a_share_of_the_peak(tmp_path):
    assert speed_in_log(log_of(tmp_path / "a", [10, 4000, 5000, 5100, 5200], 1)) == 5000
    assert speed_in_log(log_of(tmp_path / "b", [10, 4000, 5000, 5100, 5200], 4)) == 1250
    assert read(speed={"log": tmp_path / "a"}).tokens_per_second == 5000
    training = read(speed=HALF)
    assert training.tokens_per_second * flops_per_token(training.shape) == pytest.approx(62.5e12)
    with pytest.raises(ValueError, match=r"empty contains no speed: it needs `train_inner` lines"):
        speed_in_log(log_of(tmp_path / "empty", [], 1))
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        speed_in_log(tmp_path / "none")


TWO = Machine(name="two", peak_tflops=1, memory_gb=1, inside_gb_s=10, between_gb_s=1, gpus_per_node=2)
OWN = "memory_gb: 80\ninside_gb_s: 64\nbetween_gb_s: 50\n"


def test_files(tmp_path):
    assert read_machine(str(REPOSITORY / "slurm" / "machine.yaml")) == replace(DGX_H100, name="machine")
    path = tmp_path / "ours.yaml"
    path.write_text(f"gpu: H100 PCIe\ngpus_per_node: 4\nprice_per_gpu_hour: 2.5\n{OWN}")
    sizes = {"memory_gb": 80, "inside_gb_s": 64, "between_gb_s": 50, "gpus_per_node": 4}
    assert read_machine(str(path)) == Machine(name="ours", peak_tflops=756.5, price_per_gpu_hour=2.5, **sizes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu: abacus\n" + OWN, "the peak of the gpu 'abacus' is not known: give peak_tflops"),
        (OWN, "peak-tflops is missing"),
        (f"peak_tflops: 100\n{OWN}gpus: 8\n", "unknown key 'gpus'"),
        (f"peak_tflops: much\n{OWN}", "--peak-tflops is 'much', which is not a number"),
        (f"peak_tflops: 0\n{OWN}", "--peak-tflops must be greater than 0, got 0"),
        (f"peak_tflops: 1\nprice_per_gpu_hour: -1\n{OWN}", "--price-per-gpu-hour must be 0 or more, got -1"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, text, message):
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"ours.yaml.*{message}"):
        read_machine(str(path))


def test_an_all_reduce_by_hand():
    """2 GPUs pass the data once; 4 nodes of them pass 2 x 3/4 of it between the nodes as well; one waits for no other."""
    assert all_reduce_seconds(1e9, num_gpus=1, machine=TWO) == 0
    inside = 1e9 / (10e9 * ACHIEVED)
    assert all_reduce_seconds(1e9, num_gpus=2, machine=TWO) == pytest.approx(inside)
    between = 1.5 * 1e9 / (1e9 * ACHIEVED) + 6 * LATENCY_S
    assert all_reduce_seconds(1e9, num_gpus=8, machine=TWO) == pytest.approx(inside + between)


def test_time_grows_with_gpus_and_bytes_and_stays_bounded():
    for machine in NODES:
        times = [all_reduce_seconds(7e8, num_gpus=2**k, machine=machine) for k in range(11)]
        assert times == sorted(times)
        limit = 2 * 7e8 * (1 / machine.inside_gb_s + 1 / machine.between_gb_s) / (1e9 * ACHIEVED)
        assert limit / 2 < times[-1] < limit + 256 * LATENCY_S
        assert all_reduce_seconds(14e8, num_gpus=1024, machine=machine) > 1.5 * times[-1]


BLOCKS, LENGTH = 4, 32
WINDOWS = {"position_encoding": "rotary", "attention_window": 4}
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
@pytest.mark.parametrize(
    ("backend", "further"),
    [
        ("eager", {}),
        ("sdpa", {}),
        ("sdpa", {"feed_forward": "geglu"}),
        ("sdpa", {"qk_norm": True}),
        ("eager", WINDOWS),
        ("sdpa", {"position_encoding": "rotary", "qk_norm": True}),
    ],
)
def test_activations_are_what_autograd_keeps(dtype, size, backend, further):
    """Without dropout, whose masks on a CPU are not those of a GPU; features only."""
    model = FastRobertaModel.build_model(options(**SIZES, attention_backend=backend, **further), TinyTask()).to(dtype)
    tokens = torch.randint(4, 70, (BLOCKS, LENGTH))
    kept = kept_bytes(model, lambda: model(tokens, features_only=True, has_padding=False)[0])
    shape = model_shape(model, tokens_per_sample=LENGTH, predicted_share=0.0, options=further)
    training = trained(
        shape, precision=Precision(is_half=size == 2), has_dropout=False, has_eager_attention=backend == "eager"
    )
    expected = BLOCKS * LENGTH * activation_bytes_per_token(training) + joined_projection_bytes(training)
    assert expected == pytest.approx(kept, rel=0.05)


def test_recomputation_keeps_a_vector_a_layer():
    model = FastRobertaModel.build_model(options(**SIZES, checkpoint_activations=True), TinyTask()).train()
    tokens = torch.randint(4, 70, (BLOCKS, LENGTH))
    kept = kept_bytes(model, lambda: model(tokens, features_only=True, has_padding=False)[0])
    shape = model_shape(model, tokens_per_sample=LENGTH, predicted_share=0.0)
    vectors = shape.num_layers + 1  # and the embeddings
    assert kept == pytest.approx(vectors * 4 * shape.dim * BLOCKS * LENGTH, rel=0.05)


def test_half_precision_by_hand():
    """Weights and gradients in 2 bytes, fp32 copies of both, two moments; 2 more for DDP's buckets."""
    memory = estimate_memory(trained(LARGE), batch_size=8, num_gpus=8)
    assert memory.states == (2 + 2 + 4 + 4 + 4 + 4) * LARGE.num_parameters
    assert memory.buckets == 2 * LARGE.num_parameters
    assert memory.total == memory.states + memory.buckets + memory.activations + CUDA_CONTEXT
    in_half = Precision(is_memory_efficient=True)
    efficient = estimate_memory(trained(LARGE, precision=in_half), batch_size=8, num_gpus=1)
    assert (efficient.states, efficient.buckets) == ((2 + 2 + 4 + 4) * LARGE.num_parameters, 0)


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
    precision = Precision(is_half=is_half, is_memory_efficient=is_half, has_own_masters=is_half)
    assert precision.state_size * model_shape(model).num_parameters == held


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
        return estimate_memory(trained(LARGE), batch_size=batch_size, num_gpus=8)

    most = largest_batch(trained(LARGE), num_gpus=8, gpu_bytes=gpu_bytes)
    assert most > 0
    assert memory(most).total <= 0.9 * gpu_bytes < memory(most + 1).total
