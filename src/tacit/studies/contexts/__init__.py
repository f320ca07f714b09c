"""Figures 4 to 6 of Hardt and Nath (CCS 2012): what is lost when people disclose less, on a log of visits.

trace        visits read as requests: where the person was, what they like, what they ask for, where they went
trial        a trace with its hierarchy, its counts and its tests
serving      what each test is shown by an arm: a level disclosed, so many ads, an estimator
contest      arms that meet the same requests, measured once and kept
clustered    precision and coverage with intervals over people
tabled       figures and contrasts as rows of a table, and back
setting      the traces of these studies, made up or read
"""
