"""Attacks of a platform that wants labels: each works where nothing protects, none beats the agreement.

`game`               records with labels that are fair coins, and how well they were guessed
`probes`             what a platform may ask of any target; unit vectors and honest derivatives
`unsafe_targets`     FOR COMPARISON ONLY: split learning, the published protocol, careless rooms
`defended_room`      our own room, in process, through the slabs and codecs that really travel
`published_attacks`  attacks on published protocols
`careless_attacks`   attacks on careless rooms
`suite`              every attack, what it must reach, and what is left of it in our room
`report`             all of them on one room, and which checks do not hold, for `tacit room attack`
"""
