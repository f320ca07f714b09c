"""Figures 7 and 8 of Hardt and Nath (CCS 2012): what gathering statistics from people's devices costs.

setting            traces, plans of noise, arms, coverage at a precision; a trial whose server knows only what a
                   private run released, and public bids
private_rates      Figure 7: precision and coverage over epsilon (a); people who may leave their noise out, and
                   noise by servers (b); ours: levels, bounds and shrinkage
noise              what is left of noise that people round
phases             protocols as phases that need people to stay, by closed form and by simulation
phases_verdicts    what Figure 8's table says of each protocol, and the verdicts on it
phases_study       Figure 8: phases per query over how often people are away, and over how many they are
"""
