"""The papers' tables and figures, one thin module each, and what they share.

plotting        one look for all figures: lines over epsilon, bars
results         what a study leaves in a folder
tasks           many measurements, each done once
processes       where they are done: processes of one thread each
records         what is done stays done: a record for each, on disk
digests         the names of records: what was asked for, and the code that did it
series          what a figure shows, checked
look            colours, lines and markers by mechanism; how a figure is saved
arranging       where panels, labels and legends go, so that nothing overlaps or is cut off
"""
