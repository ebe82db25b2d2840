"""Multiple choice: RACE, and other sets with any number of options (paper section 5.3).

tasks           official folders, or JSON Lines   -> questions with their options; the rows
"""
