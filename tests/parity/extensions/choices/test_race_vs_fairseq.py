"""Multiple choice beside fairseq's `sentence_ranking`: the same inputs, losses and gradients where it has no fault.

Its faults: it truncates the last </s> away, rounds accuracy to 0.1, and keeps texts in files of lines, which a line end
inside an option breaks.
"""

import json
import math
import re
from argparse import Namespace

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions.sentence_ranking import SentenceRankingCriterion
from fairseq.data import indexed_dataset
from fairseq.logging import metrics
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.sentence_ranking import SentenceRankingTask

from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.tasks.finetuning import FineTuningConfig
from tests.tiny_models import spread
from tests.tiny_race import write_race
from tests.unit.extensions.choices.test_race import prepared_of

SIZES = {"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24, "encoder_attention_heads": 2}
SIZES |= {"dropout": 0.0, "attention_dropout": 0.0, "pooler_dropout": 0.0, "max_positions": 512}
HEAD = "sentence_classification_head"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    raw = write_race(folder / "raw", train=12, dev=2)
    prepared = prepared_of("race", raw, folder / "set", max_length=512, order="question")
    return raw, prepared, write_as_fairseq(raw, prepared, folder / "fairseq")


def write_as_fairseq(raw, prepared, folder):
    """What preprocess_RACE.py (since pull request 818), the BPE encoder and fairseq-preprocess make of the raw files."""
    files = {f"input{n}": [] for n in range(5)}
    labels = []
    for path in benchmark_of("race").files(raw, None)["train"]:
        content = json.loads(path.read_text())
        for text, options, answer in zip(content["questions"], content["options"], content["answers"], strict=True):
            labels.append("ABCD".index(answer))
            files["input0"].append(re.sub(r"\s+", " ", content["article"].replace("\n", " ")))
            for number, option in enumerate(options, start=1):
                qa = text.replace("_", option) if "_" in text else " ".join([text, option])
                files[f"input{number}"].append(re.sub(r"\s+", " ", qa))
    for name, lines in files.items():
        (folder / name).mkdir(parents=True)
        prepared.vocabulary.save(folder / name / "dict.txt")
        builder = indexed_dataset.make_builder(str(folder / name / "train.bin"), "mmap", vocab_size=1000)
        model_ids = prepared.vocabulary.tokenizer_to_model(prepared.tokenizer)
        for line in lines:
            builder.add_item(torch.tensor([*model_ids[prepared.tokenizer.encode(line.strip())], 2]))
        builder.finalize(str(folder / name / "train.idx"))
    (folder / "label").mkdir()
    (folder / "label" / "train.label").write_text("".join(f"{label}\n" for label in labels))
    return folder


def fairseq_task(folder):
    args = Namespace(data=str(folder), num_classes=4, init_token=0, separator_token=2, no_shuffle=True, seed=1)
    vars(args).update(shorten_method="none", shorten_data_split_list="", max_positions=512)
    vars(args).update(criterion="sentence_ranking", dataset_impl="mmap", max_option_length=None)
    task = SentenceRankingTask.setup_task(args)
    task.load_dataset("train")
    return task


def our_task(prepared):
    task = TASK_REGISTRY["race"].setup_task(FineTuningConfig(data=str(prepared.folder), seed=1))
    task.load_dataset("train")
    return task


def batches(folders, indices):
    """The same questions as fairseq and as we hand them over."""
    _, prepared, folder = folders
    theirs, ours = fairseq_task(folder), our_task(prepared)
    dataset = theirs.dataset("train")
    their_batch = dataset.collater([dataset[index] for index in indices])
    return theirs, their_batch, ours, ours.dataset("train").__getitems__([(1, index) for index in indices])


def test_inputs_are_those_of_fairseqs_preprocessing(folders):
    indices = list(range(24))
    _, theirs, _, ours = batches(folders, indices)
    compared = 0
    for index in indices:
        for option in range(4):
            expected = theirs[f"net_input{option + 1}"]["src_tokens"][index]
            found = ours["net_input"]["src_tokens"][ours["offsets"][index] + option]
            assert found[found != 1].tolist() == expected[expected != 1].tolist()
            compared += 1
    assert compared == 96
    assert ours["columns"]["label"].tolist() == theirs["target"].tolist()


@pytest.mark.parametrize("arch", ["fast_roberta_tiny", "roberta_base"])
def test_loss_and_gradients_are_those_of_sentence_ranking(folders, arch):
    theirs, their_batch, ours, our_batch = batches(folders, [3, 0, 17, 8, 20])
    torch.manual_seed(0)
    model = spread(ours.build_model(Namespace(arch=arch, **SIZES)).train())
    results = []
    both = (SentenceRankingCriterion(theirs, HEAD, None, 4), their_batch), (CRITERION_REGISTRY["race"](ours), our_batch)
    for criterion, batch in both:
        model.zero_grad()
        loss, sample_size, log = criterion(model, batch)
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        num_correct = log["ncorrect"] if "ncorrect" in log else log["sum_of_accuracy"] / 100
        results.append((loss.item(), sample_size, int(num_correct), gradients))
    (their_loss, their_size, their_correct, expected), (loss, size, correct, found) = results
    assert loss == pytest.approx(their_loss, rel=1e-5)
    assert (size, correct) == (their_size, their_correct) == (5, their_correct)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, rtol=1e-4, atol=1e-5), name
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-3


def test_we_keep_what_fairseq_loses(folders):
    """Long texts: fairseq's end without </s>, ours with it, and their common tokens are the same."""
    raw, _, folder = folders
    prepared = prepared_of("race", raw, folder.parent / "short", max_length=60, question_length=40, order="question")
    theirs = fairseq_task(folder)
    theirs.args.max_positions, theirs.args.shorten_method = 60, "truncate"
    theirs.load_dataset("train")
    sequences = prepared.split("train").sequences
    num_cut = 0
    for index in range(24):
        for option in range(4):
            expected = theirs.dataset("train")[index][f"net_input{option + 1}.src_tokens"].tolist()
            found = sequences[4 * index + option].tolist()
            assert found[:-1] == expected[: len(found) - 1]
            assert found[-1] == 2
            num_cut += expected[-1] != 2
    assert num_cut > 20


def test_accuracy_is_not_rounded_as_fairseqs_is():
    values = {}
    sums = {"loss": torch.tensor(3.0), "sample_size": 2000, "ntokens": 5, "npositions": 5, "nsentences": 2000}
    ours = {"sum_of_accuracy": 150100.0, "number_of_accuracy": 2000}
    outputs = {SentenceRankingCriterion: {"ncorrect": 1501}, CRITERION_REGISTRY["race"]: ours}
    for criterion, counts in outputs.items():
        with metrics.aggregate(new_root=True) as meters:
            criterion.reduce_metrics([{**sums, **counts}])
        values[criterion] = meters.get_smoothed_values()["accuracy"]
    assert values[CRITERION_REGISTRY["race"]] == 75.05
    assert float(values[SentenceRankingCriterion]) != 75.05
    assert math.isclose(float(values[SentenceRankingCriterion]), 75.05, abs_tol=0.06)
