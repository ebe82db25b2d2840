"""A model's answers about new text: a table in, a table out, for every kind of task.

    file --roberta_plugin/tables--> rows --kinds--> answers --writing--> JSON Lines, CSV, Parquet

settings   PredictSettings
predict    a model -> its kind of task; windows of records through it, in order
writing    answers -> a file or standard output
"""
