"""The registered model and its options: sizes, what is refused, and the steps of a forward pass."""

import logging
import os
from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import OmegaConf

from roberta_plugin.models.config import FastRobertaConfig, read_config
from roberta_plugin.models.cpu import SHAPES_KEPT
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.registry import HEADS
from tests.refusals import refused
from tests.tiny_models import MAX_POSITIONS, TinyTask, gathered, make_batch, options, our_model


def test_outputs_have_the_documented_shapes():
    model = our_model()
    tokens, masked, targets = make_batch()
    model.register_classification_head("task", num_classes=3)
    assert model(tokens)[0].shape == (4, 17, 75)
    assert model(tokens, masked_tokens=masked)[0].shape == (len(targets), 75)
    assert model(tokens, features_only=True)[0].shape == (4, 17, 24)
    assert model(tokens, head="task")[0].shape == (4, 3)
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


PLACES = {"positions": torch.tensor([[0, 1]] * 4), "labels": torch.tensor([[5, 6]] * 4)}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"head": "tags", "classification_head_name": "kind"}, ("'tags'", "'kind'")),
        ({"head": "tag"}, ("'tag'", "kind, tags, chosen")),
        ({"classification_head_name": "kinds"}, ("'kinds'", "kind, tags, chosen")),
        ({"head": "chosen"}, ("'chosen'", "`predicted`")),
        ({"head": "kind", "features_only": True}, ("head", "features_only")),
        ({"head": "tags", "predicted": PLACES}, ("head", "predicted")),
        ({"masked_tokens": torch.ones(4, 17, dtype=torch.bool), "predicted": PLACES}, ("masked_tokens", "predicted")),
        ({"predicted": PLACES, "return_all_hiddens": True}, ("return_all_hiddens", "predicted")),
    ],
    ids=str,
)
def test_calls_that_contradict_themselves_are_refused(arguments, named):
    model = our_model()
    model.register_head("kind", "classification", num_classes=3)
    model.register_head("tags", "made_token", num_classes=2)
    model.register_head("chosen", "made_place", num_layers=0)
    said = refused(r"give|leave|has", model, make_batch()[0], **arguments)
    assert all(name in said for name in named)


def test_misspelt_arguments_and_kinds_of_heads_that_do_not_exist_are_refused_by_name():
    for name in ("featurs_only", "sentences", "made_head_name", "masked_token"):
        refused(name, our_model(), make_batch()[0], **{name: True}, error=TypeError)
    message = rf"'tokens'.*{', '.join(HEADS)}"
    refused(message, our_model().register_head, "tags", "tokens", num_classes=2)


def test_what_fairseqs_tasks_and_criterions_give_is_understood():
    model, (tokens, masked, _) = our_model(), make_batch()
    model.register_classification_head("kind", num_classes=3)
    batch = {"src_tokens": tokens, "src_lengths": torch.tensor([17] * 4), "src_id": 1, "prev_output_tokens": tokens}
    found = model(**batch, features_only=True, classification_head_name="kind")[0]
    assert torch.equal(found, model(tokens, head="kind")[0])
    assert torch.equal(model(**batch, masked_tokens=masked)[0], model(tokens, masked_tokens=masked)[0])
    assert list(model.classification_heads) == ["kind"]


def test_the_attention_backend_is_said_once_in_training(caplog):
    model = our_model()
    tokens, masked, targets = make_batch()
    with caplog.at_level(logging.INFO):
        model.eval()(tokens)
        assert "attention backend" not in caplog.text
        for update in range(2):
            model.set_num_updates(update)
            model.train()(tokens, predicted=gathered(masked, targets))
    said = "attention backend: sdpa (--attention-backend auto) for padded batches on cpu in float32"
    assert caplog.text.count(said) == 1
    assert "dropout 0.0; kernel: flash\n" in caplog.text


def test_only_a_training_keeps_fewer_shapes_of_products(monkeypatch):
    for variable in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        monkeypatch.setenv(variable, "")  # so that its value of before comes back at the end
        monkeypatch.delenv(variable)
    model = our_model()
    model.eval()(make_batch()[0])
    assert "LRU_CACHE_CAPACITY" not in os.environ
    model.set_num_updates(1)
    assert os.environ["LRU_CACHE_CAPACITY"] == os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == str(SHAPES_KEPT)


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
            for update in range(25):
                model.set_num_updates(update)
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


def sizes_of(cfg):
    return (cfg.encoder_layers, cfg.encoder_embed_dim, cfg.encoder_ffn_embed_dim, cfg.encoder_attention_heads)


@pytest.mark.parametrize(
    ("arch", "sizes"),
    [
        ("fast_roberta_tiny", (2, 128, 512, 2)),
        ("fast_roberta_mini", (4, 256, 1024, 4)),
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
    given = Namespace(encoder_layers=3)
    ARCH_CONFIG_REGISTRY[arch](given)
    assert sizes_of(read_config(given, max_positions=64)) == (3, *sizes[1:]), "what the user gives wins"


@pytest.mark.parametrize(
    "wrap", [lambda options: Namespace(**options), OmegaConf.create, lambda o: FastRobertaConfig(**o)]
)
def test_every_form_of_fairseqs_options_is_read(wrap):
    cfg = read_config(wrap({"encoder_layers": 5, "max_positions": None, "activation_fn": "relu"}), max_positions=77)
    assert (cfg.encoder_layers, cfg.max_positions, cfg.activation_fn) == (5, 77, "relu")
    assert read_config(wrap({"max_positions": 12}), max_positions=77).max_positions == 12
    refused("--max-positions is missing", read_config, wrap({"encoder_layers": 5}), max_positions=None)


def test_what_describes_no_model_is_refused_by_name():
    heads = r"--encoder-embed-dim \(768\) must be a multiple of --encoder-attention-heads \(7\)"
    for option, value, message in (
        ("encoder_attention_heads", 7, heads),
        ("init_std", "widht", "--init-std must be a number above 0, at most 1, or the word width, .*, got 'widht'"),
        ("init_std", 0.0, "--init-std must be a number above 0"),
    ):
        refused(message, read_config, Namespace(**{option: value}), max_positions=512)
