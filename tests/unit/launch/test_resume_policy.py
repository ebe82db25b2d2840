"""Every option of fairseq-train says what may change of it when a run resumes."""

from dataclasses import dataclass

import pytest

from roberta_plugin.launch.arguments import parse
from roberta_plugin.launch.resume_policy import BATCH, FAIRSEQ, FREE, SAME, policies
from roberta_plugin.settings import setting

PRETRAINING = [
    *("data", "--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--arch", "fast_roberta_base"),
    *("--optimizer", "roberta_adamw", "--lr-scheduler", "linear_stages", "--lr-stages", "1:1"),
]


def test_each_option_of_fairseq_is_listed_once():
    from fairseq import options

    names = [action.dest for action in options.get_training_parser()._actions if action.dest != "help"]
    assert len(names) > 100
    assert sorted(FAIRSEQ) == sorted(names)


def test_our_own_options_say_it_where_they_are_declared():
    policy = policies(parse(PRETRAINING))
    free = ("attention_backend", "checkpoint_activations", "compile_layers", "gradient_sum", "no_pack_sequences")
    assert {policy[name] for name in (*free, "no_baselines", "load_checkpoint_heads")} == {FREE}
    assert {policy[name] for name in ("update_sequences", "batch_size", "max_tokens", "update_freq")} == {BATCH}
    # Earlier versions compared the beginnings of names, and these begin as --no-progress-bar does.
    switches = ("no_layernorm_embedding", "no_first_attention_norm", "no_norm_bias", "no_linear_bias")
    trained = ("no_decay_norms_and_biases", "zero_init_residual", "mask_prob", "lr_stages")
    assert {policy[name] for name in (*switches, *trained, "data", "seed", "lr")} == {SAME}


def test_options_of_fairseqs_own_classes_are_compared():
    policy = policies(parse(["data", "--task", "masked_lm", "--arch", "roberta_base", "--optimizer", "adam"]))
    assert {policy[name] for name in ("mask_prob", "quant_noise_pq", "adam_betas", "fp16_adam_stats")} == {SAME}


def test_a_misspelt_policy_is_refused():
    @dataclass
    class Options:
        shown: bool = setting(False, "show it", on_resume="free")

    assert Options.__dataclass_fields__["shown"].metadata["on_resume"] == FREE
    with pytest.raises(ValueError, match="on_resume must be same or free or batch, got 'fre'"):
        setting(False, "show it", on_resume="fre")
