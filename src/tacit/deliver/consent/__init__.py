"""What a person's consent strings say, as pages and apps hand them on: whether a choice may be personal at all.

tc_string    strings of the Transparency and Consent Framework (EU), bit by bit
gpp_string   strings of the Global Privacy Platform: which sections they have, and those of the US
signals      all that a request says of consent together, and what follows; in doubt, no
"""
