"""What crosses between devices, proxy and ad server so that impressions are charged exactly, and once.

`encoding`   bytes with one spelling per message, and the verdicts by which parties refuse them
`keys`       signatures that anybody can check, and keys that one epoch's reports are sealed to
`tokens`     blind RSA signatures (RFC 9474): a right to report one impression that nobody can trace
`menus`      what may be shown in a context and epoch, at which price, with the reasons
`directory`  all menus of an epoch under one root that the proxy countersigns
`offers`     a device asks for a menu and tokens, sealed to the ad server
`reports`    one impression: always 434 bytes, its choice sealed to the ad server
`batches`    shuffled reports of one menu, signed by the proxy; receipts, signed by the ad server
"""
