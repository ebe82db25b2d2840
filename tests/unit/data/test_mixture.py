"""Shares of several corpora: parsing, exact proportions, refusals."""

import pytest

from roberta_plugin.data.mixture import Corpus, blocks_to_take, data_folders, parse_corpora


def test_folders_with_and_without_weights():
    assert parse_corpora("data-bin") == [Corpus("data-bin", None)]
    assert parse_corpora("a@3, b@0.5") == [Corpus("a", 3.0), Corpus("b", 0.5)]
    assert parse_corpora("a,b") == [Corpus("a", None), Corpus("b", None)]


def test_a_path_that_exists_is_a_path_whatever_is_in_it(tmp_path):
    for name in ("me@host", "one,two", "a@3"):
        (tmp_path / name).mkdir()
    assert parse_corpora(f"{tmp_path}/me@host") == [Corpus(f"{tmp_path}/me@host", None)]
    assert parse_corpora(f"{tmp_path}/me@host@3,{tmp_path}/b@1")[0] == Corpus(f"{tmp_path}/me@host", 3.0)
    assert parse_corpora(f"{tmp_path}/one,two") == [Corpus(f"{tmp_path}/one,two", None)]
    assert parse_corpora(f"{tmp_path}/a@3") == [Corpus(f"{tmp_path}/a@3", None)]
    with pytest.raises(ValueError, match="'me@host/no', which is neither a folder that exists nor FOLDER@WEIGHT"):
        parse_corpora("me@host/no")


def test_a_folder_with_a_colon_in_its_path_is_one_folder(tmp_path):
    folder = tmp_path / "2026-11-21T20:30:00"
    assert len(data_folders(str(folder))) == 3
    folder.mkdir()
    assert data_folders(str(folder)) == [folder]


def test_folders_of_all_turns_come_once():
    assert [str(folder) for folder in data_folders("a@2,b@1:c:a")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a,,b", "empty folder"),
        ("a@x,b@1", "the weight 'x'"),
        ("a@-1,b@1", "positive number"),
        ("a@nan,b@1", "positive number"),
        ("a@1,b", "some folders only"),
        ("a,b,a", "twice"),
        ("a,a/", "twice"),
        ("a@1,./a@3", "twice"),
    ],
)
def test_faulty_mixtures_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        parse_corpora(data)


def test_by_size_takes_everything():
    assert blocks_to_take([100, 7, 1]) == [100, 7, 1]


def test_weights_give_exact_shares_and_keep_the_length_of_an_epoch():
    assert blocks_to_take([900, 100], weights=[1, 1]) == [500, 500]
    counts = blocks_to_take([333, 333, 334], weights=[2, 2, 3])
    assert sum(counts) == 1000
    assert all(abs(count - 1000 * weight / 7) < 1 for count, weight in zip(counts, (2, 2, 3), strict=True))


def test_no_corpus_is_left_out_for_its_weight():
    assert blocks_to_take([500, 10, 20], weights=[1, 1e-9, 1e-9]) == [528, 1, 1]
    assert blocks_to_take([1, 1], weights=[1e-9, 1]) == [1, 1]


def test_smoothing_follows_the_formula():
    sizes = [10_000, 100]
    counts = blocks_to_take(sizes, alpha=0.3)
    share = 100**0.3 / (10_000**0.3 + 100**0.3)
    assert counts[1] == pytest.approx(share * 10_100, abs=1)
    assert blocks_to_take(sizes, alpha=0.0) == [5050, 5050]


def test_a_corpus_without_blocks_is_refused():
    with pytest.raises(ValueError, match="Corpus 2 of 2 has no blocks"):
        blocks_to_take([1, 0])
