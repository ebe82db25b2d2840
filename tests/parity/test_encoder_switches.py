"""Options by which an encoder departs from RoBERTa, in float64: their definitions, ModernBERT, and every way to run it."""

import functools

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.models.adapters import TARGETS, add_adapters, merge
from roberta_plugin.models.compiling import compile_layers
from tests.hugging_face import import_transformers
from tests.tiny_models import MODERN, SWITCHED, gathered, make_batch, our_model

EXACT = {"atol": 1e-10, "rtol": 1e-8}
BEFORE = {"encoder_normalize_before": True}
ROTARY = {"position_encoding": "rotary", "rotary_base": 1000.0}
WINDOWS = {"attention_window": 4, "global_attention_every": 2}
CHOICES = [
    {"feed_forward": "geglu"},
    {"feed_forward": "swiglu", "share_layers": "all"},
    {"norm": "rms"},
    {"norm": "rms", **BEFORE, "no_layernorm_embedding": True},
    {"no_norm_bias": True},
    {"no_linear_bias": True, "untie_weights_roberta": True},
    {"qk_norm": True},
    {"qk_norm": True, "norm": "rms", "share_layers": "all", "share_parts": "attention"},
    {"no_first_attention_norm": True, **BEFORE},
    ROTARY,
    WINDOWS,
    {**ROTARY, **WINDOWS, "rotary_base_local": 50.0, "share_layers": "all"},
    MODERN,
    SWITCHED,
]


def name_of(choice):
    return " ".join(value if isinstance(value, str) else name for name, value in choice.items())


def turned(vectors, base):
    """Vectors (B, T, H, K): complex numbers of dimensions i and i + K / 2, times exp(i t theta) at position t."""
    real, imaginary = vectors.chunk(2, dim=-1)
    theta = base ** (-2 * torch.arange(real.size(-1), dtype=torch.float64) / vectors.size(-1))
    angles = torch.arange(vectors.size(1))[:, None, None] * theta  # (T, 1, K / 2)
    product = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((product.real, product.imag), dim=-1)


def logits_by_definition(state, tokens, cfg):
    """Logits (B, T, V) from parameters by name, each step as in its paper; no dropout."""
    sentence = "encoder.sentence_encoder."

    def norm(x, name):
        if cfg.norm == "rms":  # Zhang and Sennrich 2019, equation 4
            return x / (x.square().mean(-1, keepdim=True) + cfg.layer_norm_eps).sqrt() * state[f"{name}.weight"]
        centered = x - x.mean(-1, keepdim=True)
        normed = centered / (centered.square().mean(-1, keepdim=True) + cfg.layer_norm_eps).sqrt()
        return normed * state[f"{name}.weight"] + state.get(f"{name}.bias", 0.0)

    def linear(x, name):
        return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0.0)

    def attention(x, name):
        is_local = cfg.attention_window is not None and int(name.split(".")[-2]) % cfg.global_attention_every > 0
        q, k, v = (
            linear(x, f"{name}.{letter}_proj").unflatten(-1, (cfg.encoder_attention_heads, -1)) for letter in "qkv"
        )
        if cfg.qk_norm:
            q, k = norm(q, f"{name}.q_norm"), norm(k, f"{name}.k_norm")
        if cfg.position_encoding == "rotary":
            base = (cfg.rotary_base_local or cfg.rotary_base) if is_local else cfg.rotary_base
            q, k = turned(q, base), turned(k, base)
        scores = torch.einsum("bqhk,bthk->bhqt", q, k) / q.size(-1) ** 0.5
        if is_local:
            places = torch.arange(tokens.size(1))
            is_far = (places[:, None] - places).abs() > cfg.attention_window // 2
            scores = scores.masked_fill(is_far, -1e9)  # rows of padding, too, stay numbers
        weights = scores.masked_fill(tokens.eq(1)[:, None, None], -torch.inf).softmax(-1)
        return linear(torch.einsum("bhqt,bthk->bqhk", weights, v).flatten(2), f"{name}.out_proj")

    def feed_forward(x, name):
        inner = linear(x, f"{name}.fc1")
        if cfg.feed_forward == "plain":
            return linear(F.gelu(inner), f"{name}.fc2")
        first, gate = inner.split(cfg.encoder_ffn_embed_dim, -1)  # Shazeer 2020, equation 6
        activated = first * torch.sigmoid(first) if cfg.feed_forward == "swiglu" else F.gelu(first)
        return linear(activated * gate, f"{name}.fc2")

    before = cfg.encoder_normalize_before
    x = state[f"{sentence}embed_tokens.weight"][tokens]
    if cfg.position_encoding == "learned":
        x = x + state[f"{sentence}embed_positions.weight"][tokens.ne(1).cumsum(1) * tokens.ne(1) + 1]
    x = x if cfg.no_layernorm_embedding else norm(x, f"{sentence}layernorm_embedding")
    x = x * tokens.ne(1)[..., None]
    for number in range(cfg.encoder_layers):
        layer = f"{sentence}layers.{number}"
        for sublayer, name in ((attention, "self_attn"), (feed_forward, "final")):
            own = f"{layer}.{name}_layer_norm"
            inside = f"{layer}.self_attn" if name == "self_attn" else layer
            is_bare = not before or (cfg.no_first_attention_norm and number == 0 and name == "self_attn")
            x = x + sublayer(x if is_bare else norm(x, own), inside)
            x = x if before else norm(x, own)
    x = norm(x, f"{sentence}layer_norm") if before else x
    x = norm(F.gelu(linear(x, "encoder.lm_head.dense")), "encoder.lm_head.layer_norm")
    return x @ state["encoder.lm_head.weight"].T + state["encoder.lm_head.bias"]


@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_logits_and_gradients_are_those_of_the_definition(choice):
    model = our_model(**choice).double()
    tokens, masked, targets = make_batch()
    state = dict(model.named_parameters(remove_duplicate=False))
    biases = [name for name in state if name.endswith(".bias") and name != "encoder.lm_head.bias"]
    assert any("norm" in name for name in biases) != (model.cfg.no_norm_bias or model.cfg.norm == "rms")
    assert any("norm" not in name for name in biases) != model.cfg.no_linear_bias
    expected = logits_by_definition(state, tokens, model.cfg)
    torch.testing.assert_close(model(tokens)[0][tokens.ne(1)], expected[tokens.ne(1)], **EXACT)

    loss = F.cross_entropy(expected[masked], targets, reduction="sum")
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    predicted = gathered(masked, targets)  # of which alone the last layer makes features
    some = model.encoder.sentence_encoder(tokens, predicted=predicted)[0][predicted["labels"].ne(1)]
    F.cross_entropy(model.encoder.lm_head(some), targets, reduction="sum").backward()
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, msg=lambda text, n=name: f"{n}: {text}", **EXACT)
        # The same number added to all scores of a query does nothing.
        assert gradient.abs().max() > 1e-6 or name.endswith("k_proj.bias"), f"{name} does nothing"


def test_modernbert_is_the_same_model():
    """Its logits and gradients, with its own positions and windows, in global and local layers."""
    transformers = import_transformers()
    model = our_model(**MODERN, encoder_layers=4).double()
    config = transformers.ModernBertConfig(
        vocab_size=75, hidden_size=24, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=40, norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0,
        sep_token_id=2, local_attention=4, global_attn_every_n_layers=2, attn_implementation="sdpa",
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    )  # fmt: skip
    theirs = transformers.ModernBertForMaskedLM(config).double().eval()
    ours = dict(model.named_parameters())
    theirs.load_state_dict(as_modernbert(model.state_dict()), strict=True)
    tokens, masked, targets = make_batch()
    found = model(tokens)[0]
    assert [layer.attention_type[0] for layer in theirs.model.layers] == ["f", "s", "f", "s"]
    expected = theirs(tokens, attention_mask=tokens.ne(1).long()).logits
    in_fp32 = {"atol": 1e-5, "rtol": 1e-5}  # as they turn queries and keys
    torch.testing.assert_close(found[tokens.ne(1)], expected[tokens.ne(1)], **in_fp32)
    for logits in (found, expected):
        F.cross_entropy(logits[masked], targets, reduction="sum").backward()
    gradients = {name: parameter.grad for name, parameter in ours.items()}
    tied = {"encoder.lm_head.weight": gradients["encoder.sentence_encoder.embed_tokens.weight"]}
    for name, gradient in as_modernbert(gradients | tied).items():
        torch.testing.assert_close(theirs.get_parameter(name).grad, gradient, **in_fp32)


def as_modernbert(state):
    """Parameters, or their gradients, by ModernBERT's names: one matrix for queries, keys and values."""
    names = {
        "encoder.sentence_encoder.embed_tokens": "model.embeddings.tok_embeddings",
        "encoder.sentence_encoder.layernorm_embedding": "model.embeddings.norm",
        "encoder.sentence_encoder.layer_norm": "model.final_norm",
        "encoder.lm_head.dense": "head.dense",
        "encoder.lm_head.layer_norm": "head.norm",
    }
    for number in range(4):
        ours, theirs = f"encoder.sentence_encoder.layers.{number}", f"model.layers.{number}"
        names |= {
            f"{ours}.self_attn_layer_norm": f"{theirs}.attn_norm",
            f"{ours}.self_attn.out_proj": f"{theirs}.attn.Wo",
            f"{ours}.fc1": f"{theirs}.mlp.Wi",
            f"{ours}.fc2": f"{theirs}.mlp.Wo",
            f"{ours}.final_layer_norm": f"{theirs}.mlp_norm",
        }
    found = {f"{theirs}.weight": state[f"{ours}.weight"] for ours, theirs in names.items() if f"{ours}.weight" in state}
    for number in range(4):
        parts = [state[f"encoder.sentence_encoder.layers.{number}.self_attn.{one}_proj.weight"] for one in "qkv"]
        found[f"model.layers.{number}.attn.Wqkv.weight"] = torch.cat(parts)
    return found | {"decoder.bias": state["encoder.lm_head.bias"], "decoder.weight": state["encoder.lm_head.weight"]}


def run(model):
    """Loss and gradients of a training step."""
    tokens, masked, targets = make_batch()
    loss = model.train()(tokens, predicted=gathered(masked, targets))[0]
    model.zero_grad()
    loss.backward()
    return [loss, *(parameter.grad for parameter in model.parameters())]


@pytest.fixture(scope="module")
def step():
    return run(our_model(**SWITCHED))


@pytest.mark.parametrize("how", ["compile_layers", "checkpoint_activations"])
def test_compiled_and_recomputed_steps_are_the_same(step, how):
    torch._dynamo.reset()
    model = our_model(**SWITCHED, checkpoint_activations=how == "checkpoint_activations")
    if how == "compile_layers":  # by a backend that runs the graphs as they are, which takes seconds
        compile_layers(set(model.encoder.sentence_encoder.layers), backend="eager")
    for found, expected in zip(run(model), step, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_adapters_reach_every_matrix_and_are_added_to_it():
    model, plain = our_model(**SWITCHED), our_model(**SWITCHED)
    add_adapters(model, rank=2, alpha=4.0, targets=TARGETS)
    adapters = [name for name, parameter in model.named_parameters() if name.endswith("lora_B")]
    assert len(adapters) == 3 * len(TARGETS)
    with torch.no_grad():
        for name in adapters:
            model.get_parameter(name).normal_(std=0.1)
    state = model.state_dict()
    merge(state)
    plain.load_state_dict(state)
    tokens, _, _ = make_batch()
    is_token = tokens.ne(1)
    torch.testing.assert_close(model(tokens)[0][is_token], plain(tokens)[0][is_token], atol=1e-4, rtol=1e-4)


def test_answers_without_biases_need_no_copies_of_the_matrices():
    model = our_model(**SWITCHED).eval()
    tokens, _, _ = make_batch()
    with torch.inference_mode():
        expected = model(tokens)[0]
        for layer in model.encoder.sentence_encoder.layers:
            layer.self_attn.join()
        assert torch.equal(model(tokens)[0], expected)


def test_queries_that_are_normalized_see_no_scale():
    """Henry et al. 2020: attention cannot saturate by the size of its matrices."""
    model = our_model(qk_norm=True, no_linear_bias=True).double().eval()
    tokens, _, _ = make_batch()
    logits = functools.partial(model, tokens)
    with torch.no_grad():
        expected = logits()[0]
        for layer in model.encoder.sentence_encoder.layers:
            layer.self_attn.q_proj.weight.mul_(1000.0)
        torch.testing.assert_close(logits()[0], expected, atol=1e-2, rtol=1e-2)  # but for epsilon
