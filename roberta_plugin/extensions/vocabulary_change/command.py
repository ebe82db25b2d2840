"""`roberta tokenizer extend`: a model with new words, or with another tokenizer."""

from __future__ import annotations

from roberta_plugin.cli.command import command
from roberta_plugin.extensions.vocabulary_change.settings import ExtendSettings


@command(ExtendSettings)
def extend(settings: ExtendSettings) -> int:
    """Writes a trained model with further words, or with another tokenizer: symbols that it has keep their embeddings,
    new ones begin with the mean of the pieces that they were before (Gee et al. 2022). The folder is then the tokenizer
    of `roberta binarize` and the model of --finetune-from-model.
    """
    from roberta_plugin.extensions.vocabulary_change.change import extend_vocabulary

    change = extend_vocabulary(settings)
    print(
        f"{change.folder}: {change.num_symbols:,} symbols, {change.num_kept:,} of them with their own row as before, "
        f"{change.num_from_pieces:,} with the mean of their pieces"
        + (f", {change.num_unknown:,} with the mean of all rows" if change.num_unknown else "")
    )
    if change.found_anywhere:
        print(
            f"note: {', '.join(map(repr, change.found_anywhere))} became added tokens, which are found in a text "
            "before the tokenizer's rules for words apply, as in transformers."
        )
    if change.stays_here:
        print(
            f"note: The added tokens {', '.join(map(repr, change.stays_here))} have ids before the new pieces, which "
            "the files of transformers cannot express: this model cannot be exported for them."
        )
    return 0
