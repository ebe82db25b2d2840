"""Losses, gradients and metrics of vectors beside sentence-transformers' and scikit-learn's."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.extensions.embeddings import similarity
from roberta_plugin.extensions.embeddings.training import EmbeddingTraining
from roberta_plugin.finetuning.kinds.bag_of_words import tf_idf
from tests.hugging_face import later

losses = later("sentence_transformers.sentence_transformer.losses")
texts_of_sklearn = later("sklearn.feature_extraction.text")
evaluation = later("sentence_transformers.sentence_transformer.evaluation")

NUM_EXAMPLES, DIM = 7, 6


def our_loss(name, vectors, columns=None, **options):
    settings = {"embedding_loss": name}
    kind = SimpleNamespace(name="embedding", settings=settings, window_pooling=None)
    training = EmbeddingTraining(kind, SimpleNamespace(), None)
    task = SimpleNamespace(target_dictionary=None, kind=kind, training=training)
    criterion = CRITERION_REGISTRY["roberta_embedding"](task, **options)
    texts = torch.arange(vectors.shape[0] * vectors.shape[1]).view(vectors.shape[:2])
    sample = {"nsentences": len(vectors), "columns": {"texts": texts, **(columns or {})}}
    loss = training.loss(criterion, vectors.flatten(0, 1), sample)
    return loss.total / loss.sample_size


def triplet(name):
    return losses.TripletLoss(None, getattr(losses.TripletDistanceMetric, name.upper()), triplet_margin=0.4)


@pytest.mark.parametrize(
    ("name", "num_texts", "theirs", "options"),
    [
        ("multiple-negatives-ranking", 2, lambda: losses.MultipleNegativesRankingLoss(None), {}),
        ("multiple-negatives-ranking", 4, lambda: losses.MultipleNegativesRankingLoss(None, scale=7.0), {"scale": 7.0}),
        ("simcse", 2, lambda: losses.MultipleNegativesRankingLoss(None, scale=20.0), {}),
        ("triplet", 3, lambda: losses.TripletLoss(None), {}),
        *(
            ("triplet", 3, functools.partial(triplet, name), {"distance_metric": name, "triplet_margin": 0.4})
            for name in ("euclidean", "cosine", "manhattan")
        ),
        ("cosine-similarity", 2, lambda: losses.CosineSimilarityLoss(None), {}),
    ],
)
def test_loss_and_gradient_are_theirs_in_float64(name, num_texts, theirs, options):
    generator = torch.Generator().manual_seed(num_texts)
    start = torch.randn(NUM_EXAMPLES, num_texts, DIM, generator=generator, dtype=torch.float64)
    scores = torch.rand(NUM_EXAMPLES, generator=generator, dtype=torch.float64)
    ours, other = start.clone().requires_grad_(), start.clone().requires_grad_()
    found = our_loss(name, ours, {"label": scores}, **options)
    labels = scores if name == "cosine-similarity" else torch.empty(0)
    expected = theirs().compute_loss_from_embeddings([other[:, place] for place in range(num_texts)], labels)
    # theirs are rounded to fp32 where they compare with scores
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    (gradient,), (wanted,) = torch.autograd.grad(found, ours), torch.autograd.grad(expected, other)
    assert wanted.abs().sum() > 0
    torch.testing.assert_close(gradient, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("num_texts", [2, 3])
def test_retrieval_has_their_reciprocal_rank_and_recall(num_texts):
    rng = np.random.default_rng(num_texts)
    num_rows = 40
    vectors = similarity.unit(rng.normal(size=(num_rows * num_texts, 5)))
    texts = np.arange(num_rows * num_texts).reshape(num_rows, num_texts)
    ranks, best = similarity.ranks([vectors], texts)
    ours = similarity.rank_measure(ranks)(np.ones(num_rows))

    class Lookup:
        similarity_fn_name, similarity, model_card_data = "cosine", None, SimpleNamespace(set_evaluation_metrics=print)

    queries = {str(row): str(texts[row, 0]) for row in range(num_rows)}
    corpus = {str(text): str(text) for text in texts[:, 1:].ravel()}
    relevant = {str(row): {str(texts[row, 1])} for row in range(num_rows)}
    once = {name: [1] for name in ("map_at_k", "ndcg_at_k", "accuracy_at_k")}
    cuts = {"mrr_at_k": [len(corpus)], "precision_recall_at_k": list(similarity.CUTS), **once}
    quiet = {"show_progress_bar": False, "write_csv": False}
    evaluator = evaluation.InformationRetrievalEvaluator(queries, corpus, relevant, **cuts, **quiet)
    evaluator.embed_inputs = lambda model, sentences, **how: torch.from_numpy(vectors[[*map(int, sentences)]])
    from sentence_transformers.util import cos_sim

    evaluator.score_functions = {"cosine": cos_sim}
    evaluator.score_function_names = ["cosine"]
    theirs = evaluator.compute_metrices(Lookup())["cosine"]
    assert ours["mrr"] == pytest.approx(100 * theirs["mrr@k"][len(corpus)])
    for cut in similarity.CUTS:
        assert ours[f"recall@{cut}"] == pytest.approx(100 * theirs["recall@k"][cut])
    assert 0 < ours["mrr"] < 60
    near = vectors[texts[:, 0]] @ vectors[texts[:, 1:].ravel()].T
    assert best.tolist() == texts[:, 1:].ravel()[near.argmax(axis=1)].tolist()


def test_the_baseline_is_tf_idf_of_scikit_learn():
    rng = np.random.default_rng(1)
    sequences = [rng.integers(0, 30, rng.integers(1, 12)) for _ in range(25)]
    known, judged = sequences[:15], sequences[15:]
    numbers = [str(number) for number in range(30)]
    theirs = texts_of_sklearn.TfidfVectorizer(analyzer=lambda ids: [str(number) for number in ids], vocabulary=numbers)
    theirs.fit(known)
    expected = theirs.transform(judged).toarray()
    found = tf_idf(judged, training=known, num_ids=30)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-12)
    rows = np.arange(10)
    near = similarity.cosines([found], rows, rows[::-1])
    np.testing.assert_allclose(near, (expected * expected[::-1]).sum(axis=1), atol=1e-12)
