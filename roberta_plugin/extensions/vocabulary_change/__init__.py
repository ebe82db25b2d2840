"""Another vocabulary for a trained model: `roberta tokenizer extend`, and pretraining with another vocabulary.

change      a model, another tokenizer or new words -> a model for them
new_words   a tokenizer, new words                  -> a tokenizer that has them
command     the action `extend` of `roberta tokenizer`
settings    its options

The page: examples/README.pretraining.md, "Another vocabulary".
"""

from roberta_plugin.registry import Extension, StartChangeEntry, VerbEntry

EXTENSION = Extension(
    "vocabulary_change",
    __name__,
    position=160,
    moved={"conversion.vocabulary_change": ".change", "conversion.settings:ExtendSettings": ".settings:ExtendSettings"},
    actions={
        "tokenizer extend": VerbEntry("give a trained model new words, or another tokenizer", ".command:extend"),
    },
    start_changes={
        "vocabulary": StartChangeEntry(
            ".change:change_start",
            "change the model's vocabulary first, by `roberta tokenizer extend --tokenizer`",
        ),
    },
)
