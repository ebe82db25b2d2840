"""Losses of spans, tags and sentences against plain computations, one item after the other in float64.

Those of texts are in test_sentence_prediction.py, those of vectors in test_embedding.py.
"""

from functools import partial

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.extensions.spans.head import SpanLogits
from roberta_plugin.extensions.spans.kind import QuestionAnswering
from roberta_plugin.extensions.spans.questions import Questions, decode
from roberta_plugin.extensions.summaries.dataset import DocumentsDataset
from roberta_plugin.extensions.summaries.kind import Summary
from roberta_plugin.extensions.tagging.dataset import TaggingDataset
from roberta_plugin.extensions.tagging.kind import Tagging
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.kinds.metrics import squad_metrics
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from tests import tiny_squad, tiny_summaries, tiny_tagging
from tests.plain_losses import batches, check_loss, task_of
from tests.tiny_validation import validated


class WindowScores(torch.nn.Module):
    """Scores are entries of tables by window and position."""

    def __init__(self, num_windows, *, seed=0):
        super().__init__()
        draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed))
        self.start, self.end = (torch.nn.Parameter(draw(num_windows, 40) * 3) for _ in range(2))
        self.answerable = torch.nn.Parameter(draw(num_windows) * 2)

    def scores(self, sample):
        windows, width = sample["id"], sample["net_input"]["src_tokens"].size(1)
        return SpanLogits(self.start[windows, :width], self.end[windows, :width], self.answerable[windows])


@pytest.fixture(scope="module", params=["squad1", "squad2"])
def squad(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    raw = tiny_squad.write_raw(folder / "raw", task=request.param)
    for path in raw.iterdir():
        path.write_text(path.read_text().replace("good", "goodbad"))  # an answer of two tokens
    return tiny_squad.write_prepared(folder, task=request.param, raw=raw)


@pytest.fixture
def of_spans(squad):
    kind = QuestionAnswering({}, task_name=squad.task)
    return CRITERION_REGISTRY["squad2"](
        task_of(kind, squad, lambda model, sample: model.scores(sample)), max_answer_length=4
    )


def windows_of(split):
    return batches(ExamplesDataset(split, pad_id=1, vocab_size=1000, seed=1))


def test_a_window_has_the_loss_of_its_span_and_of_whether_it_has_one(of_spans, squad):
    split = squad.split("valid")
    columns = {name: values.tolist() for name, values in split.columns.items()}

    def plain(model):
        total = torch.zeros((), dtype=torch.float64)
        for window, has_answer in enumerate(columns["has_answer"]):
            first = columns["passage"][window]
            part = slice(first, first + columns["passage_length"][window])
            if has_answer:
                for table, target in ((model.start, "start"), (model.end, "end")):
                    total = total - 0.5 * table[window, part].double().log_softmax(0)[columns[target][window] - first]
            probability = torch.sigmoid(model.answerable[window].double())
            total = total - (probability if has_answer else 1 - probability).log()
        return total

    logs, values = check_loss(of_spans, WindowScores(len(split)), windows_of(split), plain, number=len(split))
    for log in logs:
        assert log["sum_of_span_loss"] + log["sum_of_answerable_loss"] == pytest.approx(log["loss"].item(), rel=1e-6)
    share = sum(columns["has_answer"]) / len(split)
    assert 0 < share < 1
    assert values["loss"] == pytest.approx(values["span_loss"] * share + values["answerable_loss"], abs=1e-3)
    assert "f1" not in values


@pytest.mark.parametrize("seed", range(4))
def test_validation_gives_the_official_metrics_of_the_decoded_answers(of_spans, squad, seed):
    split = squad.split("valid")
    model = WindowScores(len(split), seed=seed)
    found = validated(of_spans, model, windows_of(split))
    start, end = (
        [row[:size].detach().numpy() for row, size in zip(table, split.sequences.sizes, strict=True)]
        for table in (model.start, model.end)
    )
    outputs = RawOutputs(start_logits=start, end_logits=end, answerable_logits=model.answerable.detach().numpy())
    questions = Questions(split)
    decoded = decode(questions, [outputs], max_answer_length=4)
    best = [given.candidates[0].text for given in decoded]
    null = [given.null_probability for given in decoded]
    if squad.task == "squad2":
        tuned = squad_metrics("squad2", questions.answers, best, null)
        assert found["tuned_f1"] == pytest.approx(tuned["best_f1"])
        assert found["tuned_exact"] == pytest.approx(tuned["best_exact"])
        best = ["" if probability > 0.5 else text for text, probability in zip(best, null, strict=True)]
        assert 0 < best.count("") < len(best)
    else:
        assert "tuned_f1" not in found
    expected = squad_metrics(squad.task, questions.answers, best)
    assert (found["exact"], found["f1"]) == pytest.approx((expected["exact"], expected["f1"]))


class TokenLogits(torch.nn.Module):
    """Logits are entries of a table by window and position; those of the right labels are higher."""

    def __init__(self, labels, num_labels):
        super().__init__()
        table = torch.randn(len(labels), 40, num_labels, generator=torch.Generator().manual_seed(0))
        for window, position in places(labels):
            table[window, position, labels[window][position]] += 1.5
        self.table = torch.nn.Parameter(table)

    def logits(self, sample):
        tokens, lengths = sample["net_input"]["src_tokens"], sample["net_input"]["src_lengths"].tolist()
        if "packing" in sample["net_input"]:
            rows = [self.table[window, :length] for window, length in zip(sample["id"], lengths, strict=True)]
            packed = torch.cat(rows)
            return torch.cat([packed, packed.new_zeros(tokens.size(1) - len(packed), packed.size(1))])[None]
        return self.table[sample["id"], : tokens.size(1)]


def places(labels):
    """Window and position of each label."""
    return [(window, at) for window, each in enumerate(labels) for at in np.flatnonzero(each >= 0).tolist()]


@pytest.fixture(scope="module", params=["sentence", "document", "plain"])
def tagging(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    raw = tiny_tagging.write_raw(folder / "raw")
    for path in raw.iterdir():
        blocks = path.read_text().split("\n\n")
        marks = ["-DOCSTART- X O\n\n" if number % 4 == 0 else "" for number in range(len(blocks))]
        path.write_text("\n\n".join(mark + block for mark, block in zip(marks, blocks, strict=True)))
    options = {"scheme": "plain"} if request.param == "plain" else {"context": request.param}
    options["label_pieces"] = "all" if request.param == "document" else "first"
    return tiny_tagging.write_prepared(folder, raw=raw, **options)


@pytest.mark.parametrize(("pack", "smoothing"), [(False, 0.0), (True, 0.0), (True, 0.3)])
def test_each_labelled_token_has_a_cross_entropy(tagging, pack, smoothing):
    split, names = tagging.split("valid"), tagging.settings["labels"]
    task = task_of(Tagging({"labels": names}), tagging, lambda model, sample: model.logits(sample))
    criterion = CRITERION_REGISTRY["roberta_tagging"](task)
    criterion.label_smoothing = smoothing
    labels = np.split(np.asarray(split.array("token_labels")), np.cumsum(split.sequences.sizes)[:-1])

    def plain(model):
        total = torch.zeros((), dtype=torch.float64)
        for window, position in places(labels):
            logs = model.table[window, position].double().log_softmax(0)
            total = total - (1 - smoothing) * logs[int(labels[window][position])] - smoothing * logs.mean()
        return total

    dataset = TaggingDataset(split, pad_id=1, vocab_size=1000, seed=1, pack=pack, pad_to_multiple=8, max_length=24)
    model = TokenLogits(labels, len(names))
    _, values = check_loss(criterion, model, batches(dataset), plain, number=len(places(labels)))
    assert "f1" not in values and "accuracy" not in values


class SentenceLogits(torch.nn.Module):
    """Logits are entries of a table by sentence of the split."""

    def __init__(self, num_sentences):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(num_sentences, generator=torch.Generator().manual_seed(0)) * 2)


def test_each_sentence_of_a_document_has_a_binary_cross_entropy(tmp_path):
    pytest.importorskip("rouge_score")
    prepared = tiny_summaries.write_prepared(tmp_path)
    dataset = DocumentsDataset(prepared.split("valid"), pad_id=1, vocab_size=1000, seed=1)
    first, labels = dataset.documents.first, torch.from_numpy(np.array(dataset.documents.labels)).double()

    def outputs(model, sample):
        return torch.cat([model.table[first[number] : first[number + 1]] for number in sample["id"].tolist()])

    def plain(model):
        probabilities = 1 / (1 + (-model.table.double()).exp())
        return -(labels * probabilities.log() + (1 - labels) * (1 - probabilities).log()).sum()

    task = task_of(Summary(prepared.settings, task_name=prepared.task), prepared, outputs)
    criterion = CRITERION_REGISTRY["roberta_summarization"](task, num_sentences=3, length_share=0.0)
    model = SentenceLogits(len(labels))
    _, values = check_loss(criterion, model, batches(dataset), plain, number=len(labels))
    assert 0 < labels.sum() < len(labels)
    right = (model.table > 0) == labels.bool()
    assert values["accuracy"] == pytest.approx(100 * right.double().mean().item(), abs=1e-3) and "rouge" not in values
