"""The papers' tables and figures, one thin module each, and what they share.

plotting        one look for all figures: lines over epsilon, bars
results         what a study leaves in a folder, and whether it is up to date
series          what a figure shows, checked
look            colours, lines and markers by mechanism; how a figure is saved
arranging       where panels, labels and legends go, so that nothing overlaps or is cut off
"""
