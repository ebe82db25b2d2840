"""Heads and sizes of a checkpoint beside those of the model that loads it; heads read <s> alone, packed or not."""

import pytest
import torch

from tests.tiny_models import make_batch, our_model


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
            scores, extra = model(tokens, classification_head_name="task", return_all_hiddens=True)
            assert len(extra["inner_states"]) == 4
        elif how == "padded":
            scores, _ = model(tokens, classification_head_name="task")
        else:
            row, packing = packed(tokens, lengths)
            scores = model(row, classification_head_name="task", packing=packing)[0][: len(lengths)]
        (scores * torch.arange(12.0).view(4, 3)).sum().backward()
        results.append([scores, *(p.grad for n, p in model.named_parameters() if "lm_head" not in n)])
    assert len(results[0]) > 40
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_span_scores_have_one_number_a_token_and_one_a_sequence():
    tokens, _, _ = make_batch((17, 9))
    model = our_model().eval()
    model.register_span_head("answer")
    spans, _ = model(tokens, span_head_name="answer")
    assert spans.start.shape == spans.end.shape == (2, 17)
    assert spans.answerable.shape == (2,)
    features, _ = model(tokens, features_only=True)
    head = model.span_heads["answer"]
    torch.testing.assert_close(torch.stack([spans.start, spans.end], dim=-1), head.span(features))
    torch.testing.assert_close(spans.answerable, head.answerable(features)[:, 0])


def test_span_heads_are_loaded_dropped_or_kept_like_the_others(caplog):
    saved, same, other = our_model(), our_model(seed=1), our_model(seed=2)
    saved.register_span_head("answer")
    same.register_span_head("answer")
    other.register_classification_head("task", num_classes=2)
    same.load_state_dict(saved.state_dict())
    assert torch.equal(same.span_heads["answer"].span.weight, saved.span_heads["answer"].span.weight)
    assert "left out" not in caplog.text
    other.load_state_dict(saved.state_dict())
    assert "span_heads.answer of the checkpoint does not fit this model and is left out" in caplog.text


def test_token_heads_score_every_token_and_are_loaded_or_dropped_like_the_others(caplog):
    tokens, _, _ = make_batch((17, 9))
    saved, same, other = our_model(), our_model(seed=1, load_checkpoint_heads=True), our_model(seed=2)
    saved.register_token_head("tags", 5)
    found, _ = saved.eval()(tokens, token_head_name="tags")
    assert found.shape == (2, 17, 5)
    features, _ = saved(tokens, features_only=True)
    torch.testing.assert_close(found, saved.token_heads["tags"].out_proj(features))
    same.load_state_dict(saved.state_dict())
    torch.testing.assert_close(same.eval()(tokens, token_head_name="tags")[0], found)
    assert "left out" not in caplog.text
    other.register_token_head("tags", 3)
    other.load_state_dict(saved.state_dict())
    assert "token_heads.tags of the checkpoint does not fit this model and is left out" in caplog.text


def test_another_vocabulary_and_another_length_are_refused_with_both_numbers():
    model = our_model()
    state = model.state_dict()
    name = "encoder.sentence_encoder.embed_tokens.weight"
    with pytest.raises(ValueError, match="vocabulary of 80 symbols, and the data one of 75"):
        model.load_state_dict({**state, name: torch.zeros(80, 24)})
    name = "encoder.sentence_encoder.embed_positions.weight"
    with pytest.raises(ValueError, match="has 64 positions, and this model 40: give --max-positions 64"):
        model.load_state_dict({**state, name: torch.zeros(66, 24)})
