"""Figures 4 to 6 of Hardt and Nath (CCS 2012): what is lost when people disclose less, on a log of visits.

trial            visits read as requests; a trace with its hierarchy, its counts and its tests
contest          arms that serve the same requests, measured once and kept
bootstrap        precision and coverage with intervals over people: rows, lines, rules
setting          the traces of these studies, made up or read
ads_shown        figures 4 and 5
disclosure       figure 6; and ours: what is worth disclosing
greedy           theorem 3.5
own_history, shrinkage, private_choice   ours
"""
