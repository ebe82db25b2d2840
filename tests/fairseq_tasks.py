"""What every fine-tuning task of fairseq keeps: the place of its head, and the metric that chooses checkpoints."""

from argparse import Namespace
from contextlib import nullcontext

import pytest
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


def check_head_above(task, head, kind):
    """Check that a head (the name of a module) is above all layers, and that fairseq's own model is refused."""
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
    above = {name: parameter.optim_overrides["layers_above"] for name, parameter in model.named_parameters()}
    assert above[f"heads.{head}.weight"] == 0
    assert above["encoder.sentence_encoder.embed_tokens.weight"] == 2
    with pytest.raises(ValueError, match=f"RobertaModel has no {kind} heads: use --arch fast_roberta_base"):
        task.build_model(Namespace(arch="roberta_base", **SIZES))


def check_selection(task, options, sentence):
    """Check whether a criterion takes --best-checkpoint-metric and --max-valid-steps; a sentence: it is refused."""
    args = ["data", "--task", task.name, "--criterion", task.name, "--arch", "fast_roberta_tiny"]
    args += ["--optimizer", "roberta_adamw"]
    for option, value in zip(("--best-checkpoint-metric", "--max-valid-steps"), options, strict=False):
        args += [option, str(value)]
    args += options[2:]
    cfg = convert_namespace_to_omegaconf(parse_args_and_arch(get_training_parser(), args)).criterion
    with pytest.raises(ValueError, match=sentence) if sentence else nullcontext():
        task.build_criterion(cfg)
