"""EM, F1 and thresholds against the official scripts' definitions, written out plainly, on real SQuAD; answers as tokens.

The reference works step by step as evaluate-v1.1.py and evaluate-v2.0.py do, on the JSON file itself.
"""

import functools
import json
import re
import string
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest

from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.spans.metrics import squad_metrics
from roberta_plugin.extensions.spans.options import SquadOptions
from roberta_plugin.extensions.spans.questions import Questions
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.kinds.answer_scores import answer_score
from roberta_plugin.finetuning.layouts.windows import tokens_of
from roberta_plugin.finetuning.prepared import Prepared
from tests.real_data import unpack

PUNCTUATION = frozenset(string.punctuation)


@functools.cache
def words(text):
    text = "".join(character for character in text.lower() if character not in PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", text, flags=re.UNICODE).split()


def f1(given, right, version):
    given, right = words(given), words(right)
    if version == "2.0" and (not given or not right):
        return int(given == right)
    same, left = 0, list(right)
    for word in given:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0
    precision, recall = same / len(given), same / len(right)
    return 2 * precision * recall / (precision + recall)


@functools.cache
def every_punctuation():
    return PUNCTUATION | {c for c in map(chr, range(sys.maxunicode)) if unicodedata.category(c)[0] == "P"}


def mlqa_segments(text):
    """As mlqa_evaluation_v1.py has them for Chinese, step by step."""
    text = "".join(character for character in text.lower() if character not in every_punctuation())
    found, word = [], ""
    for character in text:
        if re.search(r"[\u4e00-\u9fa5]", character):
            found += [*word.split(), character]
            word = ""
        else:
            word += character
    return [each for each in [*found, *word.split()] if each.strip()]


def mlqa_score(given, right):
    best = (0.0, 0.0)
    for text in right:
        one, other = mlqa_segments(given), mlqa_segments(text)
        same = sum((Counter(one) & Counter(other)).values())
        f1 = 2 * (same / len(one)) * (same / len(other)) / (same / len(one) + same / len(other)) if same else 0.0
        best = (max(best[0], float(" ".join(one) == " ".join(other))), max(best[1], f1))
    return best


def test_answers_by_characters_have_the_scores_of_mlqas_script():
    """CMRC 2018 has the same segments; its F1 counts the longest common piece of them alone."""
    rng = np.random.default_rng(7)
    alphabet = [
        *"\u4e2d\u56fd\u5317\u4eac\u5e74\u6708\u65e5",
        *"ABab12 the a",
        *'\uff0c\u3002\u300a\u300b\uff08\uff09\uff01\u00b7-."\u3000',
    ]
    partial = 0
    for _ in range(1000):
        given, *right = ("".join(rng.choice(alphabet, rng.integers(1, 9))) for _ in range(3))
        right = [text for text in right if mlqa_segments(text)] or ["\u4e2d"]
        expected = mlqa_score(given, right)
        assert answer_score(given, right, by_characters=True) == pytest.approx(expected, abs=1e-12), given
        partial += 0 < expected[1] < 1
    assert partial > 200


def reference(data, predictions, version, null=None):
    exact, f1s, has_answer = {}, {}, {}
    for article in data:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                right = [answer["text"] for answer in entry["answers"]]
                has_answer[entry["id"]] = bool(right)
                if version == "2.0":
                    right = [text for text in right if words(text)] or [""]
                given = predictions[entry["id"]]
                exact[entry["id"]] = max(int(words(given) == words(text)) for text in right)
                f1s[entry["id"]] = max(f1(given, text, version) for text in right)
    found = {}
    groups = {"": list(exact)}
    if version == "2.0":
        groups["HasAns_"] = [id_ for id_ in exact if has_answer[id_]]
        groups["NoAns_"] = [id_ for id_ in exact if not has_answer[id_]]
    for prefix, ids in groups.items():
        found[f"{prefix}exact_match"] = 100.0 * sum(exact[id_] for id_ in ids) / len(ids)
        found[f"{prefix}f1"] = 100.0 * sum(f1s[id_] for id_ in ids) / len(ids)
    if null is not None:
        for name, scores in (("exact_match", exact), ("f1", f1s)):
            now = best = sum(1 for has in has_answer.values() if not has)
            threshold = 0.0
            for id_ in sorted(null, key=lambda id_: null[id_]):
                if has_answer[id_]:
                    now += scores[id_]
                elif predictions[id_]:
                    now -= 1
                if now > best:
                    best, threshold = now, null[id_]
            found[f"best_{name}"], found[f"best_{name}_thresh"] = 100.0 * best / len(scores), threshold
    return found


@pytest.fixture(scope="module")
def files(shared_data, tmp_path_factory):
    folder = unpack(shared_data, "squad", tmp_path_factory.mktemp("squad"))
    return {path.name: json.loads(path.read_text(encoding="utf-8"))["data"] for path in folder.rglob("dev-*.json")}


def prediction_like(data, rng):
    """Answers as models give them: right, longer, shorter, elsewhere, or none; with punctuation and odd spaces."""
    predictions, null = {}, {}
    for article in data:
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            for entry in paragraph["qas"]:
                kind = rng.integers(6)
                start = int(rng.integers(len(context)))
                answers = entry["answers"] or entry.get("plausible_answers", [])
                if answers and kind < 4:
                    answer = answers[int(rng.integers(len(answers)))]
                    first, stop = answer["answer_start"], answer["answer_start"] + len(answer["text"])
                    cuts = [(0, 0), (-int(rng.integers(12)), 0), (0, int(rng.integers(12))), (2, -1)][kind]
                    text = context[max(0, first + cuts[0]) : stop + cuts[1]]
                else:
                    text = context[start : start + int(rng.integers(40))] if kind < 5 else ""
                predictions[entry["id"]] = text
                lean = 0.15 if entry["answers"] else -0.15
                null[entry["id"]] = float(np.round(rng.random() - lean, 2))  # many are equal
    return predictions, null


def test_version_1_to_the_last_digit(files):
    data = files["dev-v1.1.json"]
    predictions, _ = prediction_like(data, np.random.default_rng(0))
    right = rights(data)
    assert len(right) == 10570
    found = squad_metrics("squad1", list(right.values()), [predictions[id_] for id_ in right])
    assert found == reference(data, predictions, "1.1")
    assert 10 < found["exact_match"] < found["f1"] < 90


def test_version_2_and_thresholds_to_the_last_digit(files):
    data = files["dev-v2.0.json"]
    predictions, null = prediction_like(data, np.random.default_rng(1))
    right = rights(data)
    given, odds = ([each[id_] for id_ in right] for each in (predictions, null))
    found = squad_metrics("squad2", list(right.values()), given, odds)
    assert found == reference(data, predictions, "2.0", null)
    assert found["best_f1"] > max(found["f1"], 48) and 0 < found["best_f1_thresh"] < 1


def rights(data):
    return {
        entry["id"]: [answer["text"] for answer in entry["answers"]]
        for article in data
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    }


def test_tokens_spell_the_answers_of_real_questions(files, shared_data):
    """At least 99.9 % of all answers that cut no word in two; the normalized text of their tokens is that of the answer."""
    tokenizer = ByteLevelBpe.load(shared_data / "gpt2_bpe")
    counts = {"whole words": 0, "parts of words": 0}
    inexact = dict.fromkeys(counts, 0)
    for article in files["dev-v2.0.json"]:
        for paragraph in article["paragraphs"]:
            context, tokens = paragraph["context"], tokenizer.locate(paragraph["context"])
            for answer in (answer for entry in paragraph["qas"] for answer in entry["answers"]):
                start, stop = answer["answer_start"], answer["answer_start"] + len(answer["text"])
                assert context[start:stop] == answer["text"]
                kind = "parts of words" if cuts_a_word(context, start, stop) else "whole words"
                first, last = tokens_of(tokens, start, stop)
                counts[kind] += 1
                inexact[kind] += words(context[tokens.starts[first] : tokens.ends[last]]) != words(answer["text"])
    assert counts["whole words"] > 9000
    assert counts["parts of words"] <= 0.003 * counts["whole words"]
    assert inexact["whole words"] <= 0.001 * counts["whole words"]


def cuts_a_word(text, start, stop):
    edges = [text[start - 1 : start + 1] if start else "", text[stop - 1 : stop + 1] if stop < len(text) else ""]
    return any(len(edge) == 2 and edge.isalnum() for edge in edges)


def test_targets_of_the_prepared_set_decode_to_right_answers(files, shared_data, tmp_path):
    """Through `prepare`, windows and all; the few that do not are those listed in the folder."""
    tokenizer = ByteLevelBpe.load(shared_data / "gpt2_bpe")
    (tmp_path / "dev-v2.0.json").write_text(json.dumps({"data": files["dev-v2.0.json"]}))
    words_and_ids = {"tokenizer": tokenizer, "vocabulary": Vocabulary.load(shared_data / "gpt2_bpe" / "dict.txt")}
    options = {"max_length": 192, "options": SquadOptions(doc_stride=64)}
    benchmark_of("squad2").prepare(tmp_path, tmp_path / "set", **words_and_ids, **options)
    split = Prepared.open(tmp_path / "set").split("valid")
    questions = Questions(split)
    with_answer = np.flatnonzero(split.columns["has_answer"])
    assert len(split) > 1.2 * len(questions), "few passages were cut: the test shows little"
    wrong = set()
    for window in with_answer.tolist():
        text = questions.text(window, questions.columns["start"][window], questions.columns["end"][window])
        if not answer_score(
            text, questions.answers[questions.columns["question"][window]] or (), may_be_empty=True
        ).exact_match:
            wrong.add(questions.ids[questions.columns["question"][window]])
    lines = (tmp_path / "set" / "valid.doubtful.jsonl").read_text().splitlines()
    assert wrong <= {json.loads(line)["id"] for line in lines}
    assert len(wrong) <= 0.001 * len(with_answer)
    has_answer = {id_ for id_, answers in zip(questions.ids, questions.answers, strict=True) if answers}
    assert {questions.ids[number] for number in split.columns["question"][with_answer]} == has_answer
