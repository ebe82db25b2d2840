"""Small models of ours, fairseq's and Hugging Face's, and batches for them."""

from argparse import Namespace

import torch
from fairseq.data import Dictionary
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture

from roberta_plugin import register
from roberta_plugin.models.config import MODERNBERT
from roberta_plugin.models.cpu import Linear
from roberta_plugin.models.heads import SequenceHead
from roberta_plugin.models.roberta import FastRobertaModel

register()  # fairseq finds our models and tasks whatever another test has imported first

MAX_POSITIONS = 40
# The layers of ModernBERT (Warner et al. 2024), and all other options by which an encoder departs from RoBERTa.
MODERN = {name: value for name, value in MODERNBERT.items() if "dropout" not in name}
MODERN |= {"rotary_base": 1000.0, "rotary_base_local": 50.0, "attention_window": 4, "global_attention_every": 2}
ROTARY = {"encoder_normalize_before": True, "position_encoding": "rotary"}
SWITCHED = {
    "encoder_normalize_before": True,
    "no_first_attention_norm": True,
    "norm": "rms",
    "no_linear_bias": True,
    "feed_forward": "swiglu",
    "qk_norm": True,
    "untie_weights_roberta": True,
    **{name: MODERN[name] for name in MODERN if name.startswith(("position", "rotary", "attention", "global"))},
}


class TinyTask:
    """What a model asks of a task: a dictionary and a length."""

    def __init__(self, num_symbols: int = 70, max_positions: int = MAX_POSITIONS) -> None:
        self._max_positions = max_positions
        self.source_dictionary = self.target_dictionary = Dictionary()
        for symbol in range(num_symbols):
            self.source_dictionary.add_symbol(str(symbol))
        self.source_dictionary.add_symbol("<mask>")

    def max_positions(self) -> int:
        return self._max_positions


class OrderHead(SequenceHead):
    """Two classes of a sequence, as an extension may predict them beside the masked LM."""

    task = "order"
    num_classes = 2

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.dense = Linear(dim, dim)
        self.out_proj = Linear(dim, self.num_classes)

    def forward(self, features):
        return self.out_proj(torch.tanh(self.dense(features)))


class SequenceTask(TinyTask):
    """A task with segments and a head for sequences."""

    num_segments = 2
    sequence_heads = {"order_head": OrderHead}


def sequence_model(task=None, *, seed: int = 0, **changes) -> FastRobertaModel:
    torch.manual_seed(seed)
    return spread(FastRobertaModel.build_model(options(**changes), task or SequenceTask()))


def options(**changes) -> Namespace:
    sizes = {"encoder_layers": 3, "encoder_embed_dim": 24, "encoder_ffn_embed_dim": 40, "encoder_attention_heads": 4}
    dropout = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "pooler_dropout": 0.0}
    return Namespace(**{**sizes, **dropout, "max_positions": MAX_POSITIONS, **changes})


def our_model(*, seed: int = 0, **changes) -> FastRobertaModel:
    torch.manual_seed(seed)
    return spread(FastRobertaModel.build_model(options(**changes), TinyTask()))


def fairseq_model(*, seed: int = 0, **changes) -> RobertaModel:
    torch.manual_seed(seed)
    args = options(**changes)
    base_architecture(args)
    return spread(RobertaModel.build_model(args, TinyTask()))


def spread(model):
    """Weights and biases large enough that every one of them matters to the output."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if "norm" in name or parameter.dim() == 1 else 0.15))
        if (table := model.encoder.sentence_encoder.embed_positions) is not None:
            table.weight[1].zero_()
        model.encoder.sentence_encoder.embed_tokens.weight[1].zero_()
    return model


def make_batch(lengths=(17, 9, 1, 13), *, seed: int = 0):
    """Ids (B, T) with padding, which positions are predicted (B, T), and their targets (M,)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 74, (len(lengths), max(lengths)), generator=generator)
    tokens[:, 0] = 0
    for row, length in enumerate(lengths):
        tokens[row, length:] = 1
    masked = torch.rand(tokens.shape, generator=generator).lt(0.3) & tokens.ne(1)
    targets = torch.randint(4, 74, (int(masked.sum()),), generator=generator)
    return tokens, masked, targets


def gathered(masked, targets):
    """The same as `masked` (B, T) and `targets` (M,) in the form that our model takes: positions and labels (B, Q)."""
    room = int(masked.sum(dim=1).max()) + 1
    positions = torch.zeros(len(masked), room, dtype=torch.int64)
    labels = torch.ones_like(positions)
    left = iter(targets.tolist())
    for row, chosen in enumerate(masked):
        for column, position in enumerate(chosen.nonzero()[:, 0].tolist()):
            positions[row, column], labels[row, column] = position, next(left)
    return {"positions": positions, "labels": labels, "number": len(targets)}


def on_device(values, device):
    """The same values by name, the tensors among them on a device."""
    return {name: value.to(device) if torch.is_tensor(value) else value for name, value in values.items()}


def assert_one_step(model, before, after, *, atol=2e-6, rtol=1e-4):
    """Between two states lies a step of 1 along a model's gradients in float64; returns the parameters without one."""
    parameters = {name: each for name, each in model.state_dict(keep_vars=True).items() if each.requires_grad}
    learned = {name: each.grad for name, each in parameters.items() if each.grad is not None}
    changes = {name: (before[name] - after[name]).double() for name in learned}
    torch.testing.assert_close(changes, learned, atol=atol, rtol=rtol)
    return parameters.keys() - learned.keys()
