"""BLiMP and Zorro read from their files: which sentence is grammatical, what is missing, and the published numbers."""

import numpy as np
import pytest

from roberta_plugin.experiments.minimal_pairs.benchmarks import BENCHMARKS, percent_right
from tests.real_data import unpack
from tests.tiny_minimal_pairs import PAIRS, write_blimp, write_zorro

WRITERS = {"blimp": write_blimp, "zorro": write_zorro}


def test_ties_and_missing_scores_count_as_wrong():
    assert percent_right([1.0, 2.0, 3.0, np.nan, 0.0], [0.0, 2.0, 4.0, 0.0, np.nan]) == 20.0


@pytest.mark.parametrize("name", WRITERS)
def test_every_paradigm_is_read_with_the_grammatical_sentence_first(name, tmp_path):
    benchmark, folder = BENCHMARKS[name], WRITERS[name](tmp_path)
    paradigms = benchmark.paradigms(folder, limit=2)
    assert [paradigm.name for paradigm in paradigms] == list(benchmark.categories)
    assert all([tuple(pair[:2]) for pair in paradigm.pairs] == PAIRS[:2] for paradigm in paradigms)
    assert benchmark.folder(tmp_path) == folder  # also from the folder above


def test_published_numbers_are_means_over_paradigms(tmp_path):
    blimp = BENCHMARKS["blimp"].published_numbers(write_blimp(tmp_path / "a"))
    assert blimp["n-gram"]["all"] == pytest.approx(60.0)
    assert blimp["GPT-2"]["anaphor_agreement"] == pytest.approx(50.0)  # one paradigm 0, the other 100
    assert blimp["people"] == {"all": 88.6}
    zorro = BENCHMARKS["zorro"].published_numbers(write_zorro(tmp_path / "b"))
    assert [zorro["roberta-base"][name] for name in ("all", "irregular-verb")] == pytest.approx([100 / 3] * 2)


def test_a_clone_of_the_repository_of_blimp_has_its_published_numbers(tmp_path):
    clone = tmp_path / "clone"
    write_blimp(clone).rename(clone / "data")
    (clone / "raw_results" / "summary").mkdir(parents=True)
    (clone / "blimp_models_summary.jsonl").rename(clone / "raw_results" / "summary" / "models_summary.jsonl")
    assert BENCHMARKS["blimp"].published_numbers(clone / "data")["n-gram"]["all"] == pytest.approx(60.0)


@pytest.mark.parametrize("content", ["a 0.1\nb no\n", "a 0.1\nb 0.2\nc 0.3\n", "\n\n"])
def test_damaged_published_scores_are_named(content, tmp_path):
    folder = write_zorro(tmp_path)
    (tmp_path / "zorro_roberta_base" / "irregular-verb.txt").write_text(content)
    with pytest.raises(ValueError, match=r"irregular-verb\.txt must have a sentence and its score"):
        BENCHMARKS["zorro"].published_numbers(folder)


def test_the_published_scores_and_numbers_of_the_official_files_are_found_again(shared_data, tmp_path):
    folder = unpack(shared_data, "grammar", tmp_path) / "grammar"
    zorro = BENCHMARKS["zorro"].published_numbers(folder / "zorro")["roberta-base"]
    assert round(zorro["all"], 1) == 82.5
    blimp = BENCHMARKS["blimp"].published_numbers(folder / "blimp")
    rounded = {
        name: (round(each["all"], 1), round(each.get("argument_structure", 0), 1)) for name, each in blimp.items()
    }
    assert rounded["n-gram"] == (61.2, 71.9) and rounded["GPT-2"] == (83.0, 81.8)  # the summary's rows `overall`
    for name, number in (("blimp", 67_000), ("zorro", 46_000)):
        paradigms = BENCHMARKS[name].paradigms(folder)
        assert sum(len(paradigm.pairs) for paradigm in paradigms) == number


@pytest.mark.parametrize("name", WRITERS)
def test_missing_files_are_named(name, tmp_path):
    folder = WRITERS[name](tmp_path)
    first, *_ = BENCHMARKS[name].categories
    path = folder / f"{first}{BENCHMARKS[name].ending}"
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks 1 of the .*{path.name}"):
        BENCHMARKS[name].paradigms(folder)
    with pytest.raises(FileNotFoundError, match="there are no files of"):
        BENCHMARKS[name].paradigms(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("blimp", '{"sentence_good": "A."}\n', "line 1: there is no column 'sentence_bad'"),
        ("blimp", '{"sentence_good": "A.", "sentence_bad": ""}\n', "line 1: .*sentence_bad"),
        ("zorro", "a b .\na c .\na d .\n", "has 3 lines, and a pair is two"),
        ("zorro", "a b .\n\n", "line 2 is empty"),
        ("blimp", "", r"jsonl is empty: fetch it again"),
        ("zorro", "", r"txt is empty: fetch it again"),
        ("zorro", "a b .\na c .\na <mask> .\na d .\n", "line 3: a sentence has a <mask>"),
    ],
)
def test_what_is_no_pair_is_named_by_file_and_line(name, content, message, tmp_path):
    folder = WRITERS[name](tmp_path)
    first, *_ = BENCHMARKS[name].categories
    (folder / f"{first}{BENCHMARKS[name].ending}").write_text(content)
    with pytest.raises(ValueError, match=message):
        BENCHMARKS[name].paradigms(folder)
