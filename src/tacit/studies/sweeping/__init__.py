"""Many trainings from one configuration: `tacit sweep`.

grid            which trainings: the cross product of the lists in [sweep]
runs            one of them: train, measure on held-out rows, a flat record
engines         where they are done: processes of this machine, or Ray
records         what is done stays done: a record a run, on disk
frontier        the best settings for each epsilon, and what all runs cost together
"""
