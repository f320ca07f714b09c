"""Conversion modelling in a clean room (Li et al., RecSys 2024), run again; one module a table, and ours.

setting         what they share: the log, how the model learns, what an arm is, how much work a scale is
bases           the pre-trained model of a seed, made once and kept
tuning          one way to tune it for the advertiser that does not share, measured
arms            all seeds of many of them, measured or read from a table again
report          the table, the figure, the settings
ranks           table 1: adapters of several ranks beside tuning everything (C1, C2, C8, T19)
labels          table 2: label DP with and without de-biasing (C3, C4, C5)
debiasing       table A1: calibration over epsilon, by loss (T20)
codecs          table 2: what compressing derivatives costs (C6, T21, T26)
attacks         whether sums over large batches reveal labels (C7, T24)
modes           the four modes side by side, over epsilon (T22, T23)
"""
