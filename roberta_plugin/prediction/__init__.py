"""A model's answers about new text: lines in, JSON Lines out, for every kind of task.

    file --roberta_plugin/tables--> rows --kinds--> answers --writing--> JSON Lines, or .npy

settings   PredictSettings
opening    a model -> its kind of task (`roberta_plugin/kinds`), its head and its lengths
predict    windows of records through a model, in order
writing    answers -> a file or standard output
"""
