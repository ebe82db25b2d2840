"""A sample of text -> character-level BPE on words."""

from __future__ import annotations

import sys
from collections import Counter

from roberta_plugin.data.tokenizers.base import UNKNOWN
from roberta_plugin.data.tokenizers.training import MIN_FREQUENCY, TextSample, TokenizerSettings
from roberta_plugin.extensions.character_bpe.tokenizer import WORD_START, CharacterBpe
from roberta_plugin.progress import Progress


def train_character_bpe(sample: TextSample, settings: TokenizerSettings) -> CharacterBpe:
    """Character-level BPE on words by Moses' rules."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    counts: Counter[str] = Counter()
    for lines in sample.lines():
        counts.update("".join(lines))
    frequent = sorted((each for each in counts if not each.isspace()), key=lambda each: (-counts[each], each))
    characters = [each for each in frequent if each != WORD_START][: settings.max_characters]
    if settings.vocab_size < len(characters) + 2:
        raise ValueError(
            f"--vocab-size must be at least {len(characters) + 2}, for the {len(characters)} most frequent characters "
            f"of the text, got {settings.vocab_size}."
        )
    trained = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency or MIN_FREQUENCY,
        initial_alphabet=[WORD_START, *characters],
        limit_alphabet=len(characters) + 1,  # the trainer chooses between equally frequent ones at random
        special_tokens=[UNKNOWN],
        show_progress=not settings.no_progress and sys.stderr.isatty(),
    )
    cut = CharacterBpe(trained.to_str(), language=settings.language)
    with Progress("read", sample.num_bytes, is_shown=not settings.no_progress) as bar:
        trained.train_from_iterator(
            ([" ".join(cut.words(line)) for line in lines] for lines in sample.lines(progress=bar)), trainer
        )
    return CharacterBpe(trained.to_str(), language=settings.language)
