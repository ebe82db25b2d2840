"""A checkpoint with other heads, sizes or segments than the model's loads what fits, or is refused by name."""

import copy
import logging
import pickle

import pytest
import torch

from tests.tiny_models import TinyTask, make_batch, our_model
from tests.tiny_pairs import PairTask, pair_model


def packed(tokens, lengths, *, room=5):
    """The same sequences end to end in one row, with padding at its end."""
    row = torch.cat([tokens[i, :length] for i, length in enumerate(lengths)] + [torch.ones(room, dtype=torch.int64)])
    positions = torch.cat([torch.arange(length) for length in lengths] + [torch.zeros(room, dtype=torch.int64)])
    cu_seqlens = torch.tensor([0, *torch.tensor(lengths).cumsum(0), len(row)], dtype=torch.int32)
    return row[None], {"positions": positions[None], "cu_seqlens": cu_seqlens, "max_seqlen": max(lengths)}


@pytest.mark.parametrize("how", ["padded", "packed"])
def test_scores_and_gradients_are_those_of_all_features(how):
    """The last layer is computed for <s> alone; asked for all hidden states, it is computed whole."""
    lengths = (17, 9, 1, 13)
    tokens, _, _ = make_batch(lengths)
    results = []
    for is_reference in (True, False):
        model = our_model()
        torch.manual_seed(5)
        model.register_classification_head("task", num_classes=3)
        if is_reference:
            scores, extra = model(tokens, head="task", return_all_hiddens=True)
            assert len(extra["inner_states"]) == 4
        elif how == "padded":
            scores, _ = model(tokens, head="task")
        else:
            row, packing = packed(tokens, lengths)
            scores = model(row, head="task", packing=packing)[0][: len(lengths)]
        (scores * torch.arange(12.0).view(4, 3)).sum().backward()
        results.append([scores, *(p.grad for n, p in model.named_parameters() if "lm_head" not in n)])
    assert len(results[0]) > 40
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_span_scores_have_one_number_a_token_and_one_a_sequence():
    tokens, _, _ = make_batch((17, 9))
    model = our_model().eval()
    model.register_head("answer", "span")
    spans, _ = model(tokens, head="answer")
    assert spans.start.shape == spans.end.shape == (2, 17)
    assert spans.answerable.shape == (2,)
    features, _ = model(tokens, features_only=True)
    head = model.heads["answer"]
    torch.testing.assert_close(torch.stack([spans.start, spans.end], dim=-1), head.span(features))
    torch.testing.assert_close(spans.answerable, head.answerable(features)[:, 0])


KINDS = {
    "classification": ({"num_classes": 3, "inner_dim": 10}, {"num_classes": 2}),
    "token": ({"num_classes": 5}, {"num_classes": 3}),
    "span": ({}, None),
    "sentence": ({"num_layers": 1}, {"num_layers": 2}),
}
# As checkpoints have named them since the first version; fairseq's roberta has those of classes.
PARAMETERS = {
    "classification": ["dense.weight", "dense.bias", "out_proj.weight", "out_proj.bias"],
    "token": ["out_proj.weight", "out_proj.bias"],
    "span": [
        *("span.weight", "span.bias", "answerable.dense.weight", "answerable.dense.bias"),
        *("answerable.out_proj.weight", "answerable.out_proj.bias"),
    ],
    "sentence": [
        *(f"layers.0.self_attn.{part}_proj.{name}" for part in ("k", "v", "q", "out") for name in ("weight", "bias")),
        *(f"layers.0.{part}.{name}" for part in ("self_attn_layer_norm", "fc1", "fc2") for name in ("weight", "bias")),
        *("layers.0.final_layer_norm.weight", "layers.0.final_layer_norm.bias", "out_proj.weight", "out_proj.bias"),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_checkpoints_are_loaded_dropped_or_kept(kind, caplog):
    """By the names that files have; `load_checkpoint_heads` builds a head that is in the file alone."""
    sizes, others = KINDS[kind]
    saved, same, built, other = our_model(), our_model(seed=1), our_model(load_checkpoint_heads=True), our_model(seed=2)
    bare = saved.state_dict()
    for model in (saved, same):
        model.register_head("mine", kind, **sizes)
    state = saved.state_dict()
    assert sorted(state.keys() - bare.keys()) == sorted(f"{kind}_heads.mine.{name}" for name in PARAMETERS[kind])
    same.register_head("other", kind, **sizes)
    kept = copy.deepcopy(same.heads["other"].state_dict())
    with caplog.at_level(logging.WARNING):
        same.load_state_dict(state)
        built.load_state_dict(state)
    assert caplog.text == ""
    for model in (same, built, pickle.loads(pickle.dumps(built))):
        assert model.head_kinds["mine"] == kind
        assert len(list(model.heads["mine"].parameters())) == len(PARAMETERS[kind])
        for name, value in model.heads["mine"].state_dict().items():
            assert torch.equal(value, state[f"{kind}_heads.mine.{name}"])
    for name, value in same.heads["other"].state_dict().items():
        assert torch.equal(value, kept[name])
    other.register_head("mine", kind if others else "token", **(others or {"num_classes": 2}))
    other.load_state_dict(state)
    assert f"{kind}_heads.mine of the checkpoint does not fit this model and is left out" in caplog.text
    assert torch.equal(other.encoder.lm_head.dense.weight, saved.encoder.lm_head.dense.weight)


def test_token_heads_score_every_token():
    tokens, _, _ = make_batch((17, 9))
    model = our_model().eval()
    model.register_head("tags", "token", num_classes=5)
    found, _ = model(tokens, head="tags")
    assert found.shape == (2, 17, 5)
    features, _ = model(tokens, features_only=True)
    torch.testing.assert_close(found, model.heads["tags"].out_proj(features))


def test_another_vocabulary_and_another_length_are_refused_with_both_numbers():
    model = our_model()
    state = model.state_dict()
    name = "encoder.sentence_encoder.embed_tokens.weight"
    with pytest.raises(ValueError, match="vocabulary of 80 symbols, and the data one of 75"):
        model.load_state_dict({**state, name: torch.zeros(80, 24)})
    name = "encoder.sentence_encoder.embed_positions.weight"
    with pytest.raises(ValueError, match="has 64 positions, and this model 40: give --max-positions 64"):
        model.load_state_dict({**state, name: torch.zeros(66, 24)})


class PlainTask(TinyTask):
    def __init__(self):
        super().__init__(num_symbols=120)


def test_a_model_without_segments_gives_what_the_first_segment_gave(caplog):
    theirs, ours = pair_model().eval(), pair_model(PlainTask(), seed=4).eval()
    state = theirs.state_dict()
    with caplog.at_level(logging.INFO):
        ours.load_state_dict(state)
    assert "added to the positions" in caplog.text and "this model has none" in caplog.text
    assert set(theirs.state_dict()) - set(ours.state_dict()) == {
        "encoder.sentence_encoder.segment_embeddings.weight",
        *(f"encoder.next_sentence_head.{name}" for name in ("dense.weight", "dense.bias")),
        *(f"encoder.next_sentence_head.{name}" for name in ("out_proj.weight", "out_proj.bias")),
    }
    tokens, _, _ = make_batch()
    is_token = tokens.ne(1)
    torch.testing.assert_close(ours(tokens)[0][is_token], theirs(tokens)[0][is_token], atol=1e-5, rtol=1e-5)
    assert ours.encoder.sentence_encoder.embed_positions.weight[1].abs().max() == 0  # padding stays


def test_a_model_with_them_begins_with_the_checkpoint_s_function(caplog):
    theirs, ours = pair_model(PlainTask(), seed=4).eval(), pair_model().eval()
    head = ours.encoder.next_sentence_head.dense.weight.clone()
    with caplog.at_level(logging.INFO):
        ours.load_state_dict(theirs.state_dict())
    assert "begin at zero" in caplog.text and "begins untrained" in caplog.text
    tokens, _, _ = make_batch()
    segments = torch.ones_like(tokens)
    torch.testing.assert_close(ours(tokens, segments=segments)[0], theirs(tokens)[0], atol=1e-6, rtol=1e-6)
    assert torch.equal(ours.encoder.next_sentence_head.dense.weight, head)


def test_models_of_one_kind_exchange_everything(caplog):
    theirs, ours = pair_model(seed=2), pair_model()
    with caplog.at_level(logging.INFO):
        ours.load_state_dict(theirs.state_dict())
    assert not caplog.text
    assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in ours.state_dict().items())


@pytest.mark.parametrize("segments", [0, 2])
def test_parameters_follow_from_the_task(segments):
    class Task(PairTask):
        num_segments = segments
        predicts_next_sentence = segments == 0

    names = set(pair_model(Task()).state_dict())
    assert ("encoder.sentence_encoder.segment_embeddings.weight" in names) == (segments == 2)
    assert ("encoder.next_sentence_head.dense.weight" in names) == (segments == 0)
