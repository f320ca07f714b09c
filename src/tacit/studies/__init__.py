"""The papers' tables and figures, one thin module each, and what they share.

study           what a study is: it measures, and judges the table that it left
registry        the studies by name
results         what a study leaves in a folder
unchanged       whether it would come out as it lies there
claims          every claim with what a folder of results says of it
papers          the papers, and which studies and claims belong to which
book            all of a folder as one page; book_study is a section of it
plotting        one look for all figures: lines over epsilon, bars
tasks           many measurements, each done once
processes       where they are done: processes of one thread each
records         what is done stays done: a record for each, on disk
digests         the names of records: what was asked for, and the code that did it
series          what a figure shows, checked
look            colours, lines and markers by mechanism; how a figure is saved
arranging       where panels, labels and legends go, so that nothing overlaps or is cut off
"""
