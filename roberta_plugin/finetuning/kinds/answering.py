"""A record -> the answer of an open model: the part of a kind that reads records and chooses the head.

`Kind.answering` opens it; then `question` reads a record, and `answer` gives the answers to several.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from roberta_plugin.finetuning.records import WhiteSpace
from roberta_plugin.tables import IN_MEMORY, Row

Answer = dict[str, Any] | ValueError
"""The answer to a record, or the reason why there is none."""
Hub = Any
"""A `roberta_plugin.hub.RobertaHub`; that package imports this one, so the type cannot be named here."""
AnswerOptions = Any
"""The `PredictSettings` of `roberta_plugin/prediction/settings.py`, for the same reason."""


class Official(NamedTuple):
    """The part of an official task that a kind does not know: how its records are read and scored."""

    columns: tuple[str, ...] = ()
    """The column of the text, or the columns of the two texts."""
    is_pair: bool | None = None
    """True if it reads two texts; None: not known."""
    texts: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None
    """A record with the official fields -> its texts; `text` and `text_pair` are read too."""
    choices: Callable[[Mapping[str, Any]], Any] | None = None
    """A record with the official fields -> the example of its text, question and options."""
    slot: str = ""
    """The part of a question that an option replaces; empty: blanks, as in RACE."""
    separators: int = 2
    """The number of </s> between the text and a question with such a slot."""
    limits: tuple[float, float] | None = None
    """The smallest and the greatest number."""
    white_space: WhiteSpace | None = None
    """How the white space of a text is read; None: as the kind does."""
    is_own: bool = False
    """True for tables of your own, whose settings name the kind and the columns."""


OWN = Official(is_own=True)
"""Tables of your own."""


class AnsweringKind:
    """The part of a kind that answers about records."""

    name: ClassVar[str]
    head: ClassVar[str] = "classification"
    """The kind of its head in `models/heads.py`; or masked_lm, the head of pretraining."""
    fields: ClassVar[tuple[str, ...]] = ("text",)
    """Fields of a record that --text-column and --text-pair-column stand for."""
    decides_by: ClassVar[Mapping[str, str]] = {}
    """Thresholds and temperatures (`kinds/outputs.py`): the option of `roberta predict` that gives the number -> the
    option of the scoring that searches for it; empty: it is always searched for."""

    settings: Mapping[str, Any]
    official: Official
    is_answering: bool
    hub: Hub
    options: AnswerOptions
    numbers: Mapping[str, float]
    """The numbers of `decides_by` that the model has."""
    max_length: int
    head_name: str

    def open(self) -> None:
        """Choose the head that answers."""
        if self.head == "masked_lm":
            self.hub.check_masked_lm()
        else:
            self.head_name = chosen_head(self.hub.heads_of(self.head), self.options.head, kind=self.name)

    def question(self, record: Mapping[str, Any]) -> Any:
        """What a record asks, for `answer`."""
        row = Row(IN_MEMORY, 0, record)
        for name in ("text_column", "text_pair_column"):
            self.check_column(row, name)
        try:
            return self.read_question(row)
        except ValueError as error:
            raise ValueError(str(error).removeprefix(f"{row.where}: ")) from None

    def id_of(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The id of a record, as `id`; empty without one.

        Raises:
            ValueError: if there is no such column as --id-column names.
        """
        self.check_column(Row(IN_MEMORY, 0, record), "id_column")
        names = (self.options.id_column, self.settings.get("id_column"), "id")
        return next(({"id": record[name]} for name in names if name is not None and name in record), {})

    def check_column(self, row: Row, option: str) -> None:
        """Refuse a record without the column that an option names."""
        column = getattr(self.options, option)
        if column is not None and column not in row.values:
            raise ValueError(
                f"there is no column {column!r}; there are {', '.join(row.values)}. Name one of them by "
                f"--{option.replace('_', '-')}."
            )

    def names_of(self, place: int, *others: str) -> tuple[str, ...]:
        """Names of the columns that may hold the first (0) or the second text (1) of a row, or of a record.

        In a table it is the column of the settings; in a record also the usual ones and `others`.
        """
        option = ("text_column", "text_pair_column")[place]
        recorded = self.settings.get(option)
        if not self.is_answering:
            return (recorded,) if recorded else ()
        if (wanted := getattr(self.options, option)) is not None:
            return (wanted,)
        of_task = self.official.columns[place : place + 1]
        return (*((recorded,) if recorded else ()), self.fields[place], *others, *of_task)

    def second_column(self, row: Row, first: str) -> str | None:
        """The column of the second text of a row or record, beside the `first`; None: one text is read.

        In a table it is the column of the settings. A record must have one if the model was fine-tuned on two texts,
        and none if it was fine-tuned on one, so that the same is read on both roads.
        """
        names = [name for name in self.names_of(1) if name != first]
        if not self.is_answering:
            return names[0] if names else None
        found = next((name for name in names if name in row.values), None)
        # of tables of your own the settings say whether it learned from pairs; None: that is not known
        of_table = bool(self.settings.get("text_pair_column"))
        is_pair = of_table if "text_column" in self.settings else self.official.is_pair
        if found is not None and is_pair is False:
            raise ValueError(
                f"{row.where}: the model was fine-tuned on single texts, and the record has {found!r}. Leave it out."
            )
        if found is None and is_pair:
            usual = self.fields[1]
            raise ValueError(
                f"{row.where}: there is no column {names[0]!r} (there are {', '.join(row.values)}), and the model was "
                f"fine-tuned on pairs of texts; {usual} is read too. Add one, or name the column by --text-pair-column."
            )
        return found

    @abstractmethod
    def read_question(self, row: Row) -> Any:
        """The inputs of a row or record, checked."""

    def answer(self, questions: Sequence[Any]) -> list[Answer]:
        """The answers to results of `question`, in order, by the open model."""
        raise NotImplementedError(f"{self.name} is predicted as another kind")

    def known_labels(self, number: int, *, form: str = "{}") -> list[str]:
        """The names of a head's classes, or their numbers if the checkpoint has no names or another number of them."""
        names = [str(label) for label in self.settings.get("labels") or ()]
        return names if len(names) == number else [form.format(label) for label in range(number)]

    @classmethod
    def numbers_of(cls, values: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of `decides_by` among other values, such as the metrics of a development set."""
        return {name: float(values[name]) for name in cls.decides_by if name in values}

    def number(self, name: str) -> float | None:
        """The threshold or temperature of an option, or else of the model."""
        value: float | None = getattr(self.options, name)
        return self.numbers.get(name) if value is None else value

    def check_one_output(self) -> None:
        """Refuse a head with several outputs."""
        if (outputs := self.hub.num_classes(self.head_name)) != 1:
            raise ValueError(
                f"The head {self.head_name} has {outputs} outputs, one for each class: give --task-kind classification."
            )


def chosen_head(heads: Sequence[str], wanted: str | None, *, kind: str) -> str:
    """The head called `wanted`; None: the only head."""
    if wanted is not None:
        if wanted not in heads:
            raise ValueError(f"--head {wanted}: the model has {', '.join(heads) or 'no head'} for {kind}.")
        return wanted
    if not heads:
        raise ValueError(f"The model has no head for {kind}: fine-tune it first, or give another --task-kind.")
    if len(heads) > 1:
        raise ValueError(f"The model has the heads {', '.join(heads)}: choose one with --head.")
    return heads[0]


def marked(content: dict[str, Any], *, is_cut: bool) -> dict[str, Any]:
    """The answer, with a mark if the text was cut."""
    return {**content, "truncated": True} if is_cut else content
