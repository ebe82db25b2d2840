"""A step of masked LM with next-sentence prediction: against Hugging Face's BERT, and a plain reference in float64."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.models.attention import BACKENDS
from tests.hugging_face import import_transformers
from tests.tiny_models import MAX_POSITIONS
from tests.tiny_pairs import PAD, VOCAB, pair_dataset, pair_model, some_addresses

transformers = import_transformers()

# fmt: off
NAMES = {
    "encoder.sentence_encoder.embed_tokens.":              "bert.embeddings.word_embeddings.",
    "encoder.sentence_encoder.embed_positions.":           "bert.embeddings.position_embeddings.",
    "encoder.sentence_encoder.segment_embeddings.":        "bert.embeddings.token_type_embeddings.",
    "encoder.sentence_encoder.layernorm_embedding.":       "bert.embeddings.LayerNorm.",
    "encoder.sentence_encoder.layers.":                    "bert.encoder.layer.",
    ".self_attn.q_proj.":                                  ".attention.self.query.",
    ".self_attn.k_proj.":                                  ".attention.self.key.",
    ".self_attn.v_proj.":                                  ".attention.self.value.",
    ".self_attn.out_proj.":                                ".attention.output.dense.",
    ".self_attn_layer_norm.":                              ".attention.output.LayerNorm.",
    ".fc1.":                                               ".intermediate.dense.",
    ".fc2.":                                               ".output.dense.",
    ".final_layer_norm.":                                  ".output.LayerNorm.",
    "encoder.next_sentence_head.dense.":                   "bert.pooler.dense.",
    "encoder.next_sentence_head.out_proj.":                "cls.seq_relationship.",
    "encoder.lm_head.dense.":                              "cls.predictions.transform.dense.",
    "encoder.lm_head.layer_norm.":                         "cls.predictions.transform.LayerNorm.",
    "encoder.lm_head.bias":                                "cls.predictions.bias",
    "encoder.lm_head.weight":                              "cls.predictions.decoder.weight",
}
# fmt: on
ROWS_BEFORE_POSITIONS = 2


def as_bert(named):
    """Tensors by our names -> by Hugging Face's, without the rows of positions that BERT does not have."""
    renamed = {}
    for name, value in named:
        theirs = name
        for ours, of_bert in NAMES.items():
            theirs = theirs.replace(ours, of_bert)
        renamed[theirs] = value[ROWS_BEFORE_POSITIONS:] if "embed_positions" in name else value
    renamed.pop("encoder.sentence_encoder.version", None)
    return renamed


CRITERION = RobertaMaskedLMCriterion(SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD)))


def step(model, batch):
    """Loss by the sample size and gradients, as the trainer forms them."""
    loss, sample_size, log = CRITERION(model, batch)
    (loss / sample_size).backward()
    return (loss / sample_size).detach(), log


@pytest.mark.parametrize("pair_format", ["segment-pair", "sentence-pair"])
def test_the_sum_of_losses_and_its_gradients_are_those_of_bert(pair_format, tmp_path):
    dataset = pair_dataset(tmp_path, pair_format=pair_format)
    batch = dataset.__getitems__(some_addresses(dataset))
    assert 0 < batch["sequence_labels"]["nsp"].sum() < len(batch["sequence_labels"]["nsp"])
    ours = pair_model().train()
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    config = transformers.BertConfig(
        **sizes, vocab_size=VOCAB, max_position_embeddings=MAX_POSITIONS, type_vocab_size=2, pad_token_id=PAD,
        layer_norm_eps=1e-5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    bert = transformers.BertForPreTraining(config).train()
    missing, unexpected = bert.load_state_dict(as_bert(ours.state_dict().items()), strict=False)
    assert not unexpected and set(missing) <= {"cls.predictions.decoder.bias", "bert.embeddings.position_ids"}
    tokens, target = batch["net_input"]["src_tokens"], batch["target"]
    expected = bert(
        input_ids=tokens,
        attention_mask=tokens.ne(PAD).long(),
        token_type_ids=batch["net_input"]["segments"],
        labels=target.masked_fill(target.eq(PAD), -100),
        next_sentence_label=batch["sequence_labels"]["nsp"],
    )
    expected.loss.backward()
    loss, log = step(ours, batch)
    torch.testing.assert_close(loss, expected.loss.detach(), atol=1e-5, rtol=1e-5)
    counts = {"num_tokens": batch["ntokens"], "num_pairs": batch["npairs"], "num_predicted": log["sample_size"]}
    assert log["flops"] == ours.training_flops(**counts, num_sequences=len(batch["sequence_labels"]["nsp"]))
    of_bert = dict(bert.named_parameters())
    gradients = as_bert((name, parameter.grad) for name, parameter in ours.named_parameters())
    assert len(gradients) > 55
    for name, gradient in gradients.items():
        if name != "cls.predictions.decoder.weight":  # tied to the embeddings
            torch.testing.assert_close(gradient, of_bert[name].grad, atol=2e-5, rtol=1e-3, msg=name)

    ours.eval()
    _, _, evaluated = CRITERION(ours, batch)
    correct = expected.seq_relationship_logits.argmax(dim=1).eq(batch["sequence_labels"]["nsp"]).sum()
    assert evaluated["sequences_correct_nsp"] == log["sequences_correct_nsp"] == correct
    torch.testing.assert_close(evaluated["sequence_loss_nsp"], log["sequence_loss_nsp"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(evaluated["loss"], log["loss"], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("pack", [False, True])
def test_a_step_is_that_of_a_plain_reference_in_float64(pack, tmp_path):
    """All features, ordinary cross-entropy of both tasks; our step gathers positions, also from a packed row."""
    plain = pair_dataset(tmp_path)
    addresses = some_addresses(plain, num_pairs=7, number=2)
    batch = plain.__getitems__(addresses)
    reference = pair_model().double()
    features, _ = reference(**batch["net_input"], features_only=True)
    is_predicted = batch["target"].ne(PAD)
    masked_lm = F.cross_entropy(reference.encoder.lm_head(features)[is_predicted], batch["target"][is_predicted])
    head = reference.encoder.next_sentence_head
    pooled = torch.tanh(features[:, 0] @ head.dense.weight.T + head.dense.bias)
    scores = pooled @ head.out_proj.weight.T + head.out_proj.bias
    expected = masked_lm + F.cross_entropy(scores, batch["sequence_labels"]["nsp"])
    expected.backward()

    ours = pair_model().double().train()
    if pack:
        options = {"pack": True, "pad_to_multiple": 64}
        batch = pair_dataset(tmp_path / "again", **options).__getitems__(addresses)
        assert batch["net_input"]["src_tokens"].size(1) > batch["ntokens"]  # there is padding
    loss, _ = step(ours, batch)
    # Our loss sums in fp32, as in training.
    torch.testing.assert_close(loss.double(), expected.detach(), atol=1e-6, rtol=1e-6)
    for (name, one), (_, other) in zip(ours.named_parameters(), reference.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-5, msg=name)


SERVED = [(name, pack) for name, backend in BACKENDS.items() for pack in (False, True) if pack or backend.serves_padded]


@pytest.mark.parametrize(("backend", "pack"), SERVED)
def test_every_attention_backend_gives_the_same_step(backend, pack, tmp_path):
    dataset = pair_dataset(tmp_path, pack=pack, pad_to_multiple=8)
    batch = dataset.__getitems__(some_addresses(dataset))
    expected, _ = step(pair_model().train(), pair_dataset(tmp_path).__getitems__(some_addresses(dataset)))
    model = pair_model(attention_backend=backend).train()
    try:
        loss, _ = step(model, batch)
    except RuntimeError as error:  # of backends that need a GPU
        pytest.skip(str(error))
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
