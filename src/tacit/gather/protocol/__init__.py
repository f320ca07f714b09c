"""What client, proxy and server share: rounds, messages, and the sharing of a vector between two parties.

`encoding`               one spelling of each message, and the codes of refusals
`credentials`, `groups`  keys, seals and tags; modular arithmetic and masks
`noise`, `promises`      the noise of a round, what a run promises each device, and whether its noise keeps that
`rounds`                 what a round asks, and what all parties agreed on
`sharing`, `proofs`      a vector's two parts, and the proof that its counts are in range
`uploads`, `messages`    from device to proxy, from proxy to server to release
`releases`               what a party does before anything leaves: it pays, and adds noise
"""
