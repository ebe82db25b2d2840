"""The real `fairseq-train` on documents with summaries: it learns, its log has the metrics; real articles."""

import json
import lzma
from itertools import islice
from pathlib import Path

import pytest

from roberta_plugin.cli import main
from roberta_plugin.extensions.summaries.documents import Documents, Length, lead, mean_rouge
from roberta_plugin.finetuning.benchmarks import kind_of
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_benchmarks import official, write_tokenizer
from tests.tiny_corpus import finetune_command, logged, run
from tests.tiny_summaries import write_prepared, write_raw

pytestmark = pytest.mark.integration
pytest.importorskip("rouge_score")

ARTICLES = 15


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summaries")
    return write_prepared(folder, raw=write_raw(folder / "raw", sizes={"train": 300, "valid": 60}))


def train_command(data: Path, save_dir: Path, *more: str) -> list[str]:
    how = ("--sentence-layers", "1", "--max-positions", "64")
    return finetune_command(data, save_dir, "roberta_summarization", *how, *more)


def test_it_learns_the_log_has_the_metrics_and_its_summaries_are_predicted(prepared, tmp_path, capsys):
    save_dir = tmp_path / "checkpoints"
    choice = ("--best-checkpoint-metric", "rouge", "--maximize-best-checkpoint-metric")
    how = ("--batch-size", "10", "--lr", "4e-3", "--max-epoch", "6", "--validate-interval", "3", *choice)
    done = run(train_command(prepared.folder, save_dir, *how))
    assert done.returncode == 0, done.stderr[-3000:]
    found = official(prepared, save_dir / "checkpoint_last.pt", tmp_path)
    assert found["f1"] > 90, "three of eight sentences are right"
    assert found["lead_rouge1"] < 70 and found["oracle_rouge1"] == pytest.approx(100)
    record = logged(save_dir, "valid")[-1]
    assert {f"valid_{name}" for name in kind_of(prepared).selectable()} <= record.keys()
    for name in ("rouge1", "rouge2", "f1", "average_precision"):
        assert float(record[f"valid_{name}"]) == pytest.approx(found[name], abs=1e-3)
    lines = [json.loads(line) for line in (tmp_path / "valid.predictions.jsonl").read_text().splitlines()]

    documents = Documents(prepared.split("valid"))
    texts = [{"id": id_, "text": text} for id_, text in zip(documents.ids, documents.sentences, strict=True)]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    answers = tmp_path / "answers.jsonl"
    words = ("--input", str(tmp_path / "new.jsonl"), "--output", str(answers), "--data", str(prepared.folder))
    assert main(["predict", str(save_dir / "checkpoint_last.pt"), *words, "--no-progress"]) == 0
    predicted = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [line["summary"] for line in predicted] == [line["summary"] for line in lines]
    capsys.readouterr()
    checkpoint = str(save_dir / "checkpoint_last.pt")
    words = ("--data", str(prepared.folder), "--output-dir", str(tmp_path / "exported"))
    assert main(["export", checkpoint, *words, "--to", "huggingface"]) != 0
    assert "neither transformers nor fairseq has a class for it" in capsys.readouterr().err
    assert main(["export", checkpoint, *words, "--to", "fairseq", "--head", "masked_lm"]) != 0
    assert "has a sentence head, which fairseq's RoBERTa does not support" in capsys.readouterr().err
    assert main(["export", checkpoint, *words, "--to", "huggingface", "--head", "masked_lm"]) == 0
    assert (tmp_path / "exported" / "model.safetensors").is_file()


def test_real_articles_are_prepared_and_the_oracle_exceeds_their_beginnings(shared_data, tmp_path, capsys):
    """Some of the development set, with GPT-2's tokenizer."""
    (tmp_path / "raw").mkdir()
    name = "bbc_news_summary.dev.jsonl.xz"
    with lzma.open(shared_data / "summaries" / name) as file, lzma.open(tmp_path / "raw" / name, "w") as out:
        out.writelines(islice(file, ARTICLES))
    words = ("--raw", str(tmp_path / "raw"), "--valid", name, "--tokenizer", str(shared_data / "gpt2_bpe"))
    words = (*words, "--oracle-sentences", "12", "--output-dir", str(tmp_path / "data"))
    assert main(["prepare", "summaries", *words]) == 0
    assert f"valid: {ARTICLES} examples" in capsys.readouterr().out
    documents = Documents(Prepared.open(tmp_path / "data").split("valid"))
    number = range(ARTICLES)
    chosen = [documents.labels[documents.first[i] : documents.first[i + 1]].nonzero()[0] for i in number]
    share = Length(length_share=0.4)
    texts = {
        "oracle": [[documents.sentences[i][each] for each in chosen[i]] for i in number],
        "lead": [[documents.sentences[i][each] for each in lead(documents.sentences[i], share)] for i in number],
        "lead-3": [documents.sentences[i][:3] for i in number],
    }
    right = [documents.summaries[i] for i in number]
    found = {name: mean_rouge(given, right) for name, given in texts.items()}
    assert found["oracle"]["rouge1"] > 95 and found["oracle"]["rouge2"] > 90, "they are sentences of the articles"
    for kind, value in found["oracle"].items():
        assert value > found["lead"][kind] and value > found["lead-3"][kind]


def test_prepare_names_what_is_wrong(tmp_path, capsys):
    raw = write_raw(tmp_path / "raw")
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    words = ("--raw", str(raw), "--tokenizer", str(tokenizer), "--output-dir", str(tmp_path / "data"))
    assert main(["prepare", "summaries", *words, "--text-field", "body"]) != 0
    assert (
        "train.jsonl, line 1: there is no column 'body'; there are 'id', 'text', 'summary'. Name one of them"
        in capsys.readouterr().err
    )
    assert main(["prepare", "cnn_dailymail", *words]) != 0
    assert "there is no column 'article'" in capsys.readouterr().err
    (raw / "train.jsonl").unlink()
    (raw / "valid.jsonl").unlink()
    assert main(["prepare", "cnn_dailymail", *words]) != 0
    assert "has no data for cnn_dailymail" in capsys.readouterr().err
