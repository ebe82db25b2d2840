"""The registered model: its outputs, its heads, and checkpoints whose heads do not fit."""

import logging

import pytest
import torch

from roberta_plugin.models.roberta import FastRobertaModel
from tests.tiny_models import MAX_POSITIONS, TinyTask, gathered, make_batch, options, our_model


def test_outputs_have_the_documented_shapes():
    model = our_model()
    tokens, masked, targets = make_batch()
    model.register_classification_head("task", num_classes=3)
    assert model(tokens)[0].shape == (4, 17, 75)
    assert model(tokens, masked_tokens=masked)[0].shape == (len(targets), 75)
    assert model(tokens, features_only=True)[0].shape == (4, 17, 24)
    assert model(tokens, classification_head_name="task")[0].shape == (4, 3)
    assert model(tokens, predicted=gathered(masked, targets))[0].shape == ()
    assert model(tokens)[1]["inner_states"] is None
    assert [h.shape for h in model(tokens, return_all_hiddens=True)[1]["inner_states"]] == [(17, 4, 24)] * 4
    assert model.max_positions() == MAX_POSITIONS
    assert model.supported_targets == {"self"}


def test_probabilities_sum_to_one():
    model = our_model()
    output = model(make_batch()[0])
    probabilities = model.get_normalized_probs(output, log_probs=False)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(4, 17))
    torch.testing.assert_close(model.get_normalized_probs(output, log_probs=True).exp(), probabilities)


def test_the_length_comes_from_the_task_unless_it_is_given():
    args = options(max_positions=None)
    assert FastRobertaModel.build_model(args, TinyTask()).encoder.sentence_encoder.embed_positions.weight.shape[0] == 42


def test_output_matrix_is_the_embeddings_unless_untied():
    tied, untied = our_model(), our_model(untie_weights_roberta=True)
    assert tied.encoder.lm_head.weight is tied.encoder.sentence_encoder.embed_tokens.weight
    assert untied.encoder.lm_head.weight is not untied.encoder.sentence_encoder.embed_tokens.weight
    assert sum(p.numel() for p in untied.parameters()) == sum(p.numel() for p in tied.parameters()) + 75 * 24


@pytest.mark.parametrize("num_classes", [None, 2])
def test_heads_that_do_not_fit_are_left_out_and_said_so(num_classes, caplog):
    saved = our_model()
    saved.register_classification_head("task", num_classes=3)
    model = our_model(seed=1)
    if num_classes:
        model.register_classification_head("task", num_classes=num_classes)
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(saved.state_dict())
    assert "classification_heads.task of the checkpoint does not fit this model and is left out" in caplog.text
    assert torch.equal(model.encoder.lm_head.dense.weight, saved.encoder.lm_head.dense.weight)


def test_heads_that_fit_are_loaded_and_new_ones_keep_their_weights():
    saved, model = our_model(), our_model(seed=1)
    saved.register_classification_head("task", num_classes=3)
    model.register_classification_head("task", num_classes=3)
    model.register_classification_head("other", num_classes=2)
    before = model.classification_heads["other"].dense.weight.clone()
    model.load_state_dict(saved.state_dict())
    heads = model.classification_heads
    assert torch.equal(heads["task"].out_proj.weight, saved.classification_heads["task"].out_proj.weight)
    assert torch.equal(heads["other"].dense.weight, before)


def test_the_attention_backend_is_said_once_in_training(caplog):
    model = our_model()
    tokens, masked, targets = make_batch()
    with caplog.at_level(logging.INFO):
        model.eval()(tokens)
        assert "attention backend" not in caplog.text
        for _ in range(2):
            model.train()(tokens, predicted=gathered(masked, targets))
    assert (
        caplog.text.count("attention backend: sdpa (--attention-backend auto) for padded batches on cpu in float32")
        == 1
    )
    assert "dropout 0.0; kernel: flash\n" in caplog.text


def test_training_learns_as_well_with_rounded_products():
    """--matmul-precision medium: 25 updates on one batch; validation alone changes no setting of torch's."""
    tokens, masked, targets = make_batch()
    before, losses = torch.get_float32_matmul_precision(), {}
    try:
        for precision in ("highest", "medium"):
            torch.set_float32_matmul_precision("highest")
            model = our_model(matmul_precision=precision, encoder_embed_dim=32)
            model.eval()(tokens)
            assert torch.get_float32_matmul_precision() == "highest"
            optimizer = torch.optim.AdamW(model.train().parameters(), lr=3e-3)
            losses[precision] = []
            for _ in range(25):
                loss, _ = model(tokens, predicted=gathered(masked, targets))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses[precision].append(loss.item())
            assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert losses["medium"][-1] < 0.6 * losses["medium"][0]
    assert losses["medium"] == pytest.approx(losses["highest"], rel=0.05, abs=0.5)
