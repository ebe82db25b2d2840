"""Files of tagged words: CoNLL-U, comments of columns, lists of other formats."""

import gzip
import json
import logging

import pytest

from roberta_plugin.extensions.tagging.files import read_file

UNIVERSAL = """# newdoc id = a
# sent_id = 1
# text = Vamos al cine
1\tVamos\tir\tVERB\tV\tMood=Ind|Number=Plur\t0\troot\t_\t_
2-3\tal\t_\t_\t_\t_\t_\t_\t_\t_
2\ta\ta\tADP\tP\t_\t4\tcase\t_\tname=O
3\tel\tel\tDET\tD\tNumber=Sing\t4\tdet\t_\tname=O
3.1\tx\tx\tNOUN\t_\t_\t_\t_\t0:x\t_
4\tcine\tcine\tNOUN\tN\tNumber=Sing\t1\tobl\t_\tname=B-LOC

# newdoc id = b
# sent_id = 2
1\t# 17\t# 17\tSYM\tS\t_\t0\troot\t_\t_
"""


def read(tmp_path, text, *, name="t.conll", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_file(path, **{"needs_tags": True, **options})
    return [(" ".join(each.texts), None if each.target is None else " ".join(each.target)) for each in found], found


def test_conll_u_has_its_words_and_upos(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        found, examples = read(tmp_path, UNIVERSAL, name="t.conllu")
    assert found == [("Vamos a el cine", "VERB ADP DET NOUN"), ("# 17", "SYM")]
    assert (
        "the words are FORM, the tags UPOS; 1 token such as 3-4 is read as its words; 1 empty node is skipped"
        in caplog.text
    )
    assert [each.group for each in examples] == ["0", "1"]
    assert examples[0].place_of_word(3).endswith("t.conllu, line 9"), "not line 7"
    zipped = read(tmp_path, gzip.compress(UNIVERSAL.replace("\n", "\r\n").encode()), name="t.conllu.gz")[0]
    assert zipped == found


@pytest.mark.parametrize(
    ("column", "tags"),
    [
        ("XPOS", "V P D N"),
        ("xpos", "V P D N"),
        ("5", "V P D N"),
        ("Number", "Plur _ Sing Sing"),
        ("name", "_ O O B-LOC"),
        ("DEPREL", "root case det obl"),
    ],
)
def test_any_column_or_feature_of_conll_u_can_be_the_tags(tmp_path, column, tags):
    assert read(tmp_path, UNIVERSAL, name="t.conllu", columns=("LEMMA", column))[0][0] == ("ir a el cine", tags)


def test_conll_u_without_tags_and_with_faults(tmp_path):
    blind = "".join(f"{n}\tw{n}" + "\t_" * 8 + "\n" for n in (1, 2))
    assert read(tmp_path, blind, name="t.conllu", needs_tags=False)[0] == [("w1 w2", None)]
    with pytest.raises(ValueError, match="line 1: there are no tags"):
        read(tmp_path, blind, name="t.conllu")
    for text, message in (
        ("1 w _\n", "line 1 has 1 columns, and CoNLL-U has 10, separated by tabs"),
        (blind.replace("2\t", "x\t", 1), "line 2: 'x' is not the number of a word"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path, text, name="t.conllu")
    with pytest.raises(
        ValueError, match=r"--tags-column Case is none of the columns .*the features Mood, Number, name"
    ):
        read(tmp_path, UNIVERSAL, name="t.conllu", columns=(None, "Case"))
    for lines in (UNIVERSAL, UNIVERSAL.partition("\n\n")[0]):
        with pytest.raises(
            ValueError, match=r"the first column numbers the words of each sentence.* is called \.conllu"
        ):
            read(tmp_path, lines, name="t.txt")
    plus = "# global.columns = ID FORM UPOS\n1\ta\tX\n2\tb\tY\n"
    assert read(tmp_path, plus, name="t.conllup")[0] == [("a b", "X Y")]


@pytest.mark.parametrize(
    "text",
    [
        "# 17\na NOUN\nb VERB\n\n# 18\nc NOUN\n",
        "# id 1\n# text = a b\na NOUN\nb VERB\n\n#sent_id = 7\nc NOUN\n",
        "## klue-1\t<a:b> c\na\tNOUN\nb\tVERB\n\n## klue-2\td\nc\tNOUN\n",
        "#\thttp://x [2010]\tz\na\tNOUN\nb\tVERB\n\n#\na_\tNOUN\n".replace("a_", "c"),
        "-DOCSTART- X\n\n# newdoc\na NOUN\nb VERB\n\n\n# x y z\nc NOUN\n",
    ],
)
def test_comments_before_a_sentence_are_left_out_and_counted(tmp_path, text, caplog):
    with caplog.at_level(logging.INFO):
        assert read(tmp_path, text)[0] == [("a b", "NOUN VERB"), ("c", "NOUN")]
    assert "lines, such as '#" in caplog.text and "are left out as comments" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# O\na B-X\nb O\n", "# a b"),  # a word, by its tag
        ("#id\tO\na\tB-X\n", "#id a"),
        ("#tag B-Y\na B-X\n", "#tag a"),
        ("# SYM\na NOUN\n\n# SYM\nb NOUN\n", "# a"),
        ("a NOUN\n# 17\n", "a #"),  # within a sentence
    ],
)
def test_words_that_begin_with_a_number_sign_are_kept(tmp_path, text, words):
    assert read(tmp_path, text)[0][0][0] == words


def test_numbers_have_the_names_of_the_column_that_is_read(tmp_path, caplog):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    feature = {"feature": {"names": ["O", "B-X"], "_type": "ClassLabel"}, "_type": "Sequence"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"ner_tags": feature}}})}
    for columns, expected in ((("ner_tags",), "B-X O"), (("tags", "ner_tags"), "")):
        rows = [{"tokens": ["a", "b"], **{name: [1, 0] for name in columns}}]
        path = tmp_path / f"{len(columns)}.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows).replace_schema_metadata(metadata), path)
        if expected:
            assert " ".join(read_file(path, needs_tags=True)[0].target) == expected
            assert "the numbers in the column 'ner_tags' are labels from 0 on: O, B-X" in caplog.text
        else:  # the names are those of the other column
            with pytest.raises(ValueError, match="are numbers, such as 1"):
                read_file(path, needs_tags=True)


def test_lists_of_parquet_and_csv(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    rows = [{"tokens": ["a", "b c"], "tags": ["O", "B-X"]}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert read_file(tmp_path / "t.parquet", needs_tags=True)[0].texts == ("a", "b c")
    text = "tokens,tags\n" + '"[""a"", ""b c""]","' + json.dumps(["O", "B-X"]).replace('"', '""') + '"\n'
    assert read(tmp_path, text, name="t.csv")[0] == [("a b c", "O B-X")]
    with pytest.raises(ValueError, match=r"t\.csv, line 2: the column 'tokens' must hold a list of words, found 'a'"):
        read(tmp_path, "tokens,tags\na,O\n", name="t.csv")
