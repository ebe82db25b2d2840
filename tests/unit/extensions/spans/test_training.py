"""The losses of spans against a plain computation, one window after the other in float64."""

from functools import partial

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY

from roberta_plugin.extensions.spans.head import SpanLogits
from roberta_plugin.extensions.spans.kind import QuestionAnswering
from roberta_plugin.extensions.spans.metrics import squad_metrics
from roberta_plugin.extensions.spans.questions import Questions, decode
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from tests import tiny_squad
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
        assert found["best_exact_match"] == pytest.approx(tuned["best_exact_match"])
        at_best = ["" if number > tuned["best_f1_thresh"] else text for text, number in zip(best, null, strict=True)]
        decided = squad_metrics("squad2", questions.answers, at_best)
        assert found["tuned_exact_match"] == pytest.approx(decided["exact_match"])
        best = ["" if probability > 0.5 else text for text, probability in zip(best, null, strict=True)]
        assert 0 < best.count("") < len(best)
    else:
        assert "tuned_f1" not in found
    expected = squad_metrics(squad.task, questions.answers, best)
    for name in ("exact_match", "f1"):
        assert found[name] == pytest.approx(expected[name])
