"""The papers' tables and figures, run again, and what they share.

    study          what a study is: it measures, and judges the table that it left
    registry       papers and studies by name
    results        the files that a study leaves in a folder
    digests        names of finished work, and whether a study would come out the same
    claims         every claim with what a folder of results says of it
    book           all of a folder as one page
    runs           measurements, each done once and kept; figures seed by seed
    processes      where they are done: processes of one thread each
    published      published files in a folder
    logs           the logs that are trained on, and how they are encoded
    report         writes table, figure and settings
    verdicts       rules over paired seeds that families share
    plotting       lines over epsilon, and bars
    figure_style   colours, lines and markers by mechanism; where panels and labels go
    recorded       the results that come with tacit: NAME.csv and NAME.json of every study

Every other folder is a family of studies, one per paper or part of it; `sweep` and `day` serve `tacit
sweep` and `tacit quickstart`, `page` the page of `tacit serve`.
"""
