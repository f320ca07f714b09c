"""Testing each mechanism against its claim: exactly where outputs can be enumerated, empirically where not.

`case`       a claim, how it is tested, and how small a weakening the test still catches
`catalogue`  the cases of this package; `tacit.audit` lists the catalogues of all parts
"""
