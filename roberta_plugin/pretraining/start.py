"""The model that a pretraining goes on from, by --finetune-from-model: its architecture, tokenizer and vocabulary.

    file, folder or name --find_start--> Start --fitted, words--> options that build such a model, in the recipe's place
    data-bin --in_words_of--> the same start, or one whose vocabulary was changed to the data's (`start/`)

The user's own --arch, options of the architecture, --tokenizer and --vocab-size override the model's. If the model then
does not fit, it is refused, with all differences.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import roberta_plugin
from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.conversion.settings import RECORD
from roberta_plugin.data.tokenizers import has_tokenizer, load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.files import hidden_folder, replace_folder
from roberta_plugin.json_files import read_json
from roberta_plugin.models.checkpoints import architecture, model_options, num_symbols
from roberta_plugin.models.config import ARCHITECTURE, INITIAL, FastRobertaConfig, fitting_options, given_switches
from roberta_plugin.pretraining.recipe import Recipe
from roberta_plugin.record import differences, listed, options_of, refuse
from roberta_plugin.registry import START_CHANGES

OPTION = "--finetune-from-model"
FOLDER = "start"  # of the run: the model with the vocabulary of its data


@dataclass(frozen=True)
class Start:
    """A model to go on from, with what its file says."""

    given: str  # as the user names it, with the whole path where there is one
    checkpoint: Path
    state: Mapping[str, Any]
    remark: str = ""  # what was done to its vocabulary
    is_own: bool = False  # True if it replaces a model that is gone: the checkpoint of the training itself

    @cached_property
    def architecture(self) -> dict[str, Any]:
        """Its options of `fast_roberta`, but for defaults."""
        return architecture(self.state)

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        """Its dict.txt; None where none was found."""
        from roberta_plugin.conversion.model_files import find_dictionary

        try:
            return Vocabulary.load(find_dictionary(self.checkpoint, dict(self.state), None))
        except FileNotFoundError:
            return None

    def words(self, further: Sequence[str]) -> list[str]:
        """The options that build such a model; empty if the user names an --arch."""
        given = options_of(["", *further])
        if "--arch" in given:
            return []
        texts = {name: text for name, text in model_options(self.state).items() if f"--{name}" not in given}
        return [word for name, text in texts.items() for word in (f"--{name}", *([text] if text != "true" else []))]

    def fitted(self, recipe: Recipe, further: Sequence[str]) -> Recipe:
        """The recipe without its own architecture and initial weights, with blocks that the model has positions for."""
        given = options_of(["", *further])
        ours = (
            {"arch", *(name.replace("_", "-") for name in (*ARCHITECTURE, *INITIAL))} if "--arch" not in given else ()
        )
        train = {name: value for name, value in recipe.train.items() if name not in ours}
        length, most = int(train.get("tokens-per-sample", 512)), int(self.architecture["max_positions"])
        if "--tokens-per-sample" not in given and "--arch" not in given and length > most:
            train["tokens-per-sample"] = str(most)
            for name in ("batch-size", "batch-size-valid"):  # as many tokens
                if name in train:
                    train[name] = str(int(train[name]) * length // most)
            if growth := train.pop("grow-tokens-per-sample", None):
                train |= _cut_growth(str(growth), most)
        return replace(recipe, train=train)

    def check(self, parsed: argparse.Namespace, further: Sequence[str]) -> list[str]:
        """Refuse options of a model into which the weights do not go; remarks on others, and on the learning rate."""
        defaults = FastRobertaConfig()
        before = {name: getattr(defaults, name) for name in ARCHITECTURE} | self.architecture
        now = {name: getattr(parsed, name, None) for name in ARCHITECTURE}
        now = {name: getattr(defaults, name) if value is None else value for name, value in now.items()}
        now["max_positions"] = now["max_positions"] or parsed.tokens_per_sample
        changes = differences(
            {name: _plain(value) for name, value in before.items()}, {n: _plain(v) for n, v in now.items()}
        )
        has_place = fitting_options(before, now)
        if any(change.name not in has_place for change in changes):
            refuse(
                f"{OPTION} {self.given} is another model than these options describe",
                changes,
                "Leave them out (and --arch): then they are taken from the model.",
            )
        notes = [f"other than in {self.given}: {listed(changes)}"] if changes else []
        if "--lr" not in options_of(["", *further]):
            notes.append(
                f"the learning rate of {parsed.lr[0]:g} is the recipe's, which is for new weights: a fraction of it, "
                "by --lr, keeps more of the model."
            )
        return notes

    def described(self) -> str:
        """The parts that are taken over, in a line."""
        model = self.architecture
        norms = "before sublayers" if model.get("encoder_normalize_before") else "after sublayers"
        return (
            f"{self.given}: {model['encoder_layers']} layers x {model['encoder_embed_dim']}, "
            f"{model['encoder_attention_heads']} heads, {model['max_positions']:,} positions, "
            f"norms {norms} with eps {model.get('layer_norm_eps', FastRobertaConfig.layer_norm_eps):g}, "
            + "".join(f"{switch}, " for switch in given_switches(model))
            + f"{num_symbols(self.state):,} symbols"
            + (f" ({self.remark})" if self.remark else "")
        )

    def write_tokenizer(self, target: Path, *, tokenizer: Path | None = None, is_written: bool = True) -> None:
        """Write its tokenizer and dict.txt into a folder, once; without `is_written`, only see that it has both.

        `tokenizer` is another one, or the word `whitespace`.

        Raises:
            FileNotFoundError: if the model has none; says what to give.
            ValueError: if the folder holds another tokenizer.
        """
        from roberta_plugin.conversion.model_files import find_dictionary, find_tokenizer

        is_there = (target / "dict.txt").is_file()
        if is_there and self.is_own:
            return
        try:
            dictionary = find_dictionary(self.checkpoint, dict(self.state), None)
            words, vocabulary = find_tokenizer(self.checkpoint, dictionary, tokenizer), Vocabulary.load(dictionary)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{OPTION} {self.given} has no tokenizer beside it, which text needs: give the folder with its files "
                f"and dict.txt as --tokenizer. ({str(error).partition('. ')[0]}.)"
            ) from error
        if is_there:
            theirs = Vocabulary.load(target / "dict.txt").symbols
            if theirs != vocabulary.symbols or load_tokenizer(target).description() != words.description():
                raise ValueError(
                    f"{target} holds another tokenizer than {OPTION} {self.given}: give the model that the run "
                    "began with, or another --output-dir."
                )
        elif is_written:
            with hidden_folder(target) as temporary:
                words.save(temporary)
                vocabulary.save(temporary / "dict.txt")
                replace_folder(target, by=temporary)

    def in_words_of(self, data: Path, folder: Path, *, may_change: bool) -> Start:
        """The start for a data-bin: itself if the words are its own, else, if it may, with its vocabulary changed.

        Raises:
            ValueError: for a data-bin of other words, which the model would take for its own.
        """
        theirs, target = Vocabulary.load(data / "dict.txt"), folder / FOLDER
        made = target / "model.pt"
        if may_change and made.is_file() and Vocabulary.load(target / "dict.txt").symbols == theirs.symbols:
            self._check_made(target)
            return Start(str(made), made, load_state(made, for_use=True), "those of the data")
        if self.vocabulary is None and len(theirs) == num_symbols(self.state):
            return self
        if self.vocabulary is not None and self.vocabulary.symbols == theirs.symbols:
            return self
        change = START_CHANGES.get("vocabulary")
        if not may_change or change is None or not has_tokenizer(data):
            also = f", or {change.by_hand}" if change else ""
            raise ValueError(
                f"{data} was made with another dict.txt than {OPTION} {self.given}: {self._other_words(theirs)}. Ids "
                "would mean other words: give the text instead of the data-bin, which is then made with the "
                f"model's tokenizer{also}."
            )
        remark = START_CHANGES.load("vocabulary", "change")(self.checkpoint, data, target)
        return Start(str(made), made, load_state(made, for_use=True), f"from {self.given}: {remark}")

    def check_tokenizer(self, tokenizer: Path | None, folder: Path) -> None:
        """Refuse another tokenizer for text than the model's, where no extension changes the model's vocabulary."""
        if "vocabulary" in START_CHANGES or (folder / FOLDER / "model.pt").is_file():
            return
        try:
            theirs = Vocabulary.from_tokenizer(tokenizer).symbols if tokenizer is not None else None
        except FileNotFoundError:  # dict.txt is then made of the text
            theirs = None
        if self.vocabulary is None or theirs != self.vocabulary.symbols:
            raise ValueError(
                f"{OPTION} {self.given} keeps its vocabulary, because no extension is installed that changes it: leave "
                "out --tokenizer and --vocab-size. Then the text is split by the model's tokenizer."
            )

    def _check_made(self, target: Path) -> None:
        """Refuse a model in the folder of the run that was made of another one, unless that is gone."""
        record = read_json(target / RECORD, keys=("source",), remedy="give another --output-dir") or {}
        before = record.get("source", "")
        if not self.is_own and before != str(self.checkpoint):
            refuse(
                f"{target} was made of another model",
                differences({OPTION: before}, {OPTION: str(self.checkpoint)}),
                "Give the same to go on, or another --output-dir.",
            )

    def _other_words(self, theirs: Vocabulary) -> str:
        number = f"it has {num_symbols(self.state):,} symbols, and the data {len(theirs):,}"
        if self.vocabulary is None:
            return number
        pairs = zip(self.vocabulary.symbols, theirs.symbols, strict=False)
        first = next((f"; the first that differ are {one!r} and {other!r}" for one, other in pairs if one != other), "")
        return number + first


def find_start(further: Sequence[str], folder: Path) -> Start | None:
    """The model of --finetune-from-model, wherever it is; None without the option.

    A training that has a checkpoint of its own goes on without the model, which may be gone by then.

    Raises:
        ValueError, FileNotFoundError: if it is not a model, or does not exist.
    """
    given = options_of(["", *further]).get(OPTION)
    if given is None:
        return None
    roberta_plugin.register()
    from roberta_plugin.fairseq_workarounds import starts

    own = folder / "checkpoints" / starts.LAST
    given = str(Path(given).absolute()) if Path(given).exists() else given
    try:
        path = Path(starts.model_file(given))
    except FileNotFoundError:
        if not own.is_file():
            raise
        path = own
    try:
        start = Start(given, path, load_state(path, for_use=True), is_own=path == own)
        _ = start.architecture
    except ValueError as error:
        raise ValueError(f"{OPTION} {given}: {error}") from error
    return start


def with_start(further: Sequence[str], start: Start) -> list[str]:
    """The options with this start in place of that which the user named."""
    words = [part for text in further for part in (text.split("=", 1) if text.startswith(f"{OPTION}=") else [text])]
    at = words.index(OPTION)
    return [*words[: at + 1], start.given, *words[at + 2 :]]


def _plain(value: object) -> Any:
    """A value for a comparison: of options, numbers and switches may be texts."""
    return value if isinstance(value, bool | int | float) or value is None else str(value)


def _cut_growth(growth: str, most: int) -> dict[str, str]:
    """Blocks that grow to `most` positions at the most; nothing where they then do not grow.

    Example: "0:64 9500:128 9900:256" and 128 -> "0:64 9500:128"
    """
    steps: list[str] = []
    for step in growth.split():
        update, _, length = step.partition(":")
        if not steps or not steps[-1].endswith(f":{min(int(length), most)}"):
            steps.append(f"{update}:{min(int(length), most)}")
    return {"grow-tokens-per-sample": " ".join(steps)} if len(steps) > 1 else {}
