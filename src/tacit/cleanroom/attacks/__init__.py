"""What a platform that wants labels would try: against the published protocol, where each attack works, and
against our room, where none does better than the agreement allows.

`worlds`     records with labels; those to be guessed have fair coins for labels
`target`     what a platform may ask: the same questions whoever answers
`unsafe`     answers without protection, FOR COMPARISON ONLY: split learning, the published protocol, careless
             rooms
`defended`   answers of our own room, in process, through the slabs and codecs that really travel
`outcome`    how well labels were guessed, and how well the guarantee lets anyone guess them
`honest`     a small network with a low-rank adapter, for platforms that only look at what they are owed
`suite`      every attack, and what it must reach where nothing protects
`report`     both columns of each; `tacit room attack` prints them
the others   one attack each
"""
