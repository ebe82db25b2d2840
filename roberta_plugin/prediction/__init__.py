"""A model's answers about new text: a table in, a table out, for every kind of task.

    file --roberta_plugin/tables--> rows --kinds--> answers --writing--> JSON Lines, .npy --tables--> CSV, Parquet ...

settings   PredictSettings
opening    a model -> its kind of task (`roberta_plugin/kinds`), its head and its lengths
predict    windows of records through a model, in order
writing    answers -> a file or standard output
tables     JSON Lines -> CSV, TSV, Parquet, compressed files
"""
