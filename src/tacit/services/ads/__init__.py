"""The ad server's own part of the server's app: what it sells, to whom, and what people see of it.

parts        what the parts share, and the list of them
learning     the prior that charges speak for, in the menus of the next epoch
menu_board   the menus of the public lane, over GET
access       who asks: access keys
"""
