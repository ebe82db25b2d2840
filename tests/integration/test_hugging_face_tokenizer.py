"""A tokenizer that Hugging Face's tokenizers trained, from text to a pretrained model in transformers."""

from pathlib import Path
from typing import Any

import pytest

from roberta_plugin.cli import main
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.hub import RobertaHub
from tests.hugging_face import import_transformers
from tests.integration.test_documents import blocks
from tests.tiny_conversions import TEXT
from tests.tiny_corpus import run, train_command

pytestmark = pytest.mark.integration
transformers = import_transformers()
TEXTS = [TEXT, "", " good\tdog  \n", "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u6771\u4eac \U0001f600 e\u0301 12"]


def test_a_model_pretrained_with_it_has_its_ids_in_transformers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(f"{TEXT}\n" * 40)
    made: dict[str, Any] = {}
    exec(blocks("examples/README.tokenizer_and_data.md", "hugging face tokenizer", "python")[0], made)
    trained, folder = made["tokenizer"], tmp_path / "words"
    text, data = ["--train", str(tmp_path / "text.txt")], str(tmp_path / "data")
    assert main(["binarize", "--tokenizer", str(folder), *text, "--output-dir", data, "--no-progress"]) == 0
    options = ["--max-update", "3", "--total-num-update", "3", "--disable-validation", "--mask-whole-words"]
    done = run(train_command(data, tmp_path / "checkpoints", *options, "--tokenizer-folder", str(folder)))
    assert done.returncode == 0, done.stderr[-3000:]

    checkpoint = tmp_path / "checkpoints" / "checkpoint_last.pt"
    words = [str(checkpoint), "--to", "huggingface", "--output-dir", str(tmp_path / "exported")]
    assert main(["export", *words]) == 0
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    before = transformers.RobertaTokenizerFast.from_pretrained(folder)
    hub = RobertaHub.from_pretrained(checkpoint.parent)
    assert theirs(TEXTS)["input_ids"] == before(TEXTS)["input_ids"] == [hub.encode(each).tolist() for each in TEXTS]
    assert (theirs.mask_token_id, len(theirs)) == (before.mask_token_id, len(before))
    text = "The quick brown <mask> jumps."
    found = transformers.pipeline("fill-mask", str(tmp_path / "exported"))(text)
    wanted = [(filling.token, pytest.approx(filling.probability, abs=1e-6)) for filling in hub.fill_mask(text)]
    assert [(each["token_str"], each["score"]) for each in found] == wanted

    one = tmp_path / "one"  # the same tokenizer as a single file
    one.mkdir()
    trained.save(str(one / "tokenizer.json"))
    words = ["--checkpoint", str(checkpoint), "--tokenizer", str(one), "--output-dir", str(tmp_path / "extended")]
    assert main(["tokenizer", "extend", *words]) == 0
    assert Vocabulary.load(tmp_path / "extended" / "dict.txt").symbols == hub.vocabulary.symbols
    table = str(tmp_path / "table.csv")
    Path(table).write_text("label,text\ngood,the dog\nbad,the fox\n")
    words = [
        *("--kind", "classification", "--train", table, "--valid", table, "--tokenizer", str(one)),
        *("--output-dir", str(tmp_path / "table")),
    ]
    assert main(["prepare", "custom", *words]) == 0
    assert Prepared.open(tmp_path / "table").tokenizer.description() == hub.tokenizer.description()
