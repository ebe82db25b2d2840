"""A hub's model and tokenizer as Hugging Face's, for its pipelines."""

from __future__ import annotations

from typing import Any

import torch

from roberta_plugin.conversion.huggingface_parameters import to_hugging_face
from roberta_plugin.conversion.portable import Head
from roberta_plugin.hub import RobertaHub

_LAYER_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


def config_of(transformers: Any, hub: RobertaHub, **changes: Any) -> Any:
    """The configuration of the hub's model."""
    cfg = hub.model.cfg
    sizes = (cfg.encoder_embed_dim, cfg.encoder_ffn_embed_dim, cfg.encoder_layers, cfg.encoder_attention_heads)
    return transformers.RobertaConfig(
        vocab_size=len(hub.vocabulary),
        **dict(zip(_LAYER_SIZES, sizes, strict=True)),
        max_position_embeddings=hub.max_positions + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=hub.vocabulary.pad_id,
        bos_token_id=hub.vocabulary.bos_id,
        eos_token_id=hub.vocabulary.eos_id,
        **changes,
    )


def tokenizer_of(transformers: Any, hub: RobertaHub) -> Any:
    """The hub's byte-level BPE with the ids of the model."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
    from tokenizers.models import BPE

    bpe, ids = hub.tokenizer, hub.codec.encoder.to_model_id.tolist()
    vocabulary = {piece: ids[number] for number, piece in enumerate(bpe.pieces)}
    specials = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": hub.vocabulary.mask_id}
    fast = Tokenizer(BPE({**specials, **vocabulary}, [tuple(pair) for pair in bpe.merges]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=False, add_prefix_space=False
    )
    fast.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast,
        **names,
        cls_token="<s>",
        sep_token="</s>",
        mask_token=AddedToken("<mask>", lstrip=True, special=True),
        model_max_length=hub.max_positions,
        model_input_names=["input_ids", "attention_mask"],
    )


def masked_lm_of(transformers: Any, hub: RobertaHub) -> Any:
    """RobertaForMaskedLM with the hub's weights."""
    model = transformers.RobertaForMaskedLM(config_of(transformers, hub)).eval()
    state = to_hugging_face({"model": hub.model.state_dict()}, Head(kind="masked_lm", name="masked_lm"), is_tied=False)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model


def classifier_of(transformers: Any, hub: RobertaHub, head: str, *, labels: list[str]) -> Any:
    """RobertaForSequenceClassification with the hub's weights."""
    names = dict(enumerate(labels))
    config = config_of(transformers, hub, id2label=names, label2id={name: number for number, name in names.items()})
    model = transformers.RobertaForSequenceClassification(config).eval()
    own = Head(kind="classification", name=head, num_outputs=len(labels))
    state = to_hugging_face({"model": hub.model.state_dict()}, own)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model


def random_hub(folder: Any, *, size: str, heads: dict[str, int], **changes: int) -> RobertaHub:
    """A model of ours with random weights and the vocabulary in a folder; `changes` are options of the model."""
    from roberta_plugin.conversion.pretrained import fairseq_dictionary
    from roberta_plugin.data.tokenizers import load_tokenizer
    from roberta_plugin.data.vocabulary import Vocabulary
    from roberta_plugin.models.checkpoints import ModelOnlyTask
    from roberta_plugin.models.config import ARCHITECTURES, set_options
    from roberta_plugin.models.roberta import FastRobertaModel
    from tests.tiny_models import Namespace

    torch.manual_seed(0)
    vocabulary = Vocabulary.load(folder / "dict.txt")
    args = Namespace(max_positions=512, **changes)
    set_options(args, ARCHITECTURES[f"fast_roberta_{size}"])
    model = FastRobertaModel.build_model(args, ModelOnlyTask(fairseq_dictionary(vocabulary), 512))
    for head, num_classes in heads.items():
        model.register_classification_head(head, num_classes=num_classes)
    return RobertaHub(model, tokenizer=load_tokenizer(folder), vocabulary=vocabulary).eval()
