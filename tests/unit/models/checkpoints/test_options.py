"""Options read off a checkpoint build a model that loads it."""

import argparse

import pytest
import torch

from roberta_plugin.models.checkpoints.options import model_options
from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_models import TinyTask, fairseq_model, options, our_model


@pytest.mark.parametrize("build", [our_model, fairseq_model])
@pytest.mark.parametrize("form", ["cfg", "args"])
def test_a_model_built_from_the_options_loads_the_checkpoint(build, form):
    model = build(activation_fn="gelu", untie_weights_roberta=build is our_model)
    kept = options(untie_weights_roberta=build is our_model, activation_fn="gelu")
    state = {"model": model.state_dict(), "cfg": None, "args": None}
    state[form] = kept if form == "args" else {"model": kept if build is fairseq_model else vars(kept)}
    found = model_options(state)
    assert found.pop("arch") == "fast_roberta"
    values = {name.replace("-", "_"): value for name, value in found.items()}
    for name in (
        "encoder_layers",
        "encoder_embed_dim",
        "encoder_ffn_embed_dim",
        "encoder_attention_heads",
        "max_positions",
    ):
        values[name] = int(values[name])
    values["untie_weights_roberta"] = values.get("untie_weights_roberta") == "true"
    again = FastRobertaModel.build_model(argparse.Namespace(**values), TinyTask())
    again.load_state_dict(model.state_dict())
    assert again.cfg.encoder_attention_heads == 4
    tokens = torch.randint(4, 70, (2, 9))
    torch.testing.assert_close(again.eval()(tokens)[0], model.eval()(tokens)[0], atol=1e-5, rtol=1e-5)


def test_what_is_no_roberta_is_refused():
    with pytest.raises(ValueError, match=r"not a checkpoint of a RoBERTa.*embed_tokens\.weight"):
        model_options({"model": {"decoder.weight": torch.zeros(2)}})
    with pytest.raises(ValueError, match="encoder_attention_heads"):
        model_options({"model": our_model().state_dict(), "cfg": None, "args": None})
