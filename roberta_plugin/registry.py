"""The registry: what each extension adds to the program, by sort and name.

An extension is everything that one task or capability brings: kinds of tasks, heads, benchmarks, options, model
formats, verbs, maskings. The rest of the package, the trunk, knows none by name: it asks the registries below. An
extension is

    a folder of `roberta_plugin/extensions/`, whose `__init__.py` has an `EXTENSION`;
    an installed package with an entry point of the group `roberta_plugin.extensions` that names an `EXTENSION`;
    a module that calls `register(EXTENSION)`, such as a folder for `fairseq-train --user-dir` that imports
    `roberta_plugin`.

An `EXTENSION` names its parts by references, "module:attribute" or ".module:attribute" within its own package, which
are imported on first use: who lists all verbs pays for no head. Ours import the
trunk and no other extension, so that each can be deleted; a package of others may build on one of ours.

Example:
    EXTENSION = Extension("ordinal", __name__, kinds={"ordinal": KindEntry(".kind:Ordinal", "text", is_own=True)})

A broken extension does not stop the others: one line says which package it is and how to mend it.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from roberta_plugin.former_fields import formerly

logger = logging.getLogger(__name__)

OURS = "roberta_plugin"
"""The package of our own extensions."""
API = 1
"""The version of this interface; it grows when extensions have to change."""
GROUP = "roberta_plugin.extensions"
"""The entry points of installed extensions, and the package of our own."""
T = TypeVar("T")


@formerly("own_options", "shared_options")
@dataclass(frozen=True)
class KindEntry:
    """A kind of task, as far as help texts and choices of options need it."""

    kind: str
    """Reference of its class, a `finetuning.kinds.base.Kind`."""
    fields: str
    """Fields of a record."""
    training: str = ""
    """Reference of its `finetuning.training.KindTraining`; empty: that of the kind that it extends."""
    task_kind: str = ""
    """What `roberta predict --task-kind` calls it; empty: its name."""
    options: tuple[str, ...] = ()
    """Options of `roberta predict` that only this kind has."""
    chosen_by: str = ""
    """The one of them that chooses this kind where --task-kind is not given."""
    is_own: bool = False
    """True if tables of your own can be of this kind (`roberta prepare custom --kind`)."""
    numbers: tuple[str, ...] = ()
    """Thresholds and temperatures that decide beside the weights, as `Kind.decides_by` and the metrics call them."""
    shared_options: tuple[str, ...] = ()
    """Options of `roberta prepare custom` that it takes and other kinds may take, too, such as labels."""
    option_words: Mapping[str, str] = field(default_factory=dict)
    """Option of `roberta prepare custom` or `roberta predict` that other kinds have too -> what it is for this one."""
    errors: tuple[str, ...] = ()
    """Its metrics of which a smaller value is better, as of the loss."""
    own_aliases: tuple[str, ...] = ()
    """Further values of its --kind that mean this kind."""


@dataclass(frozen=True)
class HeadEntry:
    """A kind of head."""

    head: str
    """Reference of its class, a `models.heads.Head`."""
    predict: str = ""
    """Reference of what `RobertaHub.predict` calls for it: a function of the hub, the head's name and the texts or ids,
    with the options of `predict`; empty: the head's outputs are logits (N, C) of texts."""


@dataclass(frozen=True)
class TrainingEntry:
    """A name for fairseq's --task and --criterion, under which kinds are fine-tuned."""

    task_options: str = "roberta_plugin.tasks.finetuning:FineTuningConfig"
    """Reference of the dataclass of its task options, a `FineTuningConfig`."""
    criterion_options: str = "roberta_plugin.criterions.finetuning_options:ValidatedConfig"
    """Reference of the dataclass of its criterion's options, a `ValidatedConfig`."""


@dataclass(frozen=True)
class CriterionOptions:
    """Options that an extension adds to the criterion of a training that another one registers."""

    training: str
    """A name of `trainings`."""
    options: str
    """Reference of a `FairseqDataclass`."""


@dataclass(frozen=True)
class BenchmarkFamily:
    """Benchmarks whose rows are in one module."""

    tasks: tuple[str, ...]
    """As the command line names them."""
    rows: str
    """Reference of the table name -> `finetuning.benchmarks.base.Benchmark`."""
    options: str = "roberta_plugin.finetuning.options:TaskOptions"
    """Reference of the dataclass of their options."""
    leaderboards: tuple[str, ...] = ()
    """Leaderboards that take predictions of their rows (`Benchmark.leaderboard`)."""


@dataclass(frozen=True)
class VerbEntry:
    """A verb of the command `roberta`, or an action of one."""

    summary: str = ""
    """Its line in `roberta --help`, or in the help of its verb; empty: the lines of its actions."""
    command: str = ""
    """Reference of its `cli.command.Command`; empty: the verb has actions."""


@dataclass(frozen=True)
class StartChangeEntry:
    """How a model that pretraining goes on from (--finetune-from-model) gets the vocabulary of other text."""

    change: str
    """Reference of a function of the checkpoint, a data-bin with its tokenizer, and a new folder. It writes such a
    model into the folder, by `conversion.convert.output_folder`, and returns how its new rows begin, in words."""
    by_hand: str
    """How the user does the same before, for the message about data of other words."""


@dataclass(frozen=True)
class MaskingEntry:
    """A strategy for choosing the tokens that pretraining predicts, as --masking names it."""

    masker: str
    """Reference of its class, a `data.dynamic_masking.Masker`."""
    options: str = ""
    """Reference of a dataclass whose fields become options of the pretraining task that go with this masking."""
    summary: str = ""
    """A few words for the help of --masking."""


@dataclass(frozen=True)
class InputFormatEntry:
    """What the inputs of pretraining are, as --input-format names it."""

    input_format: str
    """Reference of its class, a `tasks.input_formats.InputFormat`."""
    options: str = ""
    """Reference of a dataclass whose fields become options of the pretraining task that go with this format."""
    summary: str = ""
    """A few words for the help of --input-format."""


@dataclass(frozen=True)
class TokenizerEntry:
    """A kind of tokenizer, as `roberta tokenizer train --kind` names it."""

    tokenizer: str
    """Reference of its class, a `data.tokenizers.base.Tokenizer`, whose `load` reads a folder."""
    files: tuple[str, ...]
    """Its files, by which a folder is known to have it."""
    about: str
    """What the help of --kind says of it."""
    train: str
    """Reference of a function of a `data.tokenizers.training.TextSample` and of `TokenizerSettings`."""
    has_frequency: bool = True
    """True if it takes --min-frequency."""
    fairseq_bpe: str = ""
    """Its name for fairseq's --bpe."""
    new_words: str = ""
    """Reference of a module by which words are added to a BPE whose symbols are its pieces; empty: it takes no words.

    Its functions: `is_several_words(tokenizer, word)` is true if the tokenizer's rules cut the word,
    `read_merges(tokenizer)` returns pieces and merges, and `with_merges(tokenizer, pieces, merges)` a tokenizer.
    """


@dataclass(frozen=True)
class FormatEntry:
    """A format of other programs: `roberta export --to` writes it, and perhaps other commands open its folders."""

    format: str
    """Reference of its class, a `conversion.formats.Format`."""
    marks: tuple[str, ...] = ()
    """Files by which a folder is known to have this format."""
    own_mark: str = ""
    """The file that only our exports have; with it, a folder has no other format."""
    opener: str = ""
    """Reference of a function of a folder and a precision that returns a `hub.graphs.OpenedGraph`, which answers for
    RobertaHub; empty: its folders answer nothing by themselves."""
    why_not_alone: str = ""
    """What is said of a folder that has its files alone, after the folder's name; {path} is that."""
    is_hugging_face: bool = False
    """True if its marks are found in folders of Hugging Face alone."""
    takes_any_layers: bool = False
    """True if a model of any layers can be expressed in it."""
    weights: tuple[str, ...] = ()
    """Files of weights, by which a model of the Hugging Face hub is whole."""
    files: tuple[str, ...] = ()
    """Patterns of the files that are fetched from the hub."""
    own_files: tuple[str, ...] = ()
    """Further ones, where `own_mark` is among them."""
    named_files: str = ""
    """Reference of a function of a folder that returns further files which its files name."""


@formerly("own_options", "table_options")
@dataclass(frozen=True)
class Extension:
    """What one task or capability adds; each mapping is by name."""

    name: str
    module: str
    """`__name__` of the module that defines it; references that begin with a point are relative to it."""
    api: int = API
    """The version of this interface for which it was written."""
    position: int = 100
    """Its place in lists, among our own: the smallest comes first."""
    kinds: Mapping[str, KindEntry] = field(default_factory=dict)
    heads: Mapping[str, HeadEntry] = field(default_factory=dict)
    trainings: Mapping[str, TrainingEntry] = field(default_factory=dict)
    criterion_options: Mapping[str, CriterionOptions] = field(default_factory=dict)
    benchmarks: Mapping[str, BenchmarkFamily] = field(default_factory=dict)
    table_options: Mapping[str, str] = field(default_factory=dict)
    """Name -> reference of a dataclass whose fields become options of `roberta prepare custom`."""
    predict_options: Mapping[str, str] = field(default_factory=dict)
    """Name -> reference of a dataclass whose fields become options of `roberta predict`."""
    maskings: Mapping[str, MaskingEntry] = field(default_factory=dict)
    input_formats: Mapping[str, InputFormatEntry] = field(default_factory=dict)
    hub_methods: Mapping[str, str] = field(default_factory=dict)
    """Name of a method of `RobertaHub` -> reference of a function whose first argument is the hub."""
    formats: Mapping[str, FormatEntry] = field(default_factory=dict)
    export_options: Mapping[str, str] = field(default_factory=dict)
    """Name -> reference of a dataclass whose fields become options of `roberta export`."""
    import_options: Mapping[str, str] = field(default_factory=dict)
    """Name -> reference of a dataclass whose fields become options of `roberta import`; its `additions` are applied."""
    tokenizers: Mapping[str, TokenizerEntry] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)
    """model_type in Hugging Face's config.json -> reference of a module, a `conversion.families.Family`."""
    verbs: Mapping[str, VerbEntry] = field(default_factory=dict)
    actions: Mapping[str, VerbEntry] = field(default_factory=dict)
    """By "VERB ACTION": an action of a verb that has actions, such as `tokenizer`."""
    start_changes: Mapping[str, StartChangeEntry] = field(default_factory=dict)
    """By "vocabulary": how a model to go on from gets another one."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Former name of a module, without `roberta_plugin.` -> its place in the extension's package, for one version.
    The same for a name of a module that is still there, as "module:name"."""
    package: str = OURS
    """The installed package that it comes from; filled in by `find_extensions`."""


class Registry(Mapping[str, T], Generic[T]):
    """The entries of one sort, in the order of their registration; reading it finds all extensions first."""

    def __init__(
        self, sort: str, noun: str, *, trunk: Mapping[str, T] = MappingProxyType({}), only: tuple[str, ...] = ()
    ) -> None:
        """Make one with the entries of the trunk.

        `sort` is the field of `Extension`, `noun` what messages call an entry, and `only` are the names that entries
        may have; empty: any.
        """
        self.sort, self.noun, self.only = sort, noun, only
        self._entries: dict[str, T] = dict(trunk)
        self._owners: dict[str, Extension] = dict.fromkeys(trunk, Extension("trunk", "roberta_plugin"))
        self.reserved: tuple[str, ...] = ()
        """Names of the trunk, which no extension may have."""
        REGISTRIES[sort] = self

    def __iter__(self) -> Iterator[str]:
        find_extensions()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        find_extensions()
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        find_extensions()
        return name in self._entries

    def __getitem__(self, name: str) -> T:
        find_extensions()
        if name not in self._entries:
            raise KeyError(self.unknown(name))
        return self._entries[name]

    def owner(self, name: str) -> Extension:
        """The extension that registered an entry."""
        find_extensions()
        return self._owners[name]

    def load(self, name: str, part: str = "") -> Any:
        """Import what an entry refers to; `part` is the field with the reference, if an entry has several.

        Raises:
            ValueError: if there is no such entry, or its extension cannot be imported.
        """
        find_extensions()
        if name not in self._entries:
            raise ValueError(self.unknown(name))
        entry = self._entries[name]
        return _import(str(getattr(entry, part) if part else entry), self._owners[name])

    def unknown(self, name: object) -> str:
        """The sentence about a name that is not registered; it ends with what is known of broken extensions."""
        find_extensions()
        known = ", ".join(self._entries) or "none"
        return " ".join([f"There is no {self.noun} {name!r}; there are {known}.", *problems])


_OF_TOKENIZERS = "roberta_plugin.data.tokenizers"
REGISTRIES: dict[str, Registry[Any]] = {}
KINDS: Registry[KindEntry] = Registry("kinds", "kind of task")
HEADS: Registry[HeadEntry] = Registry(
    "heads", "kind of head", trunk={"classification": HeadEntry("roberta_plugin.models.heads:ClassificationHead")}
)
TRAININGS: Registry[TrainingEntry] = Registry(
    "trainings",
    "fine-tuning task of fairseq-train",
    trunk={
        "roberta_sentence_prediction": TrainingEntry(
            criterion_options="roberta_plugin.criterions.finetuning_options:LabelsConfig"
        )
    },
)
CRITERION_OPTIONS: Registry[CriterionOptions] = Registry("criterion_options", "set of options of a criterion")
BENCHMARKS: Registry[BenchmarkFamily] = Registry("benchmarks", "family of benchmarks")
TABLE_OPTIONS: Registry[str] = Registry("table_options", "set of options for own tables")
PREDICT_OPTIONS: Registry[str] = Registry("predict_options", "set of options for predictions")
_BLOCKS = InputFormatEntry("roberta_plugin.tasks.input_formats:BlockFormat")
INPUT_FORMATS: Registry[InputFormatEntry] = Registry(
    "input_formats", "input format", trunk={"full-sentences": _BLOCKS, "doc-sentences": _BLOCKS}
)
MASKINGS: Registry[MaskingEntry] = Registry(
    "maskings", "masking", trunk={"uniform": MaskingEntry("roberta_plugin.data.dynamic_masking:Masker")}
)
HUB_METHODS: Registry[str] = Registry("hub_methods", "method of the hub")
FORMATS: Registry[FormatEntry] = Registry(
    "formats",
    "format of models",
    trunk={
        "huggingface": FormatEntry("roberta_plugin.conversion.huggingface:HuggingFaceFormat", is_hugging_face=True),
        "fairseq": FormatEntry("roberta_plugin.conversion.fairseq_format:FairseqFormat"),
    },
)
EXPORT_OPTIONS: Registry[str] = Registry("export_options", "set of options for exports")
IMPORT_OPTIONS: Registry[str] = Registry("import_options", "set of options for imports")
TOKENIZERS: Registry[TokenizerEntry] = Registry(
    "tokenizers",
    "kind of tokenizer",
    trunk={
        "byte_level_bpe": TokenizerEntry(
            f"{_OF_TOKENIZERS}.byte_level_bpe:ByteLevelBpe",
            ("encoder.json", "vocab.bpe"),
            "as in RoBERTa and GPT-2",
            f"{_OF_TOKENIZERS}.training:train_byte_level_bpe",
            fairseq_bpe="gpt2",
        ),
        "sentencepiece": TokenizerEntry(
            f"{_OF_TOKENIZERS}.sentencepiece:SentencePiece",
            ("sentencepiece.bpe.model",),
            "as in XLM-R, for many languages",
            f"{_OF_TOKENIZERS}.training:train_sentencepiece",
            has_frequency=False,
            fairseq_bpe="sentencepiece",
        ),
        "whitespace": TokenizerEntry(
            f"{_OF_TOKENIZERS}.whitespace:Whitespace",
            ("whitespace.json",),
            "the words between white space",
            f"{_OF_TOKENIZERS}.training:train_whitespace",
        ),
    },
)
FAMILIES: Registry[str] = Registry("families", "family of models of Hugging Face")
VERBS: Registry[VerbEntry] = Registry("verbs", "verb")
ACTIONS: Registry[VerbEntry] = Registry(
    "actions",
    "action",
    trunk={
        "tokenizer train": VerbEntry("train a tokenizer on text files", "roberta_plugin.cli.text:train"),
        "tokenizer show": VerbEntry("show how a tokenizer splits a text", "roberta_plugin.cli.text:show"),
    },
)
START_CHANGES: Registry[StartChangeEntry] = Registry("start_changes", "change of a start model", only=("vocabulary",))

extensions: dict[str, Extension] = {}
"""All that are registered, by name."""
problems: list[str] = []
"""One sentence for each extension that could not be registered."""
on_registration: list[Callable[[Extension], None]] = []
"""Called with each extension that comes after `find_extensions`, such as one of a --user-dir."""
_state = {"found": False, "finding": False}
_waiting: list[Any] = []  # entry points of installed packages that are not registered yet


def all_extensions() -> dict[str, Extension]:
    """All that are registered, by name."""
    find_extensions()
    return extensions


def register(extension: Extension) -> None:
    """Add everything that an extension brings.

    Registering the same extension again changes nothing.

    Raises:
        ValueError: if it was made for another version of this interface, or brings a name that another one has.
    """
    find_extensions()
    try:
        is_new = _add(extension)
    except ValueError as error:
        raise ValueError(
            f"The extension {extension.name} of {extension.module} cannot be registered: {error}."
        ) from error
    if is_new:
        for notify in on_registration:
            notify(extension)


def owners_elsewhere(*entries: tuple[Registry[Any], str]) -> list[dict[str, str]]:
    """Name and package of the extensions of other packages that have these entries, for files that depend on them."""
    owners = {owner.name: owner for registry, name in entries if (owner := registry.owner(name)).package != OURS}
    return [{"name": name, "package": owner.package} for name, owner in owners.items()]


def check_installed(recorded: Iterable[Mapping[str, str]], *, what: str) -> None:
    """Refuse what depends on extensions that are not installed; `recorded` are those of `owners_elsewhere`.

    `what` begins the message.

    Example: "runs/best.pt was trained with" -> "runs/best.pt was trained with the extension ordinal of ordinal 1.0,
    which is not installed: pip install ordinal."
    """
    for extension in recorded:
        if extension["name"] not in all_extensions():
            sentence = (
                f"{what} the extension {extension['name']} of {extension['package']}, which is not installed: pip "
                f"install {extension['package'].split()[0]}."
            )
            raise ValueError(" ".join([sentence, *problems]))


def leave_out(what: str, owner: Extension, error: BaseException) -> None:
    """Note in one line that a part of another package is not used; `what` ends with "is" or "are".

    Raises:
        BaseException: `error` itself, if the part is ours.
    """
    if owner.package == OURS:
        raise error
    reason = str(error).partition(". Install")[0].rstrip(".") or type(error).__name__
    remedy = f"Install a version of {owner.package.split()[0]} that suits, or remove it."
    problem = f"{what} not used: {reason}. {remedy}"
    if problem not in problems:
        problems.append(problem)
        logger.warning(problem)


def find_extensions() -> None:
    """Register our own extensions and those of installed packages, once in a process."""
    if _state["finding"] or (_state["found"] and not _waiting):
        return
    _state["finding"] = True
    try:
        if not _state["found"]:
            own = importlib.import_module(GROUP)
            modules = (importlib.import_module(each.name) for each in pkgutil.iter_modules(own.__path__, f"{GROUP}."))
            for extension in sorted((each.EXTENSION for each in modules), key=lambda each: each.position):
                _add(extension)
            _waiting.extend(_entry_points())
        for point in [each for each in _waiting if not _is_being_imported(each)]:
            _waiting.remove(point)
            installed = _add_installed(point)
            if installed is not None and _state["found"]:
                for notify in on_registration:
                    notify(installed)
        _state["found"] = True
    finally:
        _state["finding"] = False


def _entry_points() -> Iterator[Any]:
    """Entry points of installed packages; a package that stands twice on the path counts once."""
    from importlib.metadata import entry_points

    seen = set()
    for point in entry_points(group=GROUP):
        if point.value not in seen:
            seen.add(point.value)
            yield point


def _is_being_imported(point: Any) -> bool:
    """True while a package imports this one and has no extension yet."""
    spec = getattr(sys.modules.get(point.module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _add_installed(point: Any) -> Extension | None:
    """Register the extension of an entry point, and return it if it is new.

    A fault is one line, and costs only this extension.
    """
    package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    try:
        extension = point.load()
        if not isinstance(extension, Extension):
            raise TypeError(f"{point.value} is not a roberta_plugin.registry.Extension")
        return extension if _add(extension, package=package) else None
    except (Exception, SystemExit) as error:  # whatever a foreign module raises
        if isinstance(error, ValueError) and isinstance(error.__cause__, ValueError):  # its module called `register`
            error = error.__cause__
        remedy = f"Install a version that suits, or remove it: pip uninstall {package.split()[0]}."
        reason = str(error).rstrip(".") or type(error).__name__
        problems.append(f"The extension of {package} is not used: {reason}. {remedy}")
        logger.warning(problems[-1])
        return None


def _add(extension: Extension, *, package: str = "") -> bool:
    """Add the entries of an extension to the registries, all or none; False if they are there."""
    if extensions.get(extension.name) is extension:
        if package:  # its module has registered it while the entry point was loaded
            object.__setattr__(extension, "package", package)
        return False
    if extension.api != API:
        raise ValueError(f"it was made for version {extension.api} of the extension interface, and this is {API}")
    _check_names(extension)
    if package:
        object.__setattr__(extension, "package", package)
    elif not extension.module.startswith(GROUP):
        object.__setattr__(extension, "package", extension.module)
    extensions[extension.name] = extension
    for sort, registry in REGISTRIES.items():
        for name, entry in getattr(extension, sort).items():
            registry._entries[name] = entry
            registry._owners[name] = extension
    return True


def _check_names(extension: Extension) -> None:
    """Refuse names that another extension has."""
    if extension.name in extensions:
        other = extensions[extension.name]
        raise ValueError(f"{other.package} ({other.module}) has an extension {extension.name!r} already")
    for sort, registry in REGISTRIES.items():
        for name in getattr(extension, sort):
            if registry.only and name not in registry.only:
                raise ValueError(f"there is no {registry.noun} {name!r}, only {', '.join(registry.only)}")
            if name in registry.reserved:
                raise ValueError(f"the {registry.noun} {name!r} is one of roberta_plugin's own")
            if name in registry._entries:
                raise ValueError(f"the {registry.noun} {name!r} is registered by {registry._owners[name].package}")
    for family in extension.benchmarks.values():
        for name, taken in BENCHMARKS._entries.items():
            for task in set(family.tasks) & set(taken.tasks):
                raise ValueError(f"the task {task!r} is registered by {BENCHMARKS._owners[name].package}")


def _import(reference: str, extension: Extension) -> Any:
    """The object that "module:attribute" names."""
    try:
        return load(reference, package=extension.module)
    except Exception as error:  # whatever a foreign module raises
        if extension.package == OURS:
            raise
        raise ValueError(
            f"{reference} of the extension {extension.name} ({extension.package}) cannot be imported: {error}. "
            f"Install a version of {extension.package.split()[0]} that suits, or remove it."
        ) from error


def load(reference: str, *, package: str | None = None) -> Any:
    """Import "module:attribute", or a whole "module"; one that begins with a point is relative to the package."""
    module, _, attribute = reference.partition(":")
    found = importlib.import_module(module, package)
    return getattr(found, attribute) if attribute else found


assert {item.name for item in fields(Extension)} >= REGISTRIES.keys(), "each sort is a field of Extension"
