"""Options: the sizes are the paper's, and what describes no model is refused by name."""

from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import OmegaConf

from roberta_plugin.models.config import FastRobertaConfig, read_config


def sizes_of(cfg):
    return (cfg.encoder_layers, cfg.encoder_embed_dim, cfg.encoder_ffn_embed_dim, cfg.encoder_attention_heads)


@pytest.mark.parametrize(
    ("arch", "sizes"),
    [
        ("fast_roberta_tiny", (2, 128, 512, 2)),
        ("fast_roberta_small", (4, 512, 2048, 8)),
        ("fast_roberta_base", (12, 768, 3072, 12)),  # the paper's Table 9
        ("fast_roberta_large", (24, 1024, 4096, 16)),
    ],
)
def test_an_architecture_sets_its_sizes_and_no_more(arch, sizes):
    args = Namespace(attention_dropout=0.0)
    ARCH_CONFIG_REGISTRY[arch](args)
    cfg = read_config(args, max_positions=512)
    assert sizes_of(cfg) == sizes
    assert (cfg.dropout, cfg.attention_dropout, cfg.activation_dropout) == (0.1, 0.0, 0.0)


def test_what_the_user_gives_wins_over_the_architecture():
    args = Namespace(encoder_layers=3)
    ARCH_CONFIG_REGISTRY["fast_roberta_tiny"](args)
    assert sizes_of(read_config(args, max_positions=64)) == (3, 128, 512, 2)


@pytest.mark.parametrize(
    "wrap", [lambda options: Namespace(**options), OmegaConf.create, lambda o: FastRobertaConfig(**o)]
)
def test_every_form_of_fairseqs_options_is_read(wrap):
    cfg = read_config(wrap({"encoder_layers": 5, "max_positions": None, "activation_fn": "relu"}), max_positions=77)
    assert (cfg.encoder_layers, cfg.max_positions, cfg.activation_fn) == (5, 77, "relu")
    assert read_config(wrap({"max_positions": 12}), max_positions=77).max_positions == 12
    with pytest.raises(ValueError, match="--max-positions is missing"):
        read_config(wrap({"encoder_layers": 5}), max_positions=None)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "encoder_attention_heads",
            7,
            r"--encoder-embed-dim \(768\) must be a multiple of --encoder-attention-heads \(7\)",
        ),
        ("init_std", "widht", "--init-std must be a number above 0, at most 1, or the word width, .*, got 'widht'"),
        ("init_std", 0.0, "--init-std must be a number above 0"),
    ],
)
def test_what_describes_no_model_is_refused_by_name(option, value, message):
    with pytest.raises(ValueError, match=message):
        read_config(Namespace(**{option: value}), max_positions=512)
