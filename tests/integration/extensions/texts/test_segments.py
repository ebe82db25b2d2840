"""Fine-tuning on pairs from a model with segment embeddings: trained, resumed, evaluated and exported with them."""

import functools
import shutil

import pytest
import torch
from fairseq import checkpoint_utils

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from roberta_plugin.conversion.pretrained import build, read_any
from roberta_plugin.experiments.inference import load_model, run_model
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.hub import RobertaHub
from roberta_plugin.models.state_dicts import SEGMENTS, merge_segments
from tests.first_runs import train
from tests.hugging_face import code_in, import_transformers
from tests.tiny_benchmarks import prepared_of
from tests.tiny_conversions import HEAD, write_checkpoint
from tests.tiny_corpus import finetune_command
from tests.tiny_glue import write_task

pytestmark = pytest.mark.integration

SIZES = ("--encoder-layers", "3", "--encoder-embed-dim", "24", "--encoder-ffn-embed-dim", "40")
PAIRS = [("is it 3 ?", "so good"), ("is it 3 ?", "so bad of it"), ("a", "we")]
EXACT = {"atol": 1e-10, "rtol": 1e-8}  # in float64


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A prepared task of pairs, `start`, a model that was pretrained with segments, and `without`, the same merged."""
    folder = tmp_path_factory.mktemp("segments")
    prepared_of("QNLI", write_task(folder / "raw", "QNLI", train=64, dev=20), folder / "data", max_length=40)
    state = torch.load(write_checkpoint(folder / "start") / "model.pt", weights_only=False)
    state["model"][SEGMENTS] = torch.randn(2, 24, generator=torch.Generator().manual_seed(3))
    torch.save(state, folder / "start" / "model.pt")
    shutil.copytree(folder / "start", folder / "without")
    merge_segments(state["model"], is_tied=True)
    torch.save(state, folder / "without" / "model.pt")
    return folder


@pytest.fixture(scope="module")
def tuned(work):
    """Fine-tuned by fairseq's main with some options, once each; the folder of its checkpoints."""

    @functools.cache
    def of(name, *options, start="start"):
        words = ("--max-positions", "40", "--batch-size", "16", "--lr", "1e-3", "--encoder-attention-heads", "4")
        words += (*SIZES, "--max-epoch", "1", "--finetune-from-model", str(work / start / "model.pt"))
        save_dir = work / name
        with torch.enable_grad():
            train(finetune_command(work / "data", save_dir, "roberta_sentence_prediction", *words, *options)[1:])
        return save_dir

    return of


def parameters(save_dir):
    return load_state(save_dir / "checkpoint_last.pt")["model"]


@torch.no_grad()
def test_both_segments_are_trained_and_every_way_of_using_the_model_has_them(work, tuned, tmp_path):
    checkpoint = tuned("tuned") / "checkpoint_last.pt"
    before, after = load_state(work / "start" / "model.pt")["model"][SEGMENTS], parameters(checkpoint.parent)[SEGMENTS]
    assert before.ne(after).any(dim=1).all()  # by a gradient: without one, AdamW's decay leaves both at their ratio
    assert (after / before).std(dim=1).gt(1e-4).all()

    hub = RobertaHub.from_pretrained(checkpoint, data=work / "data")
    model = hub.model.double()
    sequences = hub.encode(PAIRS)
    expected = []
    for ids in sequences:
        second = int((ids == 2).nonzero()[1])
        segments = (torch.arange(len(ids)) >= second).long()[None]
        expected.append(model(ids[None], head=HEAD, segments=segments)[0])
        assert not torch.allclose(model(ids[None], head=HEAD, segments=segments * 0)[0], expected[-1], atol=1e-5)
    expected = torch.cat(expected)
    torch.testing.assert_close(hub.predict(HEAD, PAIRS, return_logits=True).double(), expected, atol=1e-6, rtol=1e-6)

    prepared = Prepared.open(work / "data")
    of_evaluation, task = load_model(checkpoint, prepared)
    found = run_model(of_evaluation.double(), task, prepared.split("valid")).logits
    own = [
        model(torch.from_numpy(ids.astype("int64"))[None], head=HEAD)[0] for ids in prepared.split("valid").sequences
    ]
    torch.testing.assert_close(torch.from_numpy(found).double(), torch.cat(own), atol=1e-6, rtol=1e-6)

    (of_fairseq,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])  # as fairseq-validate does
    assert torch.equal(of_fairseq.state_dict()[SEGMENTS], after)

    settings = {"checkpoint": checkpoint, "data": work / "data"}
    done = export_model(ExportSettings(**settings, to="huggingface", output_dir=tmp_path / "theirs"))
    assert any("has its code" in note for note in done.notes)
    with code_in(tmp_path / "modules"):
        auto = import_transformers().AutoModelForSequenceClassification
        theirs = auto.from_pretrained(done.folder, trust_remote_code=True, dtype=torch.float64).eval()
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=1)
    torch.testing.assert_close(theirs(input_ids=ids).logits, expected, **EXACT)
    back = import_model(ImportSettings(source=done.folder, output_dir=tmp_path / "back")).folder
    again = load_state(back / "model.pt")["model"]
    assert torch.equal(again[SEGMENTS], after)
    torch.testing.assert_close(build(read_any(back)).double()(ids, head=HEAD)[0], expected, **EXACT)

    with pytest.raises(
        ValueError, match="by segments, which fairseq's RoBERTa does not have: use --to huggingface or onnx"
    ):
        export_model(ExportSettings(**settings, to="fairseq", output_dir=tmp_path / "fairseq"))


def test_a_run_goes_on_with_the_segments_of_its_own_checkpoint(tuned):
    """One that was trained without, as before they were kept, goes on so, wherever it began."""
    whole = parameters(tuned("tuned"))
    tuned("cut", "--max-update", "2")
    found = parameters(tuned("cut"))
    assert found.keys() == whole.keys() and all(torch.equal(value, whole[name]) for name, value in found.items())

    tuned("older", "--max-update", "2", start="without")
    older = load_state(tuned("older") / "checkpoint_last.pt")
    assert SEGMENTS not in older["model"] and older["optimizer_history"][-1]["num_updates"] == 4
