"""In-batch negatives by plain loops, equal texts in a batch, and gradient caching."""

import math
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.extensions.embeddings.training import ranking_losses
from roberta_plugin.extensions.embeddings.training_options import (
    RobertaEmbeddingConfig,
    RobertaEmbeddingCriterionConfig,
)
from roberta_plugin.models import roberta_encoder
from tests.tiny_tables import rows_of, write_csv
from tests.unit.extensions.own_tables.conftest import prepare_table, tokenizer  # noqa: F401  # fixtures

SIZES = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 16, "encoder_attention_heads": 2}
WITHOUT_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


def cosine(a, b):
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("num_wrong", [0, 2])
def test_an_anchor_is_compared_with_all_texts_of_the_batch_but_those_that_are_right_for_it(num_wrong):
    generator = torch.Generator().manual_seed(num_wrong)
    vectors = torch.randn(6, 2 + num_wrong, 5, generator=generator, dtype=torch.float64)
    texts = torch.arange(6 * (2 + num_wrong)).view(6, -1)
    texts[1, 0] = texts[0, 0]  # another right text of the same anchor
    texts[3, 1] = texts[2, 1]  # the same right text of another anchor
    texts[5, 1] = texts[4, 0]  # the anchor itself
    if num_wrong:
        texts[0, 2] = texts[5, 1]
    losses, has_wrong = ranking_losses(vectors, texts, scale=20.0)
    num_left_out = 0
    for own in range(6):
        exponents = []
        for place in range(1, 2 + num_wrong):
            for other in range(6):
                candidate, is_own = int(texts[other, place]), (other, place) == (own, 1)
                is_right = candidate in (int(texts[own, 0]), int(texts[own, 1]))
                is_right |= place == 1 and int(texts[other, 0]) == int(texts[own, 0])
                num_left_out += is_right and not is_own
                if is_own or not is_right:
                    exponents.append(20.0 * cosine(vectors[own, 0], vectors[other, place]))
        expected = math.log(sum(map(math.exp, exponents))) - 20.0 * cosine(vectors[own, 0], vectors[own, 1])
        assert float(losses[own]) == pytest.approx(expected, rel=1e-12)
    assert num_left_out == (5 if num_wrong == 0 else 7)
    assert has_wrong.all()


def test_a_batch_of_equal_texts_has_no_loss_and_does_not_count():
    losses, has_wrong = ranking_losses(torch.randn(3, 2, 4), torch.tensor([[0, 1], [0, 2], [0, 1]]), scale=20.0)
    assert losses.tolist() == [0, 0, 0] and not has_wrong.any()
    assert not ranking_losses(torch.randn(1, 2, 4), torch.tensor([[0, 1]]), scale=20.0)[1].any()


def make(prepared, *, dropouts=WITHOUT_DROPOUT, **options):
    """Task, model in float64 and criterion."""
    torch.manual_seed(3)
    task = TASK_REGISTRY["roberta_embedding"].setup_task(
        RobertaEmbeddingConfig(data=str(prepared.folder), seed=3, **options)
    )
    model = task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES, **dropouts)).double().train()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    task.load_dataset("train")
    task.load_dataset("valid")
    return task, model, CRITERION_REGISTRY["roberta_embedding"].build_criterion(RobertaEmbeddingCriterionConfig(), task)


def gradients(prepared, **options):
    """Loss and gradients of one batch of all examples, by parts of the given size."""
    task, model, criterion = make(prepared, **options)
    dataset = task.dataset("train")
    batch = dataset.__getitems__(dataset.batches(1, max_sentences=len(dataset))[0])
    torch.manual_seed(5)
    loss, sample_size, _ = criterion(model, batch)
    loss.backward()
    num_parts = len(batch["net_input"]["pooled"]["parts"])
    found = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    return float(loss), int(sample_size), num_parts, found


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_a_cached_gradient_is_that_of_the_whole_batch(prepare_table, pooling):  # noqa: F811
    prepared = prepare_table("embedding", pooling=pooling, normalize=pooling == "max")
    whole_loss, size, _, whole = gradients(prepared)
    loss, _, num_parts, cached = gradients(prepared, mini_batch_size=7)
    assert size == len(prepared.split("train")) and num_parts > 5
    assert loss == pytest.approx(whole_loss, rel=1e-12)
    assert whole.keys() == cached.keys() and any(value.abs().sum() > 0.1 for value in whole.values())
    for name, value in whole.items():
        torch.testing.assert_close(cached[name], value, rtol=1e-9, atol=1e-10)


def test_a_cached_gradient_repeats_the_dropout_of_its_loss_to_the_last_bit(prepare_table, monkeypatch):  # noqa: F811
    prepared = prepare_table("embedding")
    options = {"mini_batch_size": 7, "dropouts": {"dropout": 0.3, "attention_dropout": 0.2}}
    loss, _, _, cached = gradients(prepared, **options)
    calls = []
    monkeypatch.setattr(
        roberta_encoder, "checkpoint", lambda function, *inputs, **how: calls.append(how) or function(*inputs)
    )
    kept_loss, _, num_parts, kept = gradients(prepared, **options)
    assert len(calls) == num_parts > 5
    assert loss == kept_loss
    for name, value in kept.items():
        torch.testing.assert_close(cached[name], value, rtol=1e-12, atol=1e-13)


def test_texts_alone_are_pairs_of_themselves_under_two_dropouts(prepare_table, tmp_path):  # noqa: F811
    write_csv(tmp_path / "dev.csv", rows_of("embedding", 20, seed=1))
    rows = [{"text": row["text"]} for row in rows_of("embedding", 30)]
    prepared = prepare_table("embedding", rows=rows, embedding_loss="simcse", text_pair_column="pair", valid="dev.csv")
    split = prepared.split("train")
    assert len(split) == 30 and len(split.sequences) == 60
    assert all(np.array_equal(split.sequences[2 * row], split.sequences[2 * row + 1]) for row in range(30))
    loss, _, _, found = gradients(prepared, dropouts={"dropout": 0.1})
    assert loss > 0 and any(value.abs().sum() > 0 for value in found.values())
    certain, _, _, _ = gradients(prepared)
    assert certain < loss, "without dropout, each text has its own vector twice"
