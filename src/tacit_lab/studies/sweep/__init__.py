"""Many trainings from one configuration: `tacit sweep`.

grid       which trainings: the cross product of the lists in [sweep]
runs       one of them, where they are done, and their records on disk
outcome    `run_sweep`: all of them, and what came of each point
report     what it comes to, in words and as a record
frontier   the best settings for each epsilon, what all runs cost together, and the files
"""
