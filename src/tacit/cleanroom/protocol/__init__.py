"""Protocol of the clean room: what room and platform share. Each imports it and never the other.

`terms`, `agreement`, `modes`, `signatures`  what both signed, how it changes, and what it promises
`tokens`                                     how records are named without naming people
`requests`, `slabs`, `answers`, `losses`     what is asked and sent, what is answered, towards which loss;
                                             `requests` has the platform's link to a room, too
`layout`, `derivatives`, `row_derivatives`   trained matrices, and each example's derivative in them
`codecs`, `precisions`, `baseline_codecs`    derivatives as bytes
`audit_log`                                  what happened, as a chain that nobody can edit unseen
`encoding`                                   one spelling of each message; why something is not accepted
"""
