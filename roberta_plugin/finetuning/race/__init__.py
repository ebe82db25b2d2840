"""Multiple choice: RACE, and other sets with any number of options (paper section 5.3).

tasks           the rows: a prepared folder with one sequence per option, accuracies, prediction files
reader          official folders, or JSON Lines   -> passages with their questions
"""
