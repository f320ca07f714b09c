"""Figures of the page that `tacit serve` shows: `data/frontier.json` and `data/cleanroom.json`.

    charts      what a chart is made of
    frontier    privacy against use, from recorded tables
    cleanroom   the clean room's part: messages of a small run, and recorded tables
    __main__    writes both files: `python -m tacit_lab.studies.page`

A test makes them again and compares, so that the page shows no figure that no study made. What papers printed
comes from the studies too, which hold it beside their own.
"""
