"""`hub.bpe` and `hub.task` have what fairseq's have."""

import pytest
from fairseq.data import Dictionary

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.hub.fairseq_names import fairseq_dictionary


@pytest.mark.parametrize("more", ["", "<mask> 3\n", "b 2 #fairseq:overwrite\n", "<unk> 4 #fairseq:overwrite\n"])
def test_the_dictionary_is_the_one_that_fairseq_reads(tmp_path, more):
    path = tmp_path / "dict.txt"
    path.write_text(f"a 7\nb 5\nwith space 3\n{more}madeupword0000 0\n")
    expected = Dictionary.load(str(path))
    expected.add_symbol("<mask>")
    found = fairseq_dictionary(Vocabulary.load(path))
    assert vars(found) == vars(expected)
