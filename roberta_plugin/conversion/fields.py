"""Rules for the fields of config.json and of fairseq's checkpoints (`foreign_fields`).

Rules for the fields of tokenizers are in `data/tokenizers/huggingface_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roberta_plugin.foreign_fields import FLAG, Table, check_fields, known, noted, only
from roberta_plugin.models.checkpoints import saved_options

# Known fields are used here, only matter for training or for generating text, or say how to open the file.
CONFIG: Table = {
    **known("""
        model_type architectures vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size
        hidden_act hidden_dropout_prob attention_probs_dropout_prob max_position_embeddings type_vocab_size
        layer_norm_eps classifier_dropout id2label label2id num_labels _num_labels fine_tuned_on text_layout embedding
        decides_by bos_token_id eos_token_id sep_token_id tokenizer_class dtype torch_dtype
        initializer_range gradient_checkpointing finetuning_task
        use_cache decoder_start_token_id cross_attention_hidden_size tie_encoder_decoder max_length min_length do_sample
        early_stopping num_beams num_beam_groups top_k top_p typical_p temperature repetition_penalty length_penalty
        diversity_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences
        forced_bos_token_id forced_eos_token_id remove_invalid_values begin_suppress_tokens suppress_tokens
        exponential_decay_length_penalty output_scores return_dict_in_generate prefix task_specific_params
        _name_or_path _attn_implementation_autoset attn_implementation chunk_size_feed_forward output_attentions
        output_hidden_states output_past return_dict torchscript tf_legacy_loss transformers_version use_bfloat16
        adapters language name
    """),
    "tie_word_embeddings": FLAG,
    "position_embedding_type": only("absolute", None),
    "pad_token_id": only(1),
    "pruned_heads": only({}, None),
    "quantization_config": only(None),
    # With is_causal, a token only attends to tokens on its left, in any class of transformers.
    **dict.fromkeys(("is_decoder", "add_cross_attention", "is_encoder_decoder", "is_causal"), only(False, None)),
    "transformers_weights": only(None),  # weights in a file of another name
    "problem_type": only(None, "", "regression", "single_label_classification", "multi_label_classification"),
    "auto_map": noted("code of other authors is not run", None, {}),
    "sentence_transformers": noted("answers are the model's own numbers, as transformers has them", None, {}),
}

# Fields of fairseq's checkpoints: special symbols around texts in sentence_prediction, and how its hub prepares texts.
FAIRSEQ_TASK: Table = {
    "init_token": noted("here every text begins with <s>, 0", 0),
    "separator_token": noted("here </s> </s>, 2, is between two texts", 2),
    "shorten_method": noted("texts are cut at their end", "none", "truncate", None),
}
FAIRSEQ_TEXT: Table = {
    "bpe_add_prefix_space": noted("write the space in front of texts yourself", False, None),
    "tokenizer": noted("texts are not cut into words before the BPE", None, "space"),
}

_WITH_TRANSFORMERS = "Use it with transformers, or start from another."


def check_config(config: Mapping[str, Any], table: Table, path: Path) -> list[str]:
    """Notes on the fields of a config.json by `CONFIG` or a family's table; raises as `check_fields`."""
    return check_fields(config, table, path, remedy=_WITH_TRANSFORMERS)


def check_fairseq(state: Mapping[str, Any], path: Path) -> list[str]:
    """Notes on how fairseq prepared a checkpoint's texts. `models/checkpoints.py` checks the options of its model."""
    task, model = saved_options(state)
    config = state.get("cfg")
    config = config if isinstance(config, Mapping) else {}  # damage is reported where the model is built
    text: dict[str, Any] = {name: model[name] for name in FAIRSEQ_TEXT if name in model}  # until 2020, all in one place
    for name, section in (("bpe", config.get("bpe")), ("tokenizer", config.get("tokenizer"))):
        if isinstance(section, Mapping):
            text |= {"tokenizer": section.get("_name")} if name == "tokenizer" else dict(section)
    of_task = task if task.get("_name") == "sentence_prediction" else {}
    notes = []
    for content, table in ((of_task, FAIRSEQ_TASK), (text, FAIRSEQ_TEXT)):
        entries = {name: value for name, value in content.items() if name in table}
        notes += check_fields(entries, table, path, remedy="")
    return notes
