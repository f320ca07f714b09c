"""Conversion modelling in a clean room (Li et al., RecSys 2024), run again, and ours.

setting   what they share: the log, how the model learns, what an arm is, the pre-trained model
tuning    ways to tune it for the advertiser that does not share, measured over seeds; the files
sizes     tables 1 and 2: adapters of several ranks beside tuning everything (C1, C2, C8, T19); what compressing
          derivatives costs (C6, T21, T26)
labels    tables 2 and A1: label DP with and without de-biasing (C3, C4, C5, T20); the four modes side by side,
          over epsilon (T22, T23)
partners  a search log by its advertisers: a base of those that share, and what is tuned for the others
comparisons  a calibration, and a model of one's own flipped labels
advertisers  adapters for real advertisers, beside both (C1 to C6 and C8 there, T71 to T74)
attacks   whether sums over large batches reveal labels (C7, T24)
"""
