"""Losses of fine-tuning on a CUDA device without values: forward and backward mix no devices, and the host never waits."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from torch.nn.utils.rnn import pad_sequence

from roberta_plugin.extensions.summaries.layout import by_document, packed_layout, padded_layout
from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.training import find_training
from tests.fake_cuda import Watch, fake_cuda, moved
from tests.tiny_models import our_model

LENGTHS = (12, 7, 9, 12)
HEAD = "task"
NUM_LABELS = 3


def make_inputs(*, packed):
    rows = [torch.randint(4, 70, (length,)) for length in LENGTHS]
    lengths = torch.tensor(LENGTHS)
    if not packed:
        return {"src_tokens": pad_sequence(rows, True, 1.0), "src_lengths": lengths, "has_padding": True}
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    packing = {"positions": positions, "cu_seqlens": torch.tensor([0, *lengths.cumsum(0)]).int(), "max_seqlen": 12}
    return {"src_tokens": torch.cat(rows)[None], "src_lengths": lengths, "packing": packing}


def of_sequences(kind, *, num_outputs=NUM_LABELS, offsets=range(5), **columns):
    """A criterion of GLUE or of own data, what selects its head, and the columns of its batch."""
    settings = {"weights": [1.0, 2.0, 3.0]} if kind in ("classification", "multi_label") else {}
    task = task_of(kind, settings=settings, scale=(1.0, 2.0))
    head = "classification", {"num_classes": num_outputs}
    return (
        CRITERION_REGISTRY["roberta_sentence_prediction"],
        task,
        head,
        {"columns": columns, "offsets": torch.tensor([*offsets])},
    )


def task_of(kind, **more):
    made = SimpleNamespace(name=kind, window_pooling=None, **more)
    return SimpleNamespace(kind=made, training=find_training(kind_class(kind))(made, SimpleNamespace(), None))


LABELS = torch.tensor([0, 2, 1, 1])
WINDOWS = {name: torch.tensor([3, 2, 4, 3]) for name in ("passage", "passage_length", "start", "end")}
KINDS = {
    "labels": lambda: of_sequences("classification", label=LABELS),
    "several labels": lambda: of_sequences("multi_label", labels=torch.ones(4, 3, dtype=torch.int8)),
    "numbers": lambda: of_sequences("regression", num_outputs=1, label=LABELS.double()),
    "pairs": lambda: of_sequences("pair_ranking", num_outputs=1, offsets=(0, 2, 4), answer=LABELS[:2]),
    "options": lambda: (
        CRITERION_REGISTRY["race"],
        task_of("multiple_choice"),
        ("classification", {"num_classes": 1}),
        {"columns": {"label": LABELS[:2] % 2}, "offsets": torch.tensor([0, 2, 4])},
    ),
    "tags": lambda: (CRITERION_REGISTRY["roberta_tagging"], task_of("tagging"), ("token", {"num_classes": 3}), {}),
    "spans": lambda: (
        CRITERION_REGISTRY["squad2"],
        task_of("question_answering"),
        ("span", {}),
        {"columns": {**WINDOWS, "has_answer": LABELS.clamp(max=1)}},
    ),
    "sentences": lambda: (
        CRITERION_REGISTRY["roberta_summarization"],
        task_of("summary"),
        ("sentence", {"num_layers": 1}),
        {},
    ),
}
CRITERION_OPTIONS = {"spans": {"max_answer_length": 4}, "sentences": {"num_sentences": 3, "length_share": 0.0}}


def make_sample(kind, more, *, packed):
    sample = {"net_input": make_inputs(packed=packed), "ntokens": sum(LENGTHS), "nsentences": 4, "npositions": 48}
    if kind == "tags":
        width = sum(LENGTHS) if packed else max(LENGTHS)
        sample |= {"token_labels": torch.randint(0, 3, (1 if packed else 4, width)), "num_labels": 40}
    if kind == "sentences":
        rows, places = torch.tensor([0, 0, 1, 2, 3]).numpy(), torch.tensor([0, 5, 0, 0, 0]).numpy()
        layout = (
            packed_layout(rows, places, lengths=torch.tensor(LENGTHS).numpy(), num_sequences=4)
            if packed
            else padded_layout(rows, places, num_rows=4)
        )
        arrays = {**layout, **by_document(torch.tensor([3, 2]).numpy()), "labels": LABELS.new_ones(5).numpy()}
        sample["sentences"] = {
            name: value if isinstance(value, int) else torch.from_numpy(value) for name, value in arrays.items()
        }
    return sample | more


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fine_tuning_step_stays_on_the_device_and_never_waits(kind, packed):
    if kind == "spans" and packed:
        pytest.skip("the loss of spans is of padded windows")
    criterion_class, task, (head_kind, sizes), more = KINDS[kind]()
    model = our_model(
        encoder_embed_dim=64, encoder_attention_heads=4, encoder_layers=2, dropout=0.1, pooler_dropout=0.1
    )
    model.encoder.sentence_encoder.segment_embeddings = torch.nn.Embedding(2, 64)  # read off the tokens
    model.register_head(HEAD, head_kind, **sizes)
    task.target_dictionary = None
    task.outputs = lambda model, sample: model(**sample["net_input"], head=HEAD, predicted=sample.get("sentences"))[0]
    criterion = criterion_class(task, **CRITERION_OPTIONS.get(kind, {}))
    sample = make_sample(kind, more, packed=packed)
    with fake_cuda() as mode:
        model, sample = moved(model, mode, torch.bfloat16).train(), moved(sample, mode)
        criterion(model, sample)
        with Watch() as watch:
            loss, _, _ = criterion(model, sample)
            loss.backward()
    assert loss.device.type == "cuda"
    assert watch.counts["_flash_attention_forward" if packed else "_scaled_dot_product_efficient_attention"] >= 2
    assert any(parameter.grad is not None for name, parameter in model.named_parameters() if HEAD in name)
