"""Figures 7 and 8 of Hardt and Nath (CCS 2012): what gathering statistics from people's devices costs.

setting          traces, plans of noise, and the arms of Figure 7
covered          coverage at a precision, and what one arm keeps of another's
bids             which places bid on a context, by public facts
gathered         a trial whose server knows only what a private run released
private_rates    Figure 7(a): precision and coverage over epsilon
away             Figure 7(b): over the fraction of people who may leave their noise out; and noise by servers
better_counts    ours: levels, bounds and shrinkage
noise            what is left of noise that people round
phases           protocols as phases that need people to stay, how long they take, by closed form
phases_walks     the same by simulation, with people who come and go
phases_verdicts  what Figure 8's table says of each protocol, and the verdicts on it
phases_study     Figure 8: phases a query over how often people are away, and over how many they are
"""
