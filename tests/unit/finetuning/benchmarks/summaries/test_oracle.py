"""Greedy ROUGE takes the sentences that a plain rewrite of BertSum's program takes."""

import json
import lzma

import numpy as np

from roberta_plugin.finetuning.benchmarks.summaries import examples
from roberta_plugin.finetuning.kinds.documents import oracle, words
from roberta_plugin.finetuning.options import SummariesOptions


def plain_f(given, right):
    hits = len(given & right)
    precision = hits / len(given) if given else 0.0
    recall = hits / len(right) if right else 0.0
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def plain_oracle(sentences, summary, most):
    """Every step computes both scores of every candidate from nothing."""

    def grams(tokens, order):
        return {tuple(tokens[start : start + order]) for start in range(len(tokens) - order + 1)}

    right = words(" ".join(summary))
    chosen, best = [], 0.0
    for _ in range(most):
        scores = {}
        for number in range(len(sentences)):
            if number not in chosen:
                score = 0.0
                for order in (1, 2):
                    given = set().union(*(grams(words(sentences[each]), order) for each in [*chosen, number]))
                    score += plain_f(given, grams(right, order))
                scores[number] = score
        number = max(scores, key=scores.get, default=None)  # the first of equals
        if number is None or scores[number] <= best:
            break
        best = scores[number]
        chosen.append(number)
    return sorted(chosen)


def test_the_example_of_the_docstring():
    assert oracle(["a dog", "the cat sat down", "the cat"], ["the cat sat"]) == [1]
    assert words("It's 3.5%.") == ["it", "s", "3", "5"]


def test_nothing_is_chosen_without_a_common_word():
    assert oracle(["a b", "c"], ["d"]) == oracle(["a"], []) == oracle([], ["a"]) == oracle(["..."], ["..."]) == []


def test_made_up_documents_have_the_oracle_of_the_plain_program():
    rng = np.random.default_rng(0)
    sizes = set()
    for _ in range(60):
        sentences = [" ".join(rng.choice(list("abcdefgh"), rng.integers(0, 7))) for _ in range(rng.integers(1, 9))]
        summary = [" ".join(rng.choice(list("abcdefghij"), rng.integers(1, 9))) for _ in range(2)]
        most = int(rng.integers(1, 5))
        found = oracle(sentences, summary, most=most)
        assert found == plain_oracle(sentences, summary, most)
        sizes.add(len(found))
    assert len(sizes) > 2


def test_real_articles_have_the_oracle_of_the_plain_program_and_it_is_the_summary(shared_data):
    """Whose sentences are the article's own: without a limit, greedy ROUGE finds most of them."""
    path = shared_data / "summaries" / "bbc_news_summary.dev.jsonl.xz"
    with lzma.open(path, "rt") as lines:
        records = [json.loads(next(lines)) for _ in range(8)]
    documents = list(zip(range(8), examples("summaries", "valid", [path], SummariesOptions()), strict=False))
    found = right = both = 0
    for number, document in documents:
        assert oracle(document.texts, document.target) == plain_oracle(document.texts, document.target, 3)
        chosen = {document.texts[each] for each in oracle(document.texts, document.target, most=30)}
        wanted = {each for each in document.texts if each in records[number]["summary"]}
        found, right, both = found + len(chosen), right + len(wanted), both + len(chosen & wanted)
    assert 2 * both / (found + right) > 0.9
