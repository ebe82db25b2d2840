"""A step of fine-tuning on a CUDA device without values, for each kind."""

from types import SimpleNamespace

import torch
from fairseq.criterions import CRITERION_REGISTRY
from torch.nn.utils.rnn import pad_sequence

from roberta_plugin.finetuning.kinds import kind_class
from roberta_plugin.finetuning.kinds.base import TEXT_CLASSES
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


def of_sequences(kind, *, num_outputs=NUM_LABELS, offsets=range(5), weights=None, criterion=TEXT_CLASSES, **columns):
    """A criterion of sequences, its task, what selects its head, and the columns of its batch."""
    task = task_of(kind, settings={} if weights is None else {"weights": weights}, scale=(1.0, 2.0))
    head = "classification", {"num_classes": num_outputs}
    return CRITERION_REGISTRY[criterion], task, head, {"columns": columns, "offsets": torch.tensor([*offsets])}


def task_of(kind, **more):
    made = SimpleNamespace(name=kind, window_pooling=None, **more)
    return SimpleNamespace(kind=made, training=find_training(kind_class(kind))(made, SimpleNamespace(), None))


LABELS = torch.tensor([0, 2, 1, 1])


def check_step(criterion_class, task, head, more, *, packed, **options):
    """Check that forward and backward mix no devices, and that the host never waits; `options` are the criterion's."""
    head_kind, sizes = head
    model = our_model(
        encoder_embed_dim=64, encoder_attention_heads=4, encoder_layers=2, dropout=0.1, pooler_dropout=0.1
    )
    model.encoder.sentence_encoder.segment_embeddings = torch.nn.Embedding(2, 64)  # read off the tokens
    model.register_head(HEAD, head_kind, **sizes)
    task.target_dictionary = None
    task.outputs = lambda model, sample: model(**sample["net_input"], head=HEAD, predicted=sample.get("sentences"))[0]
    criterion = criterion_class(task, **options)
    sample = {
        "net_input": make_inputs(packed=packed),
        "ntokens": sum(LENGTHS),
        "nsentences": 4,
        "npositions": 48,
        **more,
    }
    with fake_cuda() as mode:
        model, sample = moved(model, mode, torch.bfloat16).train(), moved(sample, mode)
        criterion(model, sample)
        with Watch() as watch:
            loss, _, _ = criterion(model, sample)
            loss.backward()
    assert loss.device.type == "cuda"
    assert watch.counts["_flash_attention_forward" if packed else "_scaled_dot_product_efficient_attention"] >= 2
    assert any(parameter.grad is not None for name, parameter in model.named_parameters() if HEAD in name)
