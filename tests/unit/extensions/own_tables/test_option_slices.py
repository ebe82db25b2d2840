"""Options of tables of your own, with those of all kinds."""

import pickle


def test_options_of_own_tables_have_those_of_all_kinds_and_can_be_pickled():
    from roberta_plugin.finetuning.options import CustomOptions, TaskOptions
    from roberta_plugin.finetuning.preparation import DataSettings
    from roberta_plugin.prediction.predict import PredictSettings
    from roberta_plugin.prediction.settings import PredictSettings as Same

    options = CustomOptions(train="my.csv", calibrate=True)
    assert isinstance(options, TaskOptions) and pickle.loads(pickle.dumps(options)) == options
    assert DataSettings(task="custom", options=options).options == options
    settings = PredictSettings(model="m", threshold=0.5)
    assert PredictSettings is Same and pickle.loads(pickle.dumps(settings)) == settings
