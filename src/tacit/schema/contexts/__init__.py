"""Hierarchies of contexts: what a context is, and the ways in which it becomes less exact.

`tree`        a tree of named nodes, checked when it is made
`attributes`  from exact to nothing: `Steps` up a tree, `SetOf` such, points by `Decimals` or `MetreCells`
`hierarchy`   which levels a context may be told at: a `Sequence` or a `Lattice`, in Python or from a TOML file
`listed`      all nodes that a hierarchy's trees list, and the node above one
`device_copy` a hierarchy as JSON, for devices without Python
`nodes`       a log's contexts as whole numbers: the node of each row at each level

>>> from tacit.schema import Decimals, Sequence, Steps, Tree
>>> drinks = Tree.of_paths(["Food>Coffee", "Food>Tea", "Sport>Skating"])
>>> hierarchy = Sequence((Decimals("location"), Steps("query", drinks)), [(0, 0), (3, 0), (4, 1), (6, 1)])
>>> for node in hierarchy.path(((40.7644, -73.9745), "Coffee")):
...     print(node.levels, node)
(0, 0) location 40.7644,-73.9745 · query Coffee
(3, 0) location 40.76,-73.98 · query Coffee
(4, 1) location 40.7,-74.0 · query Food
(6, 1) query Food
(6, 2) anything
"""
