"""What the fields of the model's options say of themselves, for all that reads them."""

from dataclasses import fields

from roberta_plugin.models.config import (
    ARCHITECTURE,
    BEYOND_HUGGING_FACE,
    INITIAL,
    SWITCHES,
    FastRobertaConfig,
    fitting_options,
    given_switches,
)

OF_TRAINING = {
    *("dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "pooler_dropout"),
    *("checkpoint_activations", "compile_layers", "fp8_products", "gradient_sum", "attention_backend"),
    *("matmul_precision", "load_checkpoint_heads"),
}
"""Options with which the same weights are another training, or are computed otherwise: none describes the model."""


def test_each_option_describes_the_model_or_its_initial_weights_or_is_known_to_be_of_the_training_alone():
    """A new one is made by `setting`, `model_setting`, `initial_setting` or `switch`: decide."""
    options = {item.name for item in fields(FastRobertaConfig) if "help" in item.metadata}
    known = [*ARCHITECTURE, *INITIAL, *OF_TRAINING]
    assert len(known) == len({*known}) and {*known} == options
    assert SWITCHES.keys() <= {*BEYOND_HUGGING_FACE} <= {*ARCHITECTURE}


def test_weights_fit_another_value_where_the_field_says_so_of_both_models():
    learned = {"position_encoding": "learned", "untie_weights_roberta": False}
    rotary = {"position_encoding": "rotary", "untie_weights_roberta": True}
    always = fitting_options(learned, learned) & fitting_options(rotary, rotary)
    assert {"--attention-window", "--encoder-attention-heads", "--rotary-base"} <= always
    assert always.isdisjoint({"--qk-norm", "--feed-forward", "--norm", "--position-encoding", "--encoder-layers"})
    assert fitting_options(learned, rotary) == always | {"--untie-weights-roberta"}
    assert fitting_options(rotary, rotary) == always | {"--max-positions"}
    assert fitting_options(rotary, learned) == always


def test_switches_are_listed_as_the_command_line_has_them():
    assert given_switches({"encoder_layers": 3, "feed_forward": "plain", "rotary_base": 1e4}) == []
    assert given_switches({"qk_norm": True, "norm": "rms", "attention_window": 8}) == [
        "--norm rms",
        "--qk-norm",
        "--attention-window 8",
    ]
