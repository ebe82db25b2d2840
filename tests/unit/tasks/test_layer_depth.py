import pytest
from fairseq.optim import FP16Optimizer

from roberta_plugin.tasks.layer_depth import set_layer_depths
from tests.tiny_models import fairseq_model, our_model


@pytest.mark.parametrize("make", [our_model, fairseq_model])
def test_heads_are_on_top_and_embeddings_at_the_bottom(make):
    model = make()
    model.register_classification_head("head", num_classes=2)
    set_layer_depths(model)
    above = {name: parameter.optim_overrides["layers_above"] for name, parameter in model.named_parameters()}
    layer = "encoder.sentence_encoder.layers.{}.fc1.weight"
    assert [above[layer.format(number)] for number in range(3)] == [3, 2, 1]
    assert above["encoder.sentence_encoder.embed_positions.weight"] == 4
    assert above["encoder.sentence_encoder.embed_tokens.weight"] == 4
    (head,) = (name for name in above if name.endswith("heads.head.dense.weight"))
    assert above[head] == above["encoder.lm_head.dense.weight"] == 0
    assert set(above.values()) == {0, 1, 2, 3, 4}


def test_moving_a_model_and_copying_its_parameters_keeps_what_was_told():
    model = our_model()
    set_layer_depths(model)
    model.bfloat16()
    parameters = list(model.parameters())
    copies = FP16Optimizer.build_fp32_params(None, parameters, flatten=False)
    assert [copy.optim_overrides for copy in copies] == [parameter.optim_overrides for parameter in parameters]
    assert len({copy.optim_overrides["layers_above"] for copy in copies}) == 5
