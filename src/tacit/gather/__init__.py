"""Counts over people's devices, through a proxy and a server of which neither sees a device's counts.

`protocol`  what the parties share, and all that they share
`client`    a device: which of its events count, its answer to a question, its one upload per round
`proxy`     takes uploads, holds masked vectors, adds noise
`server`    holds the seeds of the masks, adds noise, releases
`estimate`  noise and accounting of a run, and statistics along a hierarchy from what rounds released
`simulate`  many devices and both parties in one process
`audit`     whole rounds, audited as the server sees them
"""
