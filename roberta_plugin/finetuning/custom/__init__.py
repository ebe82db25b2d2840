"""Your own tables: from texts and labels to tuned and evaluated models (`roberta finetune custom`).

tasks           the row: tables -> a prepared folder; the grid by the size of the data; metrics with their intervals
splits          examples                        -> training and development set, by a hash of the text
"""
