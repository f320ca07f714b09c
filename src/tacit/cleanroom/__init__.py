"""Conversion models across two organisations: one has features, the other labels; a room joins them.

`protocol`    what both parties share: terms and agreement, messages, codecs, tokens, the audit log
`room`        the party with the labels: joins, flips or clips, adds up, and lets out only what was agreed
`model`       the conversion model and its gated adapters, one for each sensitive advertiser
`platform`    the party with the features: trains an adapter against a room
`in_process`  a room in the same process, behind the link that the platform uses for a remote one
`attacks`     what an adversary tries, against published protocols and against our room
`audit`       claims of the room that are tested by experiment, each with a twin that must be caught
"""
