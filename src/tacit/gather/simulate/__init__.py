"""Rounds of many devices in one process, with the parties' own code: who is away, who cheats, what comes out.

population   devices and what they do: away, honest, or misbehaving in a stated way
making       the uploads of some devices, good and bad
workers      uploads made by other processes, a few blocks ahead
setting      a round for a population, and the keys that its parties need
world        a round from the first upload to its release
outcome      what came of it
memory       stores and ledgers that are gone with the process
"""
