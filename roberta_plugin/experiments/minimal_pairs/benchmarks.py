"""BLiMP and Zorro: their official files -> paradigms of minimal pairs, and the published numbers beside them.

    blimp    a .jsonl file a paradigm, a pair a line: sentence_good and sentence_bad (Warstadt et al. 2020)
    zorro    a .txt file a paradigm, a sentence a line: odd lines are ungrammatical, even ones grammatical (Huebner
             et al. 2021)

A paradigm belongs to a category, the phenomenon that it tests. A category's number is the mean of its paradigms, as in
the papers, and the number of all is the mean of all paradigms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.vocabulary import MASK
from roberta_plugin.kinds import ScoreMethod
from roberta_plugin.tables import read_table, text_lines, where

ALL = "all"
Numbers = dict[str, float]
"""Paradigm, category or `ALL` -> pairs right in percent."""


class Pair(NamedTuple):
    """Two sentences, of which the first is grammatical."""

    good: str
    bad: str
    where: str
    """For messages."""


class Paradigm(NamedTuple):
    """The pairs of one file."""

    name: str
    category: str
    pairs: Sequence[Pair]


@dataclass(frozen=True, kw_only=True)
class PairBenchmark:
    """A row of the table of benchmarks of minimal pairs."""

    name: str
    """Its name on the command line."""
    title: str
    method: ScoreMethod
    """How the literature scores a masked LM on it."""
    num_pairs: int
    """Number of pairs in each paradigm."""
    ending: str
    """How the names of the files end."""
    categories: Mapping[str, str]
    """Paradigm -> category."""
    read: Callable[[Path], Iterator[Pair]]
    """The pairs in a file."""
    published: Callable[[Path, PairBenchmark], dict[str, Numbers]]
    """Model -> its numbers, from the files beside the folder of the pairs."""
    known: Mapping[str, float] = field(default_factory=dict)
    """Further published models -> their number for all pairs."""

    def folder(self, data: Path) -> Path:
        """The folder of the files: `data`, or its subfolder of the benchmark's name."""
        names = [f"{name}{self.ending}" for name in self.categories]
        folders = [folder for folder in (data, data / self.name, data / "data") if folder.is_dir()]
        found = max(folders, key=lambda folder: sum((folder / name).is_file() for name in names), default=data)
        missing = [name for name in names if not (found / name).is_file()]
        if len(missing) == len(names):
            raise FileNotFoundError(
                f"--data {data}: there are no files of {self.title} ({names[0]} and {len(names) - 1} others): name the "
                "folder with its official files."
            )
        if missing:
            raise FileNotFoundError(
                f"--data {found} lacks {len(missing)} of the {len(names)} files of {self.title}: "
                f"{', '.join(missing)}. Unpack them again; without them the numbers could not be compared."
            )
        return found

    def paradigms(self, data: Path, *, limit: int | None = None) -> list[Paradigm]:
        """The paradigms, with at most `limit` pairs each, the first."""
        folder = self.folder(data)
        paradigms = []
        for name, category in self.categories.items():
            path = folder / f"{name}{self.ending}"
            pairs = list(self.read(path))
            if not pairs:
                raise ValueError(f"{path} is empty: fetch it again.")
            masked = next((pair for pair in pairs if MASK in pair.good + pair.bad), None)
            if masked is not None:
                raise ValueError(
                    f"{masked.where}: a sentence has a {MASK}, and cannot be scored. Fetch the file again."
                )
            paradigms.append(Paradigm(name, category, pairs[:limit]))
        return paradigms

    def published_numbers(self, data: Path) -> dict[str, Numbers]:
        """Model -> its published numbers: those in the files beside the pairs, and those in `known`."""
        numbers = self.published(self.folder(data), self)
        return {**numbers, **{model: {ALL: number} for model, number in self.known.items()}}

    def summarized(self, by_paradigm: Mapping[str, float]) -> Numbers:
        """Percentages by paradigm -> the same by paradigm, category, and in all."""
        groups: dict[str, list[float]] = {ALL: list(by_paradigm.values())}
        for name, value in by_paradigm.items():
            groups.setdefault(self.categories[name], []).append(value)
        return {**{name: float(np.mean(values)) for name, values in groups.items()}, **by_paradigm}


def percent_right(good: Sequence[float] | NDArray[np.float64], bad: Sequence[float] | NDArray[np.float64]) -> float:
    """Pairs whose grammatical sentence has the higher score, in percent; ties and NaN count as wrong."""
    return 100.0 * float(np.mean(np.asarray(good) > np.asarray(bad)))


def read_blimp(path: Path) -> Iterator[Pair]:
    """The pairs of a file of BLiMP."""
    for row in read_table(path):
        yield Pair(row.text("sentence_good"), row.text("sentence_bad"), row.where)


def read_zorro(path: Path) -> Iterator[Pair]:
    """The pairs of a file of Zorro."""
    lines = [line.strip() for line in text_lines(path)]
    if len(lines) % 2:
        raise ValueError(
            f"{path} has {len(lines):,} lines, and a pair is two: a line is missing. Fetch the file again."
        )
    for number in range(0, len(lines), 2):
        bad, good = lines[number : number + 2]
        if not (bad and good):
            line = number + (2 if bad else 1)
            raise ValueError(f"{where(path, line)} is empty, so its pair is none. Fetch the file again.")
        yield Pair(good, bad, where(path, number + 1))


def published_blimp(folder: Path, benchmark: PairBenchmark) -> dict[str, Numbers]:
    """The four models of the paper, from the summary that comes with the pairs; empty without it.

    In the authors' repository the pairs are in data/, the summary in raw_results/summary/.
    """
    names = ("blimp_models_summary.jsonl", "models_summary.jsonl", "raw_results/summary/models_summary.jsonl")
    path = next((path for path in _beside(folder, names) if path.is_file()), None)
    if path is None:
        return {}
    models = {"ngram": "n-gram", "lstm": "LSTM", "txl": "Transformer-XL", "gpt2": "GPT-2"}
    rows = [row.values for row in read_table(path) if row.values.get("UID") in benchmark.categories]
    return {
        shown: benchmark.summarized({str(row["UID"]): 100.0 * float(row[model]) for row in rows})
        for model, shown in models.items()
        if rows and all(model in row for row in rows)
    }


def published_zorro(folder: Path, benchmark: PairBenchmark) -> dict[str, Numbers]:
    """The released roberta-base, from its score for each sentence that comes with the pairs; empty without them."""
    found = next((path for path in _beside(folder, ["zorro_roberta_base"]) if path.is_dir()), None)
    if found is None:
        return {}
    right = {}
    for name in benchmark.categories:
        path = found / f"{name}{benchmark.ending}"
        if path.is_file():
            try:
                scores = np.array([-float(line.split()[-1]) for line in text_lines(path)])  # of cross-entropies
                bad, good = scores.reshape(-1, 2).T
                right[name] = percent_right(good, bad)
            except (ValueError, IndexError) as error:
                raise ValueError(
                    f"{path} must have a sentence and its score on each line, two lines a pair ({error}): fetch it "
                    f"again, or remove the folder {found}."
                ) from error
    return {"roberta-base": benchmark.summarized(right)} if right else {}


def _beside(folder: Path, names: Iterable[str]) -> list[Path]:
    return [base / name for base in (folder, folder.parent) for name in names]


def _named(**categories: str) -> dict[str, str]:
    return {name: category for category, names in categories.items() for name in names.split()}


_ZORRO = """
    agreement_determiner_noun-across_1_adjective agreement_determiner_noun-between_neighbors
    agreement_subject_verb-across_prepositional_phrase agreement_subject_verb-across_relative_clause
    agreement_subject_verb-in_question_with_aux agreement_subject_verb-in_simple_question
    anaphor_agreement-pronoun_gender argument_structure-dropped_argument
    argument_structure-swapped_arguments argument_structure-transitive binding-principle_a
    case-subjective_pronoun ellipsis-n_bar filler-gap-wh_question_object filler-gap-wh_question_subject
    irregular-verb island-effects-adjunct_island island-effects-coordinate_structure_constraint
    local_attractor-in_question_with_aux npi_licensing-matrix_question npi_licensing-only_npi_licensor
    quantifiers-existential_there quantifiers-superlative
"""
BENCHMARKS: dict[str, PairBenchmark] = {
    "blimp": PairBenchmark(
        name="blimp",
        title="BLiMP",
        method="pll",
        num_pairs=1000,
        ending=".jsonl",
        read=read_blimp,
        published=published_blimp,
        known={"RoBERTa-base, 10 M words (BabyLM)": 69.5, "people": 88.6},
        categories=_named(
            anaphor_agreement="anaphor_gender_agreement anaphor_number_agreement",
            argument_structure="""
                animate_subject_passive animate_subject_trans causative drop_argument inchoative intransitive passive_1
                passive_2 transitive
            """,
            binding="""
                principle_A_c_command principle_A_case_1 principle_A_case_2 principle_A_domain_1 principle_A_domain_2
                principle_A_domain_3 principle_A_reconstruction
            """,
            control_raising="""
                existential_there_object_raising existential_there_subject_raising expletive_it_object_raising
                tough_vs_raising_1 tough_vs_raising_2
            """,
            determiner_noun_agreement="""
                determiner_noun_agreement_1 determiner_noun_agreement_2 determiner_noun_agreement_irregular_1
                determiner_noun_agreement_irregular_2 determiner_noun_agreement_with_adj_2
                determiner_noun_agreement_with_adj_irregular_1 determiner_noun_agreement_with_adj_irregular_2
                determiner_noun_agreement_with_adjective_1
            """,
            ellipsis="ellipsis_n_bar_1 ellipsis_n_bar_2",
            filler_gap_dependency="""
                wh_questions_object_gap wh_questions_subject_gap wh_questions_subject_gap_long_distance
                wh_vs_that_no_gap wh_vs_that_no_gap_long_distance wh_vs_that_with_gap wh_vs_that_with_gap_long_distance
            """,
            irregular_forms="irregular_past_participle_adjectives irregular_past_participle_verbs",
            island_effects="""
                adjunct_island complex_NP_island coordinate_structure_constraint_complex_left_branch
                coordinate_structure_constraint_object_extraction left_branch_island_echo_question
                left_branch_island_simple_question sentential_subject_island wh_island
            """,
            npi_licensing="""
                matrix_question_npi_licensor_present npi_present_1 npi_present_2 only_npi_licensor_present
                only_npi_scope sentential_negation_npi_licensor_present sentential_negation_npi_scope
            """,
            quantifiers="""
                existential_there_quantifiers_1 existential_there_quantifiers_2 superlative_quantifiers_1
                superlative_quantifiers_2
            """,
            subject_verb_agreement="""
                distractor_agreement_relational_noun distractor_agreement_relative_clause
                irregular_plural_subject_verb_agreement_1 irregular_plural_subject_verb_agreement_2
                regular_plural_subject_verb_agreement_1 regular_plural_subject_verb_agreement_2
            """,
        ),
    ),
    "zorro": PairBenchmark(
        name="zorro",
        title="Zorro",
        method="unmasked",
        num_pairs=2000,
        ending=".txt",
        read=read_zorro,
        published=published_zorro,
        categories={name: name.rpartition("-")[0] for name in _ZORRO.split()},
    ),
}
