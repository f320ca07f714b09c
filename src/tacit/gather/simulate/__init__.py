"""Rounds of many devices in one process, with the parties' own code: who is away, who cheats, what comes out.

`population`  devices and what they do: away, honest, or misbehaving in a stated way; a round and keys for them
`uploads`     the uploads of some devices, good and bad, made here or by other processes
`rounds`      a round from the first upload to its release, and what came of it
`runs`        whole runs: over known rows, or by the parties' own code
`memory`      stores and ledgers that are gone with the process
"""
