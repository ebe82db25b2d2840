"""A model's answers about new text: lines in, JSON Lines out, for every kind of task.

    lines --records--> dicts --kinds--> answers --writing--> JSON Lines, or .npy

settings   PredictSettings
records    JSON Lines, CSV, TSV or plain text -> records with their line numbers
opening    a model -> its kind of task, its head and its lengths
kinds      one file for each kind of task: a record -> an answer
predict    windows of records through a model, in order
writing    answers -> a file or standard output
"""
