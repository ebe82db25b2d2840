"""Scores of masked phrases are those of a plain loop."""

import pytest
import torch

from roberta_plugin.extensions.pronouns.training import phrase_scores
from tests.tiny_models import fairseq_model, our_model

MASK = 74
LENGTHS, COUNTS = [9, 11, 6, 12, 12], [2, 3]
BEFORE, AFTER = [2, 4], [3, 1]
PHRASE_SIZES = [4, 6, 1, 7, 7]  # of the phrases


def make_sample(*, pack=False):
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(4, 74, (length,), generator=generator) for length in LENGTHS]
    for row in rows:
        row[0], row[-1] = 0, 2
    lengths = torch.tensor(LENGTHS)
    if pack:
        positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
        cu_seqlens = torch.tensor([0, *lengths.cumsum(0).tolist()], dtype=torch.int32)
        packing = {"positions": positions, "cu_seqlens": cu_seqlens, "max_seqlen": 12}
        inputs = {"src_tokens": torch.cat(rows)[None], "packing": packing}
    else:
        inputs = {"src_tokens": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)}
    columns = {"before": torch.tensor(BEFORE), "after": torch.tensor(AFTER)}
    inputs["src_lengths"] = lengths
    return rows, {"net_input": inputs, "offsets": torch.tensor([0, 2, 5]), "columns": columns}


def plain_scores(model, rows):
    scores = []
    for row, size, example in zip(rows, PHRASE_SIZES, [0, 0, 1, 1, 1], strict=True):
        start = BEFORE[example]
        assert start + size == len(row) - AFTER[example]
        masked = row.clone()
        masked[start : start + size] = MASK
        logits = model(masked[None], src_lengths=None)[0][0].double()
        answers = row[start : start + size]
        scores.append(logits.log_softmax(-1)[torch.arange(start, start + size), answers].mean())
    return torch.stack(scores)


@pytest.mark.parametrize("make_model", [our_model, fairseq_model])
def test_the_score_is_the_mean_log_probability_of_the_masked_phrase(make_model):
    model = make_model().eval()
    rows, sample = make_sample()
    tokens = sample["net_input"]["src_tokens"].clone()
    with torch.no_grad():
        scores = phrase_scores(model, sample, mask_id=MASK)
        expected = plain_scores(model, rows)
    assert scores.shape == (5, 1)
    assert expected.std() > 0.1
    torch.testing.assert_close(scores[:, 0].double(), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(sample["net_input"]["src_tokens"], tokens), "the batch has been changed"


def test_packed_rows_have_the_same_scores():
    model = our_model().eval()
    with torch.no_grad():
        padded, packed = (phrase_scores(model, make_sample(pack=pack)[1], mask_id=MASK) for pack in (False, True))
    torch.testing.assert_close(padded, packed, rtol=1e-4, atol=1e-4)


def test_an_empty_phrase_scores_0_and_gradients_stay_finite():
    model = our_model()
    _, sample = make_sample()
    sample["columns"]["before"] = torch.tensor([2, 5])  # leaves nothing of the third sequence
    scores = phrase_scores(model, sample, mask_id=MASK)
    assert scores[2] == 0 and scores[3] < 0
    scores.sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients and all(gradient.isfinite().all() for gradient in gradients)
