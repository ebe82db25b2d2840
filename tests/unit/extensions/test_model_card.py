"""The model card: what it says is said by kinds and benchmarks, which it does not know by name."""

import inspect
import re

from roberta_plugin.conversion import model_card
from roberta_plugin.conversion.portable import formats
from roberta_plugin.extensions.texts.regression import Regression
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of
from roberta_plugin.finetuning.kinds import KINDS
from tests.tiny_conversions import exported
from tests.tiny_predictors import write_predictor


def test_the_card_names_no_kind_and_no_benchmark():
    source = inspect.getsource(model_card)
    assert len(KINDS) > 10 and len(all_tasks()) > 20
    assert not re.findall("|".join(f"[\"']{re.escape(name)}[\"']" for name in (*KINDS, *all_tasks())), source)
    on_hub = {task: benchmark_of(task).on_hub for task in all_tasks()}
    assert on_hub["SST-2"] == ("nyu-mll/glue", "sst2") and on_hub["custom"] == ("", None)
    assert len(set(on_hub.values())) > 20


def test_what_a_kind_says_of_itself_is_in_the_card(tmp_path, monkeypatch):
    """A kind of another package has its words in its own class."""

    class Ranks(Regression):
        description = "ranks {texts}"  # braces are text

        def usage(self, model):
            return f'open("FOLDER") reads {model.cut()}'

        def card_rows(self, model):
            return {"Ranks": "from 0"}

        def decision(self, model):
            return {"the rank 3": "Above it, a text is good."}

    monkeypatch.setitem(formats(), "regression", Ranks)
    card = (
        exported(write_predictor(tmp_path / "ours", "regression"), tmp_path / "card").folder / "README.md"
    ).read_text()
    assert "that ranks {texts}. Exported by" in card
    assert 'open("FOLDER") reads truncation=True' in card
    assert "- Ranks: from 0\n" in card
    assert (
        "evaluated with the rank 3, which the weights do not contain. Above it, a text is good. `roberta predict` and"
        in card
    )
