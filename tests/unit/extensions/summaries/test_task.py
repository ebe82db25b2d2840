"""The task of summaries: its head over windows, and what it refuses."""

import sys
from argparse import Namespace

import pytest
import torch
from fairseq.tasks import TASK_REGISTRY
from omegaconf import OmegaConf

from roberta_plugin.extensions.summaries.training_options import SummarizationConfig
from roberta_plugin.models import roberta_encoder
from tests.tiny_checkpoints import state_of
from tests.tiny_summaries import write_prepared

pytest.importorskip("rouge_score")

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}
ARCH = Namespace(arch="fast_roberta_tiny", **SIZES)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("summaries"))


def make_task(prepared, **options):
    return TASK_REGISTRY["roberta_summarization"].setup_task(
        SummarizationConfig(data=str(prepared.folder), **{"seed": 3, **options})
    )


@pytest.mark.parametrize("layers", [0, 2])
def test_a_sentence_has_the_logit_of_its_document_alone_in_float64(prepared, layers):
    """Whatever batch it is in, padded or packed: one window after the other, and all features computed."""
    torch.manual_seed(1)
    task = make_task(prepared, sentence_layers=layers)
    model = task.build_model(ARCH).eval().double()
    for parameter in model.heads.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    split = prepared.split("train")
    expected = []
    window, position, first = (split.array(name) for name in ("window", "position", "first_sentence"))
    head = model.heads["summary_head"]
    with torch.no_grad():
        for number in range(6):
            vectors = []
            for at in range(first[number], first[number + 1]):
                ids = torch.from_numpy(split.sequences[int(split.offsets[number] + window[at])].astype("int64"))
                vectors.append(model(ids[None], features_only=True)[0][0, position[at]])
            x = torch.stack(vectors)[None]
            if layers:
                dim, length = x.size(2), x.size(1)
                angles = torch.arange(length)[:, None] / 10000.0 ** (torch.arange(0, dim, 2) / dim)
                sinusoids = torch.empty(length, dim)
                sinusoids[:, 0::2], sinusoids[:, 1::2] = angles.sin(), angles.cos()
                x = x + sinusoids.double()
                for layer in head.layers:
                    x = layer(x, None, None)
            expected.append(head.out_proj(x)[0, :, 0])
        for pack in (False, True):
            loaded = make_task(prepared, sentence_layers=layers, pack_sequences=pack)
            loaded.load_dataset("train")
            batch = loaded.dataset("train").__getitems__([(1, number) for number in range(6)])
            found = loaded.outputs(model, batch)
            assert torch.allclose(found, torch.cat(expected), atol=1e-5)


def test_alternating_segments_change_the_scores_and_need_a_model_that_has_them(prepared, tmp_path):
    torch.save(state_of(prepared.folder), tmp_path / "model.pt")
    task = make_task(prepared, alternating_segments=True)
    checkpoint = {"save_dir": ".", "restore_file": "checkpoint_last.pt", "finetune_from_model": f"{tmp_path}/model.pt"}
    task.cfg = OmegaConf.create({"task": vars(task.cfg), "checkpoint": checkpoint}).task
    with pytest.raises(ValueError, match=r"--alternating-segments: .*model.pt has no segment embeddings. Only"):
        task.build_model(ARCH)
    tasks = [make_task(prepared, alternating_segments=True, pack_sequences=pack) for pack in (False, True)]
    model = tasks[0].build_model(ARCH).eval()

    @torch.no_grad()
    def scores(task):
        task.load_dataset("train")
        return task.outputs(model, task.dataset("train").__getitems__([(1, number) for number in range(6)]))

    before = scores(tasks[0])
    with torch.no_grad():
        model.encoder.sentence_encoder.segment_embeddings.weight[1] += torch.arange(8.0)
    padded, packed = map(scores, tasks)
    assert not torch.allclose(before, padded)
    torch.testing.assert_close(packed, padded, atol=1e-4, rtol=1e-4)


def test_a_validation_without_rouge_score_is_refused(prepared, monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    with pytest.raises(ValueError, match=r"needs rouge_score, not installed here.*'roberta_plugin\[summaries\]'"):
        make_task(prepared).load_dataset("valid")


@pytest.mark.parametrize("segments", [False, True])
def test_windows_that_are_scored_in_parts_have_the_logits_of_all_at_once(prepared, monkeypatch, segments):
    """A document of hundreds of windows would fill the memory otherwise."""
    task = make_task(prepared, alternating_segments=segments)
    model = task.build_model(ARCH).double().eval()
    task.load_dataset("train")
    batch = task.dataset("train").__getitems__([(1, number) for number in range(6)])
    expected = task.outputs(model, batch)
    rows = []
    model.encoder.sentence_encoder.register_forward_hook(lambda _, given, __: rows.append(len(given[0])))
    monkeypatch.setattr(roberta_encoder, "POSITIONS_AT_ONCE", 5 * 64)
    torch.testing.assert_close(task.outputs(model, batch), expected, atol=1e-12, rtol=0)
    assert len(rows) > 1 and sum(rows) == len(batch["net_input"]["src_tokens"]) > 5
