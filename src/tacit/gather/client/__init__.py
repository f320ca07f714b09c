"""A device's side: which of its events count, its answer to a question, and its upload.

`contributions`  chooses events once for a run, and counts them in answer to a `Question`
`reporter`       masks, seals and uploads the counts, once per round
"""
